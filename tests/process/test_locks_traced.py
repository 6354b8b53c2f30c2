"""Each write to a shared file of a team happens under a lock of portalocker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until

_CALLS: Final = "flock,close,pwrite64,write,ftruncate,rename,renameat,renameat2"
_LINE: Final = re.compile(r"(\d+) +(.*)")
_CALL: Final = re.compile(r"(\w+)\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:(\d+)<([^>]*)>)?(.*)\) += (-?\d+)")
_SHARED: Final = re.compile(r"/\.team/(?:inbox/[\w.-]+\.jsonl|ledger\.jsonl|requests/.*lock)$")
# Prints the modules that call `fcntl.flock` while a message is sent and read.
_CALLERS: Final = """
import sys
from pathlib import Path
callers = set()

def note(event, arguments):
    if event == "fcntl.flock":
        callers.add(sys._getframe(1).f_globals["__name__"])

sys.addaudithook(note)
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from teamd.team.states import Status
from teamd.team.roster import Roster
paths = TeamPaths(Path(sys.argv[1]) / ".team")
paths.create()
Roster(paths).update(lambda team: team.with_new("bob", role="coder", status=Status.IDLE))
box = Mailbox(paths, "bob")
box.put(Message(sender="lead", to="bob", content="x"))
box.done(box.take())
print(*callers)
"""


def test_portalocker_takes_each_lock(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _CALLERS, str(tmp_path)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["portalocker.portalocker"]


@pytest.mark.slow
@pytest.mark.strace
def test_a_working_team_writes_shared_files_only_under_their_locks(project: Project) -> None:
    trace = project.root / "trace"
    project.stage.play("ann", use(("send_message", {"to": "bob", "content": "Hi."})), say("Sent."))
    words = ("strace", "-f", "-y", "-qq", "-o", str(trace), "-e", f"trace={_CALLS}")
    with project.begin(*words, "teamd", "start", "--foreground", stderr=subprocess.DEVNULL):
        wait_until(project.paths.supervisor.exists, what="teamd runs")
        project.do("teamctl", "spawn", "bob", "coder", "Wait for mail.", "--wait")
        project.do("teamctl", "spawn", "ann", "coder", "Write to bob.", "--wait")
        project.wait_for("bob", "idle", turns=2)
        project.do("teamd", "stop")
    found = list(_writes(_whole_calls(trace.read_text(encoding="utf-8").splitlines())))
    assert {place for place, locked in found if not locked} == set()
    written = {place.rpartition("/.team/")[2] for place, _ in found}
    assert {"config.json", "ledger.jsonl", "inbox/bob.jsonl", "inbox/teamd.jsonl"} <= written


def _whole_calls(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the pid and the text of each call, joined if strace shows it in two parts."""
    begun: dict[str, str] = {}
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        pid, text = found.groups()
        if text.endswith(" <unfinished ...>"):
            begun[pid] = text.removesuffix(" <unfinished ...>")
        elif text.startswith("<... "):
            yield pid, begun.pop(pid) + text.partition(" resumed>")[2]
        else:
            yield pid, text


def _writes(calls: Iterable[tuple[str, str]]) -> Iterator[tuple[str, bool]]:
    """Yield each write to a shared file, and whether its process held the lock of that file."""
    held: dict[str, dict[str, str]] = {}  # by pid: the locked path of each descriptor
    for pid, text in calls:
        found = _CALL.match(text)
        if found is None or found[5].startswith("-"):
            continue
        name, fd, place, rest = found[1], found[2], found[3], found[4]
        locks = held.setdefault(pid, {})
        if name == "flock" and "LOCK_EX" in rest:
            locks[fd] = place
        elif name in {"flock", "close"}:
            locks.pop(fd, None)
        elif name.startswith("rename") and rest.rstrip().endswith('/.team/config.json"'):
            roster = rest.rpartition(', "')[2].removesuffix('"')
            yield roster, roster.replace("config.json", "config.lock") in locks.values()
        elif place is not None and _SHARED.search(place):
            yield place, place.replace(".taken.jsonl", ".jsonl") in locks.values()
