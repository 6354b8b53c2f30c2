"""Locks between processes: of killed, slow and foreign programs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from teamd.errors import LockTimeout
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from tests.children import child, holding, said

HOLDS = """
import sys
from pathlib import Path
from teamd.files import locks
with locks.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
STARTS = """
import subprocess, sys
from pathlib import Path
from teamd.files import locks
with locks.locked(Path(sys.argv[1])):
    print(subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL).pid, flush=True)
    sys.stdin.read()
"""
PUTS = """
import sys
from pathlib import Path
from teamd.messages import Message
from teamd.mail.mailbox import Mailbox
from teamd.files.paths import TeamPaths
box = Mailbox(TeamPaths(Path(sys.argv[1])), "bob")
print("begins", flush=True)
box.put(Message(sender="alice", to="bob", content="x"))
"""


TOGETHER = """
import sys, tempfile, threading
from pathlib import Path
from teamd.files import locks
start, failed = threading.Barrier(8), []

def lock(number):
    start.wait()
    try:
        with locks.locked(Path(sys.argv[1]) / f"{number}.lock"):
            pass
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=lock, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed, tempfile.tempdir, "redis" in sys.modules)
"""


# Prints the modules that call `fcntl.flock` while a message is sent and read.
CALLERS = """
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bob.jsonl"


def test_the_lock_of_a_killed_process_is_free_at_once(path: Path) -> None:
    """A lock file created with `O_EXCL` would stall the whole team until a person removes it."""
    with child(HOLDS, path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockTimeout), locks.locked(path, timeout_seconds=0):
            pytest.fail("it was held")
        holder.kill()
        holder.wait(20)
        with locks.locked(path, timeout_seconds=0):
            pass


def test_a_lock_timeout_explains_how_to_find_the_holder(path: Path) -> None:
    with holding(path) as holder:
        with pytest.raises(LockTimeout) as caught, locks.locked(path, timeout_seconds=0.1):
            pytest.fail("it was held")
        assert "has been locked by another program for 0.1 s" in str(caught.value)
        assert f"`fuser {path}` names it: end it and try again" in str(caught.value)
        assert caught.value.path == path
        assert holder.poll() is None


def test_a_lock_held_by_another_program_delays_mail_but_does_not_lose_any(tmp_path: Path) -> None:
    """A shell does this with `flock .team/inbox/bob.jsonl -c '…'`."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    box = Mailbox(paths, "bob")
    with holding(paths.inbox("bob")) as holder, child(PUTS, paths.root) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begins\n"
        with pytest.raises(LockTimeout), locks.locked(paths.inbox("bob"), timeout_seconds=0.1):
            pytest.fail("it was held")
        assert writer.poll() is None
        assert not box.waiting()
        holder.communicate("")
        assert writer.wait(20) == 0
    assert [message.content for message in box.take().messages] == ["x"]


def test_started_programs_do_not_inherit_a_lock(path: Path) -> None:
    """A background job outlives its teammate, and would hold the inbox for ever."""
    with child(STARTS, path) as holder:
        assert holder.stdout is not None
        job = int(holder.stdout.readline())
        try:
            holder.kill()
            holder.wait(20)
            with locks.locked(path, timeout_seconds=0):
                os.kill(job, 0)
        finally:
            os.kill(job, signal.SIGKILL)


def test_threads_may_take_the_first_locks_of_a_process_at_the_same_time(tmp_path: Path) -> None:
    """The first requests of a page do this; the first lock imports portalocker."""
    assert said(TOGETHER, tmp_path) == "[] None False\n"


def test_portalocker_takes_each_lock(tmp_path: Path) -> None:
    assert said(CALLERS, tmp_path).split() == ["portalocker.portalocker"]
