"""Waiting for a folder to change: by notifications if there are any, else by polling."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from teamd.files import files
from teamd.files.watch import BLIND_SECONDS, SLOW_SECONDS, Inotify, Watch, wait_for, watch
from tests.waiting import wait_until


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watch]:
    made = watch(tmp_path)
    yield made
    made.close()


def readable(watching: Watch, seconds: float = 0.0) -> bool:
    return bool(select.select([watching], [], [], seconds)[0])


def test_an_append_by_another_process_is_seen(watching: Watch, tmp_path: Path) -> None:
    """Mail from a shell must wake a teammate just like mail of this program."""
    assert watching.recheck_seconds == SLOW_SECONDS
    assert not readable(watching)
    for _ in range(2):  # a new file, then an existing one
        append = f'echo \'{{"content": "x"}}\' >> {tmp_path}/bob.jsonl'
        subprocess.run(["sh", "-c", append], check=True)
        assert readable(watching, 20)
        assert watching.changed() == {"bob.jsonl"}
        assert not readable(watching)
    assert watching.changed() == set()


def test_a_file_that_is_renamed_into_place_is_seen(watching: Watch, tmp_path: Path) -> None:
    """Answers arrive that way."""
    files.replace(tmp_path / "reply.json", b"x")
    assert readable(watching, 20)
    changed = watching.changed()
    assert changed is not None
    assert "reply.json" in changed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".team" / "inbox"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def replaced(folder: Path) -> Iterator[Watch]:
    """A watch on a folder that a test moves."""
    made = watch(folder)
    yield made
    made.close()


def assert_seen_there(watching: Watch, folder: Path) -> None:
    """Assert that a new file in the current folder is seen."""
    assert watching.recheck_seconds == SLOW_SECONDS
    assert not readable(watching)
    (folder / "bob.jsonl").touch()
    assert readable(watching, 20)
    assert watching.changed() == {"bob.jsonl"}


def test_a_folder_that_replaces_another_is_watched(replaced: Watch, folder: Path) -> None:
    """`mv inbox x; cp -a x inbox`: the watch stays with the old folder, the mail does not."""
    folder.rename(folder.with_name("old"))
    assert readable(replaced, 20)
    folder.mkdir()
    assert replaced.changed() is None, "what came before this look is not known"
    (folder.with_name("old") / "alice.jsonl").touch()
    assert replaced.changed() == set()
    assert_seen_there(replaced, folder)


def test_a_move_of_the_parent_folder_is_seen_at_once(replaced: Watch, folder: Path) -> None:
    """`mv .team old`: otherwise a sleeping supervisor would not notice that its team is gone."""
    folder.parent.rename(folder.parent.with_name("old"))
    assert readable(replaced, 20)
    folder.mkdir(parents=True)
    assert replaced.changed() is None
    assert_seen_there(replaced, folder)


def test_a_moved_folder_further_up_is_seen_at_the_next_check(tmp_path: Path) -> None:
    """The kernel sends no notification for it."""
    folder = tmp_path / "project" / ".team" / "inbox"
    folder.mkdir(parents=True)
    watching = watch(folder)
    try:
        (tmp_path / "project").rename(tmp_path / "old")
        folder.mkdir(parents=True)
        assert not readable(watching)
        assert watching.changed() is None
        assert_seen_there(watching, folder)
    finally:
        watching.close()


def test_a_missing_folder_is_polled_often(replaced: Watch, folder: Path) -> None:
    folder.rmdir()
    assert readable(replaced, 20)
    for _ in range(2):
        assert replaced.changed() is None
        assert replaced.recheck_seconds == BLIND_SECONDS
        assert not readable(replaced)
    folder.mkdir()
    assert replaced.changed() is None
    assert_seen_there(replaced, folder)


@pytest.mark.skipif(sys.platform != "linux", reason="only inotify's queue has a length to exceed")
def test_after_a_queue_overflow_anything_may_have_changed(watching: Watch, tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with (tmp_path / "a").open("ab", 0) as a, (tmp_path / "b").open("ab", 0) as b:
        for _ in range(most // 2 + 10):  # alternately, since equal consecutive events are merged
            a.write(b"x")
            b.write(b"x")
    assert watching.changed() is None


def test_without_notifications_the_folder_is_polled_often(tmp_path: Path) -> None:
    watching = watch(tmp_path / "missing")
    try:
        assert watching.recheck_seconds == BLIND_SECONDS
        assert watching.changed() is None
        assert not readable(watching)
    finally:
        watching.close()


@pytest.mark.parametrize("folder", [".", "later"])
def test_a_file_that_arrives_later_is_found(tmp_path: Path, folder: str) -> None:
    """With notifications, and by polling in a folder that does not exist yet."""
    path = tmp_path / folder / "reply"
    looks: list[None] = []

    def look() -> bytes | None:
        looks.append(None)
        return files.read(path) if path.parent.exists() else None

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait_for, path.parent, look, timeout_seconds=60)
        wait_until(lambda: looks, what="the first look")
        path.parent.mkdir(exist_ok=True)
        files.replace(path, b"found")
        assert waiting.result(20) == b"found"


def test_an_existing_file_is_found_without_waiting(tmp_path: Path) -> None:
    assert wait_for(tmp_path, lambda: "x", timeout_seconds=0) == "x"


def test_the_wait_ends_at_its_timeout(tmp_path: Path) -> None:
    assert wait_for(tmp_path, lambda: None, timeout_seconds=0.05) is None


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_the_names_of_many_changed_files_are_all_returned(watching: Watch, tmp_path: Path) -> None:
    """More events than one read returns, with names of any length and any bytes."""
    names = {"é" * 100, "a", b"\xff".decode(errors="surrogateescape")}
    names |= {f"{number}-{'x' * (number % 200)}" for number in range(300)}
    for name in names:
        (tmp_path / name).touch()
    assert watching.changed() == names
    assert watching.changed() == set()


@pytest.fixture
def mail(folder: Path) -> Iterator[Watch]:
    """A watch on some files of a folder."""
    (folder / "ann.jsonl").touch()
    made = watch(folder, lambda name: name.endswith(".jsonl"))
    yield made
    made.close()


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def test_a_write_to_an_unwatched_file_does_not_wake_a_process(mail: Watch, folder: Path) -> None:
    """For every message, a reader writes its spool file beside each inbox."""
    (folder / "ann.taken").touch()
    assert mail.changed() == set()
    if sys.platform == "linux":  # elsewhere, only new files of the folder are reported
        append(folder / "ann.taken")
        assert not readable(mail)
    append(folder / "ann.jsonl")
    assert readable(mail, 20)
    assert mail.changed() == {"ann.jsonl"}


def test_a_new_wanted_file_is_watched(mail: Watch, folder: Path) -> None:
    append(folder / "bob.jsonl")
    assert readable(mail, 20)
    assert mail.changed() == {"bob.jsonl"}
    append(folder / "bob.jsonl")
    assert readable(mail, 20)
    assert mail.changed() == {"bob.jsonl"}


@pytest.mark.parametrize("when", ["at the start", "later"])
def test_a_write_behind_a_link_does_not_wake_a_process(folder: Path, when: str) -> None:
    """A link to the supervisor's own log would wake it for each line that it writes."""
    outside = folder.parent / "teamd.jsonl"
    outside.touch()
    link = folder / "eve.jsonl"
    if when == "at the start":
        link.symlink_to(outside)
    with closing(watch(folder, lambda name: name.endswith(".jsonl"))) as mail:
        if when == "later":
            link.symlink_to(outside)
            assert mail.changed() == {"eve.jsonl"}
        append(outside)
        assert not readable(mail)


