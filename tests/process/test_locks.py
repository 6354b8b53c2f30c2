"""Locks between processes: of the killed, of the slow, and of whoever is foreign."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from teamd.errors import LockTimeout
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bob.jsonl"


def test_the_lock_of_a_killed_process_is_free_at_once(path: Path) -> None:
    """A lock file made with `O_EXCL` would stall the whole team until somebody removes it."""
    with child(HOLDS, path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockTimeout), locks.locked(path, timeout_seconds=0):
            pytest.fail("it was held")
        holder.kill()
        holder.wait(20)
        with locks.locked(path, timeout_seconds=0):
            pass


def test_a_holder_that_sleeps_is_told_of(path: Path) -> None:
    with holding(path) as holder:
        with pytest.raises(LockTimeout) as caught, locks.locked(path, timeout_seconds=0.1):
            pytest.fail("it was held")
        assert "has been locked by another program for 0.1 s" in str(caught.value)
        assert f"`fuser {path}` names it: end it and try again" in str(caught.value)
        assert caught.value.path == path
        assert holder.poll() is None


def test_a_foreign_lock_holds_mail_back_and_loses_none(tmp_path: Path) -> None:
    """What `flock .team/inbox/bob.jsonl -c '…'` does in a shell."""
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


def test_a_lock_is_not_inherited_by_programs_that_are_started(path: Path) -> None:
    """A background job of a teammate outlives it, and would hold its inbox for ever."""
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


def test_a_message_of_our_own_waits_only_for_its_turn(tmp_path: Path) -> None:
    """Mail to one is not held up by the lock of another's inbox."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    with holding(paths.inbox("bob")):
        Mailbox(paths, "alice").put(Message(sender="bob", to="alice", content="x"))
        assert Mailbox(paths, "alice").queued() == 1


def test_threads_may_take_the_first_locks_of_a_process_together(tmp_path: Path) -> None:
    """As the first requests of a page do: portalocker is imported at the first lock."""
    assert said(TOGETHER, tmp_path) == "[] None False\n"
