"""Why a child ended: the exit code decides whether it is begun again, and how soon."""

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
        (FULL, ChildExit.IO, "crashed"),  # by the machine: it counts as no crash of the child
        (MemoryError(), ChildExit.IO, "crashed"),
        (FOREIGN, ChildExit.CRASHED, "crashed"),
        (ValueError("x"), ChildExit.CRASHED, "crashed"),
    ],
)
def test_a_code_tells_whose_fault_it_was_and_the_log_why(
    tmp_path: Path, error: Exception, code: ChildExit, event: str
) -> None:
    with closing(Journal(tmp_path / "a.log", "a")) as journal:
        assert explain_exit(journal, error) == code
    assert json.loads((tmp_path / "a.log").read_text())["event"] == event
