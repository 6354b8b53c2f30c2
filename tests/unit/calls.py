"""A call of `teamctl`, run within this process: a tenth of the time of one of its own."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest

from teamctl.main import main
from teamd.files.paths import TeamPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """How a call ended, and all it wrote."""

    status: int
    out: str
    err: str


class Stream(io.TextIOWrapper):
    """What a command writes to: no terminal, and a text afterwards."""

    def __init__(self, **options: Any) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", **options)

    @property
    def text(self) -> str:
        """All that was written."""
        self.flush()
        written = self.buffer
        assert isinstance(written, io.BytesIO)
        return written.getvalue().decode()


def call(paths: TeamPaths | None, *argv: str, out: Stream | None = None) -> Called:
    """Run a command for a team, or where there is none for the folder that this process is in."""
    which = [] if paths is None else ["--team-dir", str(paths.root)]
    out, err = out or Stream(), Stream()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["teamctl", *which, *argv])
        with pytest.raises(SystemExit) as ended:
            main()
    return Called(status=ended.value.code, out=out.text, err=err.text)  # type: ignore[arg-type]