@pytest.mark.parametrize("how", ["replaced", "removed", "removed and seen", "renamed"])
def test_a_wanted_file_that_replaces_another_is_watched(
    mail: Watch, folder: Path, how: str
) -> None:
    """Replaced by hand, or by a program that writes a temporary file first."""
    path = folder / "ann.jsonl"
    if how == "replaced":
        files.replace(path, b"x")
    elif how == "renamed":
        (folder / "cid.jsonl").touch()
        (folder / "cid.jsonl").rename(path)
    else:
        path.unlink()
        if how == "removed and seen":
            assert readable(mail, 20)
            mail.changed()
        append(path)
    changed = mail.changed()
    assert changed is None or "ann.jsonl" in changed
    mail.changed()
    append(path)
    assert readable(mail, 20)
    assert mail.changed() == {"ann.jsonl"}


def test_wanted_files_of_a_replaced_folder_are_watched(mail: Watch, folder: Path) -> None:
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    append(folder / "ann.jsonl")
    assert readable(mail, 20)
    assert mail.changed() is None
    append(folder / "ann.jsonl")
    assert readable(mail, 20)
    assert mail.changed() == {"ann.jsonl"}


@pytest.mark.skipif(sys.platform != "linux", reason="only inotify's queue has a length to exceed")
def test_a_wanted_file_that_arrived_during_a_queue_overflow_is_watched(
    mail: Watch, folder: Path
) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 10):
        (folder / f"x{number % 7}").touch()
        (folder / f"x{number % 7}").unlink()
    (folder / "bob.jsonl").touch()
    assert mail.changed() is None
    append(folder / "bob.jsonl")
    assert readable(mail, 20)
    assert mail.changed() == {"bob.jsonl"}


