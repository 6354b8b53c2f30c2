"""The lock of a teammate's only process, bound to the team directory of its start."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from teamd.errors import StoreError
from teamd.files import locks
from teamd.files.locks import InstanceLock
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from teamd.transcript.file import Transcript
from teamd.transcript.records import NoteAdded
from tests.children import HOLDER, child, holding
from tests.waiting import wait_until


@pytest.fixture
def instance_lock(paths: TeamPaths) -> InstanceLock:
    return InstanceLock(paths.life("alice"))


def move(paths: TeamPaths) -> None:
    """Replace this team by another one, with mail for its alice."""
    paths.root.rename(paths.root.with_name("old"))
    paths.create()
    Mailbox(paths, "alice", durable=False).put(Message(sender="lead", to="alice", content="x"))


def test_the_lock_excludes_others_while_it_is_held(
    paths: TeamPaths, instance_lock: InstanceLock
) -> None:
    instance_lock.check()
    assert locks.try_lock(paths.life("alice")) is None


def test_mail_of_another_team_is_not_taken(paths: TeamPaths, instance_lock: InstanceLock) -> None:
    mailbox = Mailbox(paths, "alice", durable=False, check=instance_lock.check)
    assert mailbox.take().messages == ()
    move(paths)
    before = paths.inbox("alice").read_bytes()
    with pytest.raises(StoreError, match="was moved or replaced; `teamd start` continues where"):
        mailbox.take()
    assert paths.inbox("alice").read_bytes() == before
    assert not paths.taken("alice").exists()


def test_another_team_s_conversation_is_not_written(
    paths: TeamPaths, instance_lock: InstanceLock
) -> None:
    transcript = Transcript(paths.transcript("alice"), durable=False, check=instance_lock.check)
    transcript.append(NoteAdded())
    move(paths)
    with pytest.raises(StoreError, match="was moved or replaced"):
        transcript.append(NoteAdded())
    assert not paths.transcript("alice").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no file tells it")
def test_the_holder_of_a_lock_is_known_from_the_kernel(paths: TeamPaths) -> None:
    """The descriptors of a process that may not be inspected cannot be listed."""
    lock = paths.life("bob")
    lock.parent.mkdir(exist_ok=True)
    assert not locks.is_held_by(os.getpid(), lock)
    lock.touch()
    assert not locks.is_held_by(os.getpid(), lock)
    with holding(lock) as holder, child(HOLDER, lock) as stranger:
        wait_until(lambda: _waits(stranger.pid), what="it waits for the lock")
        assert locks.is_held_by(holder.pid, lock)
        assert not locks.is_held_by(stranger.pid, lock)
        assert not locks.is_held_by(os.getpid(), lock)
        assert locks.is_locked(lock), "as far as it can be told without /proc/locks"
    assert not locks.is_locked(lock)


def _waits(pid: int) -> bool:
    lines = map(str.split, Path("/proc/locks").read_text().splitlines())
    return any(words[1] == "->" and words[5] == str(pid) for words in lines)


def test_a_missing_team_directory_is_not_created_for_a_lock(paths: TeamPaths) -> None:
    """Only the folder of the locks is created, so its former holders can start again."""
    paths.lives.rmdir()
    InstanceLock(paths.life("alice")).check()
    assert stat.S_IMODE(paths.lives.stat().st_mode) == 0o700
    paths.root.rename(paths.root.with_name("old"))
    with pytest.raises(StoreError, match="is the team directory still there"):
        InstanceLock(paths.life("alice"))
    assert not paths.root.exists()
