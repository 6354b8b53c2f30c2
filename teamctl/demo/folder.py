"""The demo's temporary folder, and what is said of it at the end."""

from __future__ import annotations

import shutil
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from teamctl import output
from teamd.errors import TeamError

_LONGEST_REASON: Final = 200


@contextmanager
def temporary_folder(*, keep: bool) -> Iterator[Path]:
    """Make a folder that is gone after the `with` block, unless it is to be kept.

    Raises:
        TeamError: it could not be made, or not be removed.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="teamd-demo-")).resolve()
    except OSError as error:
        raise TeamError(f"no temporary folder could be made: {error}; see to TMPDIR") from error
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                raise TeamError(f"{folder} could not be removed; remove it by hand")


def describe_end(folder: Path, *, kept: bool) -> str:
    """Say what is left."""
    where = f"its folder stays: {folder}" if kept else "its folder is gone"
    return f"teamd has ended, and {where}"


def failure(folder: Path, step: str, why: str, *, kept: bool) -> TeamError:
    """Return the error of a step that did not happen."""
    reason = textwrap.shorten(output.plain(why), _LONGEST_REASON, placeholder=" …")
    remedy = f"look into {folder}" if kept else "--keep leaves its folder"
    what = f"{step} ({reason})" if reason else step
    return TeamError(f"the demo failed: this did not happen: {what}; {remedy}")