@pytest.mark.skipif(sys.platform != "linux", reason="inotify numbers files, not names")
def test_a_file_that_had_a_second_name_for_a_while_is_known_by_its_own(
    mail: Watch, folder: Path
) -> None:
    (folder / "copy.jsonl").hardlink_to(folder / "ann.jsonl")
    assert mail.changed() == {"copy.jsonl"}
    (folder / "copy.jsonl").unlink()
    mail.changed()
    append(folder / "ann.jsonl")
    assert readable(mail, 20)
    changed = mail.changed()
    assert changed is not None
    assert "ann.jsonl" in changed


@pytest.mark.skipif(sys.platform != "linux", reason="what inotify refuses")
@pytest.mark.parametrize("when", ["at the start", "later"])
def test_if_a_file_cannot_be_watched_its_whole_folder_is_watched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The file is unreadable, or the limit on watches is reached; mail still wakes its reader."""
    real = Inotify.add

    def add(queue: Inotify, path: Path, mask: int) -> int:
        if path.name == "bob.jsonl":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(queue, path, mask)

    monkeypatch.setattr(Inotify, "add", add)
    (folder / "ann.jsonl").touch()
    if when == "at the start":
        (folder / "bob.jsonl").touch()
    with closing(watch(folder, lambda name: name.endswith(".jsonl"))) as mail:
        if when == "later":
            (folder / "bob.jsonl").touch()
            assert mail.changed() == {"bob.jsonl"}
        for name in ("ann.jsonl", "bob.jsonl"):
            append(folder / name)
            assert readable(mail, 20)
            assert mail.changed() == {name}
        assert mail.recheck_seconds == SLOW_SECONDS


@pytest.mark.skipif(sys.platform != "linux", reason="what inotify refuses")
def test_if_neither_can_be_watched_the_folder_is_polled_often(
    mail: Watch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_queue: Inotify, _path: Path, _mask: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Inotify, "add", refuse)
        append(folder / "bob.jsonl")
        for _ in range(2):
            assert mail.changed() is None
            assert mail.recheck_seconds == BLIND_SECONDS
    assert mail.changed() is None
    append(folder / "bob.jsonl")
    assert readable(mail, 20)
    assert mail.changed() == {"bob.jsonl"}
