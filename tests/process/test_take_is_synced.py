"""What a power cut can undo: a step of taking mail is on the disk before the next one begins.

A kill does not show it, since the kernel keeps what was written; the order of system calls does.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from tests.process.injected.injections import CALLS, STRACE, script

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.strace

READS = """
import sys
from pathlib import Path
from teamd.mail.mailbox import Mailbox
from teamd.files.paths import TeamPaths
box = Mailbox(TeamPaths(Path(sys.argv[1])), "bob")
box.done(box.take())
"""
CHANGES = ("write", "pwrite64", "fdatasync", "fsync", "ftruncate", "rename", "unlink")
INBOX, TAKEN, ASIDE, FOLDER = "bob.jsonl", "bob.taken.jsonl", "aside", "inbox"
STEPS = [
    ("pwrite64", INBOX),  # the marker
    ("fdatasync", INBOX),
    ("pwrite64", ASIDE),  # the header
    ("pwrite64", ASIDE),  # the lines
    ("fdatasync", ASIDE),
    ("rename", TAKEN),
    ("fsync", FOLDER),
    ("ftruncate", INBOX),
    ("fdatasync", INBOX),
    ("unlink", TAKEN),  # done
]


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    made.create()
    Mailbox(made, "bob").put(Message(sender="eve", to="bob", content="x"))
    return made


def steps(paths: TeamPaths, log: Path) -> list[tuple[str, str]]:
    """What a reader changes and syncs, in order: call and file."""
    call = [str(STRACE), "-f", "-qq", "-y", "-o", str(log), "-e", f"trace={','.join(CALLS)}"]
    subprocess.run([*call, "--", *script(READS, paths.root)], check=True, timeout=60)
    found = []
    for line in log.read_text(encoding="utf-8").splitlines():
        name, rest = re.sub(r"^\d+ +", "", line).split("(", 1)
        there = re.findall(rf"{paths.root}/([\w./-]*)", rest)
        if name in CHANGES and there:
            file = there[-1].rpartition("/")[2]
            found.append((name, ASIDE if file.endswith(".tmp") else file))
    return found


def test_each_step_of_taking_is_on_the_disk_before_the_next(paths: TeamPaths) -> None:
    """Else the mail could be gone, or come again from a place where nobody knows it."""
    assert steps(paths, paths.home / "trace") == STEPS


def test_what_a_killed_reader_left_is_synced_before_it_is_built_on(paths: TeamPaths) -> None:
    """It may have been killed between a step and its sync."""
    inbox = paths.inbox("bob").read_bytes()
    batch = Mailbox(paths, "bob").take()
    assert steps(paths, paths.home / "trace") == [("fdatasync", INBOX), ("unlink", TAKEN)]
    Mailbox(paths, "bob").put(*batch.messages)
    batch = Mailbox(paths, "bob").take()
    marker = b'{"taken_as": "%s"}\n' % batch.id.encode()
    paths.inbox("bob").write_bytes(inbox + marker)
    recovered = [("fsync", FOLDER), ("ftruncate", INBOX), ("fdatasync", INBOX)]
    found = steps(paths, paths.home / "trace")
    assert found[:3] == recovered
    assert found[-1] == ("unlink", TAKEN)


def _program(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]
