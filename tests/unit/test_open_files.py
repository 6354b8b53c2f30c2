"""A sender keeps its inbox open: what it writes goes to the file that stands under the name."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import Thread

import pytest

from teamd.errors import InboxFull, StoreError, StrangeFile
from teamd.files import locks
from teamd.files.open_files import KeptDescriptor, KeptFile
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from tests.shells import opened

LINE = b"line\n"
LONG_AGO = 1_600_000_000
_LOOKS = {"lock": 3, "open": 2}  # at an open file, by the descriptor


@pytest.fixture(params=[True, False], ids=["settled", "changed just now"])
def kept(paths: TeamPaths, request: pytest.FixtureRequest) -> KeptFile:
    """One that has its file open already, and knows of a folder that has not changed, or has."""
    made = KeptFile(paths.inbox("bob"))
    made.append(LINE)
    if request.param:
        os.utime(paths.inboxes, (LONG_AGO, LONG_AGO))
    made.append(LINE)
    return made


def test_the_file_is_opened_once(kept: KeptFile, paths: TeamPaths) -> None:
    [opened] = kept._kept
    kept.append(LINE)
    assert kept._kept == [opened]
    assert paths.inbox("bob").read_bytes() == 3 * LINE
    locks.InstanceLock(paths.inbox("bob"))  # nobody has the lock in between


def test_a_folder_that_changed_just_now_is_not_relied_on(paths: TeamPaths) -> None:
    """A second change within one tick of the file system's clock would not show."""
    kept = KeptFile(paths.inbox("bob"))
    for _ in range(2):
        kept.append(LINE)
    assert [opened.folder for opened in kept._kept] == [None]
    os.utime(paths.inboxes, (LONG_AGO, LONG_AGO))
    kept.append(LINE)
    assert all(opened.folder for opened in kept._kept)


def replace_file(path: Path) -> None:
    path.with_name("new").write_bytes(b"")
    path.with_name("new").rename(path)


def replace_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    path.parent.mkdir()


def replace_team(path: Path) -> None:
    team = path.parent.parent
    team.rename(team.with_name("old"))
    path.parent.mkdir(parents=True)


@pytest.mark.parametrize("change", [os.unlink, replace_file, replace_folder, replace_team])
def test_what_stands_under_the_name_now_is_written_to(
    kept: KeptFile, paths: TeamPaths, change: Callable[[Path], None]
) -> None:
    change(paths.inbox("bob"))
    kept.append(LINE)
    kept.append(LINE)
    assert paths.inbox("bob").read_bytes() == 2 * LINE


