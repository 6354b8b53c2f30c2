"""Locks on files: the only module that locks.

A lock is an exclusive `flock` on the file that it guards; the kernel gives it back when its
holder ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from teamd.errors import LockTimeout, StoreError, translate_os_errors
from teamd.files.safe_open import PRIVATE_DIRECTORY, private_umask, safe_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

TIMEOUT_SECONDS: Final = 10.0
# Holders keep a lock for microseconds, so it is tried again at once: whoever has it runs on another
# processor. If not, it was stopped in the middle, and others go first. To let them go first at once
# would give a slice of time away for a few microseconds: half as much would get done. Naps are
# short, and longer for one that is stuck. Whoever waits for the disk as well is woken together with
# all others that do: each that tries at once takes a processor from those that get on.
_EAGER: Final = (30, 100)  # tries, then tries with others first
_CALM: Final = (0, 10)
_FIRST_NAP_SECONDS: Final = 0.00005
_BRIEF_NAP_SECONDS: Final = 0.0005
_LONG_NAP_SECONDS: Final = 0.005
_BRIEF_SECONDS: Final = 0.05
_TAKE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_TOO_MANY: Final = 2  # holders of one lock


@contextmanager
def locked(path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[int]:
    """Hold the exclusive `flock` on `path` itself, created if need be; yields its descriptor.

    A program that renames another file over `path` meanwhile is noticed before anything is
    written: what is locked is what stands under that name.

    Raises:
        LockTimeout: another process held it for `timeout_seconds`.
        StoreError: it cannot be opened.
    """
    fd = hold(path, timeout_seconds=timeout_seconds)
    try:
        yield fd
    finally:
        os.close(fd)  # releases the lock; nothing here is buffered


def hold(path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> int:
    """Take the lock on `path` for as long as the returned descriptor is open.

    Raises:
        LockTimeout: another process has it, and keeps it.
        StoreError: it cannot be opened.
    """
    with translate_os_errors(path):
        while True:
            fd = safe_open(path, os.O_RDWR | os.O_CREAT)
            try:
                acquire(fd, path, timeout_seconds)
                if stands_under(fd, path):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)


def try_lock(path: Path) -> int | None:
    """Take the lock on `path` for as long as the returned descriptor is open.

    Returns:
        The descriptor, or `None` while somebody else has the lock.
    """
    with translate_os_errors(path):
        fd = safe_open(path, os.O_RDWR | os.O_CREAT)
    taken = False
    try:
        taken = _take(fd, path)
    finally:
        if not taken:
            os.close(fd)
    return fd if taken else None


def acquire(fd: int, path: Path, timeout_seconds: float, *, calm: bool = False) -> None:
    """Take the lock of an open file.

    Args:
        fd: the file's.
        path: its name.
        timeout_seconds: how long to wait.
        calm: whether to let others go first, for whoever is about to wait for the disk.

    Raises:
        LockTimeout: another process has it, and keeps it.
        StoreError: there are no locks here.
    """
    try:  # nearly always it is free
        fcntl.flock(fd, _TAKE)
    except OSError:  # what is wrong shows at the next try
        _wait(fd, path, timeout_seconds, *(_CALM if calm else _EAGER))


def _wait(fd: int, path: Path, timeout_seconds: float, spins: int, yields: int) -> None:
    for tries in range(spins + yields):
        if _take(fd, path):
            return
        if tries >= spins:
            os.sched_yield()
    # A blocking flock cannot be bounded in time without a signal or a thread.
    begun, nap = time.monotonic(), _FIRST_NAP_SECONDS
    while not _take(fd, path):
        waited = time.monotonic() - begun
        if waited > timeout_seconds:
            raise LockTimeout(path, timeout_seconds)
        time.sleep(nap)
        nap = min(2 * nap, _BRIEF_NAP_SECONDS if waited < _BRIEF_SECONDS else _LONG_NAP_SECONDS)


def release(fd: int) -> None:
    """Let others go on; a lock that cannot be given back goes when its descriptor is closed."""
    try:  # noqa: SIM105 -- `suppress` takes longer than all the rest
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass


def is_held_by(pid: int, path: Path) -> bool:
    """Return whether a process holds a file's lock; also if somebody does and nobody knows who.

    What a file says of a process may be wrong, by accident or by intent; this may not.
    """
    holders = _holders(path)
    return pid in holders if holders else is_locked(path)


def stands_under(fd: int, path: Path) -> bool:
    """Return whether an open file is what stands under that name."""
    with translate_os_errors(path):
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(path))
        except FileNotFoundError:
            return False


def check(folder: Path) -> None:
    """See that locks exclude in this folder: two descriptors of one file, one lock.

    The file is one that nobody else knows: checks do not meet, and what a kill leaves of one is
    swept like everything that was written aside.

    Raises:
        StoreError: they do not, or no file can be made there.
    """
    probe = folder / f".teamd-{os.urandom(8).hex()}.tmp"
    taken: list[int] = []
    try:
        while len(taken) < _TOO_MANY and (fd := try_lock(probe)) is not None:
            taken.append(fd)
    finally:
        for fd in taken:
            os.close(fd)
        with suppress(OSError):
            probe.unlink()
    if len(taken) != 1:
        raise StoreError(
            f"locks exclude nobody in {folder}: its file system has no working flock; "
            "put the team on a local disk, with --team-dir or TEAMD_DIR"
        )


class InstanceLock:
    """Being the one process of a teammate, from now until it ends or says so.

    Everything of a team goes by its path. A process whose team directory was moved would go on in
    whatever directory stands there next, beside the one that has the teammate's name there.

    Args:
        path: the file that is locked; its folder is made, but not the one above.

    Raises:
        LockTimeout: another process has it, and keeps it.
        StoreError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with translate_os_errors(path.parent), private_umask():
            path.parent.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        self._lock = hold(path)

    def close(self) -> None:
        """Let another process be the one: this one is done with all that it does."""
        os.close(self._lock)

    def check(self) -> None:
        """See that the team directory is still the one that this process was started in.

        Two looks at file attributes; for whoever is about to write there.

        Raises:
            StoreError: it is not.
        """
        if not stands_under(self._lock, self._path):
            raise StoreError(
                f"{self._path} is not what this process has locked: the team directory was moved "
                "or replaced; `teamd start` goes on where it stands now"
            )


def _holders(path: Path) -> set[int]:
    """Return who has the lock on a file by /proc/locks, see proc(5); empty where it does not tell.

    It names a file by the number of its node. The device beside it is not that of stat(2) on every
    file system, and the number is not on some: such a file is in no line.
    """
    with suppress(OSError):
        node = b":%d" % path.stat().st_ino
        lines = map(bytes.split, Path("/proc/locks").read_bytes().splitlines())
        held = [words for words in lines if words[1] == b"FLOCK"]  # "->" is who waits for one
        return {int(words[4]) for words in held if words[5].endswith(node)}
    return set()


def is_locked(path: Path) -> bool:
    """Return whether somebody has the lock on a file: try it, and give it back at once."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:  # another user's
        return True
    try:
        return not _take(fd, path)
    finally:
        os.close(fd)


def _take(fd: int, path: Path) -> bool:
    """Take a lock if it is free; returns whether it was."""
    try:
        fcntl.flock(fd, _TAKE)
    except (BlockingIOError, PermissionError):  # the second of some network file systems
        return False
    except OSError as error:
        raise StoreError(
            f"the file system of {path} has no working locks; put the team on a local disk"
        ) from error
    return True
