"""The end of a child: its exit code decides whether and when it is restarted."""

from __future__ import annotations

import errno
import json
from contextlib import closing
from pathlib import Path

import pytest

from teamd.errors import StoreError, UnknownTeam
from teamd.journal import Journal
from teamd.team.child_exit import explain_exit
from teamd.team.states import ChildExit

FULL, FOREIGN = OSError(errno.ENOSPC, "no space"), OSError(errno.EBADF, "bad descriptor")


@pytest.mark.parametrize(
    ("error", "code", "event"),
    [
        (StoreError("x"), ChildExit.IO, "a file could not be read or written"),
        (UnknownTeam("x", []), ChildExit.SETTINGS, "refused"),
        (FULL, ChildExit.IO, "crashed"),  # caused by the machine, so it does not count as a crash
        (MemoryError(), ChildExit.IO, "crashed"),
        (FOREIGN, ChildExit.CRASHED, "crashed"),
        (ValueError("x"), ChildExit.CRASHED, "crashed"),
    ],
)
def test_an_exit_code_gives_the_kind_of_failure_and_the_log_gives_the_reason(
    tmp_path: Path, error: Exception, code: ChildExit, event: str
) -> None:
    with closing(Journal(tmp_path / "a.log", "a")) as journal:
        assert explain_exit(journal, error) == code
    assert json.loads((tmp_path / "a.log").read_text())["event"] == event