def link(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to("kept")


def link_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    path.parent.symlink_to("old")


def hard_link(path: Path) -> None:
    path.with_name("another").hardlink_to(path)


@pytest.mark.parametrize("change", [link, link_folder, hard_link])
def test_a_link_that_takes_the_place_is_refused(
    kept: KeptFile, paths: TeamPaths, change: Callable[[Path], None]
) -> None:
    change(paths.inbox("bob"))
    with pytest.raises(StrangeFile):
        kept.append(LINE)
    assert paths.inbox("bob").read_bytes() == 2 * LINE


def test_a_team_that_has_gone_is_told(kept: KeptFile, paths: TeamPaths) -> None:
    paths.root.rename(paths.root.with_name("old"))
    with pytest.raises(StoreError, match="is the team directory still there"):
        kept.append(LINE)


def test_a_torn_line_stays_alone(kept: KeptFile, paths: TeamPaths) -> None:
    with paths.inbox("bob").open("ab") as file:
        file.write(b"torn")
    kept.append(LINE)
    assert paths.inbox("bob").read_bytes() == 2 * LINE + b"torn\n" + LINE


def test_a_forked_process_opens_a_file_of_its_own(kept: KeptFile, paths: TeamPaths) -> None:
    """An inherited descriptor would exclude nobody, and giving back its lock would be its end."""
    [opened] = kept._kept
    fcntl.flock(opened.fd, fcntl.LOCK_EX)
    forked = os.fork()
    if forked == 0:
        try:
            kept.append(LINE, patience_seconds=0)
        except StoreError:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 1, "it has not waited"
    assert locks.try_lock(paths.inbox("bob")) is None, "the lock is held still"
    kept.append(LINE)
    assert paths.inbox("bob").read_bytes() == 3 * LINE


def test_threads_exclude_each_other(kept: KeptFile, paths: TeamPaths) -> None:
    def write(name: bytes) -> None:
        for _ in range(300):
            kept.append(name * 100 + b"\n", durable=False)

    threads = [Thread(target=write, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = paths.inbox("bob").read_bytes().split()
    assert len(lines) == 902
    assert {(len(line), len(set(line))) for line in lines[2:]} == {(100, 1)}
    assert len(kept._kept) == 1


def test_a_lock_is_held_for_a_block_and_given_back(kept: KeptFile, paths: TeamPaths) -> None:
    with kept.locked() as fd:
        assert locks.is_locked(paths.inbox("bob"))
    assert not locks.is_locked(paths.inbox("bob"))
    with kept.locked() as again:
        assert again == fd
    with pytest.raises(InboxFull), kept.locked():
        raise InboxFull("bob", 1)
    assert not locks.is_locked(paths.inbox("bob"))


@pytest.mark.parametrize("change", [os.unlink, replace_file, replace_folder, replace_team])
def test_what_stands_under_the_name_now_is_locked(
    kept: KeptFile, paths: TeamPaths, change: Callable[[Path], None]
) -> None:
    change(paths.inbox("bob"))
    with kept.locked() as fd:
        assert os.path.samestat(os.fstat(fd), paths.inbox("bob").stat())


def test_what_a_lock_guards_is_opened_once(paths: TeamPaths) -> None:
    guarded = KeptDescriptor(paths.taken("bob"))
    assert guarded.open() is None
    written = guarded.open_to_write()
    os.write(written, LINE)
    assert guarded.open() == guarded.open_to_write() == written


def test_what_was_opened_to_be_read_is_opened_anew_to_be_written(paths: TeamPaths) -> None:
    """Whoever only reads may do so on a disk that takes no writes."""
    paths.taken("bob").write_bytes(LINE)
    guarded = KeptDescriptor(paths.taken("bob"))
    reads = guarded.open()
    assert reads is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(reads, LINE)
    writes = guarded.open_to_write()
    os.write(writes, LINE)


@pytest.fixture(params=[True, False], ids=["settled", "changed just now"])
def guarded(paths: TeamPaths, request: pytest.FixtureRequest) -> KeptDescriptor:
    """As `kept`."""
    made = KeptDescriptor(paths.taken("bob"))
    made.open_to_write()
    if request.param:
        os.utime(paths.inboxes, (LONG_AGO, LONG_AGO))
    for _ in range(3):  # a look at the folder, its descriptor, and what is known of it
        made.open_to_write()
    assert made._kept is not None
    assert (made._kept.folder is not None) == request.param
    return made


def test_nothing_is_looked_at_where_nothing_changed(
    guarded: KeptDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guarded._kept is not None
    looks = pytest.raises(TypeError) if guarded._kept.folder is None else nullcontext()
    monkeypatch.setattr(os, "lstat", None)
    with looks:
        guarded.open_to_write()


@pytest.mark.parametrize("change", [os.unlink, replace_file])
def test_what_a_lock_guards_is_what_stands_there_now(
    guarded: KeptDescriptor, paths: TeamPaths, change: Callable[[Path], None]
) -> None:
    change(paths.taken("bob"))
    fd = guarded.open_to_write()
    assert os.path.samestat(os.fstat(fd), paths.taken("bob").stat())


@pytest.mark.parametrize("change", [link, hard_link])
def test_no_link_is_opened_that_takes_its_place(
    guarded: KeptDescriptor, paths: TeamPaths, change: Callable[[Path], None]
) -> None:
    change(paths.taken("bob"))
    with pytest.raises(StrangeFile):
        guarded.open()


def test_no_descriptor_is_left(paths: TeamPaths) -> None:
    before = opened()
    box = Mailbox(paths, "bob", durable=False, max_inbox_bytes=100)
    box.put(Message(sender="alice", to="bob", content="x"))
    with pytest.raises(InboxFull):
        box.put(Message(sender="alice", to="bob", content="x"))
    del box
    assert opened() - before == set()


@pytest.mark.parametrize("how", ["lock", "open"])
def test_a_disk_that_fails_is_told_at_each_look_and_no_descriptor_is_left(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    paths.taken("bob").touch()
    before = opened()
    look, failed = os.fstat, [0]

    def use() -> None:
        if how == "open":
            KeptDescriptor(paths.taken("bob")).open()
            return
        with KeptFile(paths.inbox("bob")).locked():
            pass

    for left in range(1, 10):
        looks = [left]

        def fail(fd: int, looks: list[int] = looks) -> os.stat_result:
            looks[0] -= 1
            if not looks[0]:
                failed[0] += 1
                raise OSError(errno.EIO, "Input/output error")
            return look(fd)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fstat", fail)
            with pytest.raises(StoreError) if left <= _LOOKS[how] else nullcontext():
                use()
        assert opened() - before == set()
    assert failed == [_LOOKS[how]]
