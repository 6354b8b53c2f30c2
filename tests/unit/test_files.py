"""Shared files: replaced atomically, private, and locked by name."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from teamd.errors import LockTimeout, StoreError, translate_os_errors
from teamd.files import files, locks
from tests.shells import opened
from tests.waiting import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bob.jsonl"


def lock(path: Path) -> None:
    with locks.locked(path):
        pytest.fail("it is no file")


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def test_replace_is_atomic_and_private_and_leaves_no_temporary_file(path: Path) -> None:
    path.write_bytes(b"old")
    files.replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path.parent) == [path.name]


def test_an_append_begins_on_a_new_line(path: Path) -> None:
    """A foreign writer may be killed in the middle of a line; only its own message is lost."""
    path.write_bytes(b'{"content": "who')
    files.append(path, b"mine\n")
    files.append(path, b"more\n")
    assert path.read_bytes() == b'{"content": "who\nmine\nmore\n'


def test_an_append_follows_a_file_renamed_into_place(path: Path) -> None:
    """Editors save by renaming. Mail that waits for the lock must reach the new file."""
    path.write_bytes(b"old\n")
    with ThreadPoolExecutor() as pool:
        with locks.locked(path):
            waiting = pool.submit(files.append, path, b"mail\n")
            wait_until(lambda: descriptors_of(path) == 2, what="the open file of the writer")
            other = path.with_name("other")
            other.write_bytes(b"new\n")
            other.rename(path)
        waiting.result(20)
    assert path.read_bytes() == b"new\nmail\n"


def test_an_append_recreates_a_removed_file(path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with locks.locked(path):
            waiting = pool.submit(files.append, path, b"mail\n")
            wait_until(lambda: descriptors_of(path) == 2, what="the open file of the writer")
            path.unlink()
        waiting.result(20)
    assert path.read_bytes() == b"mail\n"


def descriptors_of(path: Path) -> int:
    return [file.path for file in psutil.Process().open_files()].count(str(path))


def test_a_lock_timeout_is_reported_in_a_sentence(path: Path) -> None:
    with locks.locked(path):
        assert locks.try_lock(path) is None
        with pytest.raises(LockTimeout) as caught, locks.locked(path, timeout_seconds=0.05):
            pytest.fail("it was held")
    assert str(caught.value) == (
        f"{path} has been locked by another program for 0.05 s; "
        f"`fuser {path}` names it: end it and try again"
    )
    with locks.locked(path, timeout_seconds=0):
        pass


def test_no_descriptor_is_leaked(path: Path) -> None:
    before = opened()
    files.append(path, b"x\n")
    files.append(path, b"x\n")
    files.replace(path, b"x\n")
    files.read(path)
    with locks.locked(path), pytest.raises(LockTimeout), locks.locked(path, timeout_seconds=0):
        pass
    with pytest.raises(StoreError):
        files.append(path / "x", b"")
    assert opened() - before == set()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize("use", [lambda path: files.append(path, b"x\n"), files.read, lock])
def test_a_path_that_is_not_a_regular_file_is_refused(
    path: Path, make: Callable[[Path], None], use: Callable[[Path], object]
) -> None:
    """Reading a FIFO would block, and data written to it would be lost."""
    make(path)
    with pytest.raises(StoreError, match=r"not a regular file|Is a directory"):
        use(path)


def test_a_folder_is_not_replaced(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        files.replace(path, b"x")
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_file_is_read_whole(path: Path, size: int) -> None:
    content = os.urandom(size)
    path.write_bytes(content)
    assert files.read(path) == content
    with path.open("rb") as file:
        for offset in (1, size // 2, size, size + 9):
            assert files.read_descriptor(file.fileno(), offset) == content[offset:]


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result holds at least the content at the start of the read."""
    path.write_bytes(b"one\n")
    pread = os.pread

    def read_as_it_grows(fd: int, count: int, offset: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"more\n" if path.stat().st_size < 1000 else b"")
        return pread(fd, count, offset)

    monkeypatch.setattr(os, "pread", read_as_it_grows)
    content = files.read(path)
    assert content is not None
    assert content.startswith(b"one\nmore\n")


def test_a_read_error_in_the_middle_is_not_taken_for_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel returns the bytes before a bad sector and reports the error at the next read."""
    path.write_bytes(b"x" * 100)

    def fail_behind_ten(fd: int, count: int, offset: int) -> bytes:
        if offset >= 10:
            raise OSError(errno.EIO, os.strerror(errno.EIO), fd, count)
        return b"x" * (10 - offset)

    monkeypatch.setattr(os, "pread", fail_behind_ten)
    with pytest.raises(StoreError, match="Input/output error"):
        files.read(path)


def test_a_file_without_a_size_is_read_to_its_end() -> None:
    """Files in proc(5) and in some other file systems report a size of 0."""
    with open("/proc/self/smaps", "rb") as file:  # noqa: PTH123 -- a descriptor
        found = files.read_descriptor(file.fileno())
    assert b"[vsyscall]" in found or b"[vdso]" in found, "which comes last, pages behind the first"


def test_a_missing_file_reads_as_none(path: Path) -> None:
    assert files.read(path) is None
    files.remove(path)
    with pytest.raises(StoreError, match="has gone"):
        files.append(path / "x", b"x\n")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "no space left"),
        (errno.EACCES, "check its owner and mode"),
        (errno.EROFS, "is on a read-only file system"),
        (errno.ENOENT, "has gone"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "doctor"),
    ],
)
def test_a_system_error_becomes_a_sentence_that_names_the_file(
    path: Path, number: int, words: str
) -> None:
    with pytest.raises(StoreError, match=words) as caught, translate_os_errors(path):
        raise OSError(number, os.strerror(number))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_confirm_is_called_at_the_last_moment_after_everything_is_written(path: Path) -> None:
    """A version that is compared before a long write may be another one after it."""
    done: list[str] = []

    def parts() -> Iterator[bytes]:
        for part in (b"new ", b"content"):
            yield part
            done.append("written")

    files.replace_by_parts(path, parts(), confirm=lambda: done.append("confirmed"))
    assert done == ["written", "written", "confirmed"]
    assert path.read_bytes() == b"new content"


def test_a_file_is_not_replaced_if_confirm_raises(tmp_path: Path) -> None:
    """`confirm` sees the old content, and no temporary file is left."""
    path = tmp_path / "a"
    path.write_text("old")

    def refuse() -> None:
        assert path.read_text() == "old"
        raise KeyError

    with pytest.raises(KeyError):
        files.replace(path, b"new", confirm=refuse)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a", "old")]
