"""Records the changes of a process to the files of a team, and kills it at chosen points.

Python imports this module at the start of every process whose PYTHONPATH names its folder. With
`POWERCUT_LOG` in the environment, each call that changes or syncs something below `POWERCUT_ROOT`
is executed and recorded under one lock, so that the log has one order over all processes. Syncs are
only recorded; `disk` computes which data they make safe.

`POWERCUT_KILLS` names a file with one JSON object: the next process that makes that call on such a
path removes the file and kills itself. The keys of the object:

* `call`: `open`, `pwrite`, `ftruncate`, `rename`, `unlink`, `mkdir`, `sync`, `syncdir` …
* `path`: a regular expression, searched in the path below the root (of a rename: the new path).
* `when`: `before` or `after`.
* `holds` (optional): a text in the last write of the process to that path.
* `skip` (optional): the number of such calls to let pass, over all processes.

This module uses only the standard library and none of the tested code.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import re
import signal
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_DIRECTLY = ("fsync", "fdatasync")
SYNCS = (*_DIRECTLY, "sync", "sync_directory", "sync_names", "make_durable", "make_safe_directory")
# Functions of `files` that write and sync.
WRITES = ("append", "append_alone", "replace", "replace_by_parts")
_OURS = re.compile(r"/(team(?:d|ctl)/.*)")
# The first entry also covers `.teams/` and files that are written aside.
_RECORDED = (".team", "team.toml", "deep")

_ASKED = {*SYNCS, *WRITES, "append_locked", "_write_named", "_write_aside"}

_real: dict[str, Any] = {}
_written: dict[str, bytes] = {}
_log = _root = _kills = ""
_within = False  # whether this module is executing a call itself


def install(log: str, root: str, kills: str) -> None:
    """Start recording; earlier records of this process remain in the old log."""
    global _log, _root, _kills
    _log, _root, _kills = log, os.path.realpath(root), kills
    if _real:
        return
    for name, wrapped in _WRAPPED.items():
        _real[name] = getattr(os, name)
        setattr(os, name, wrapped)
    os.replace, os.remove = os.rename, os.unlink
    sys.addaudithook(_watch)


def mark(log: str, facts: dict[str, Any]) -> None:
    """Record a fact between the calls."""
    with _locked(log) as fd:
        _write(fd, ("mark", facts))


@contextmanager
def _locked(log: str) -> Iterator[int]:
    # Opened for each use: a lock inherited through a fork would not exclude the other process.
    opened, closed = _real.get("open", os.open), os.close
    fd = opened(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        closed(fd)


def _write(fd: int, record: tuple[Any, ...]) -> None:
    data = pickle.dumps((os.getpid(), *record))
    _real.get("write", os.write)(fd, len(data).to_bytes(4, "big") + data)


@contextmanager
def _recording(call: str, place: str) -> Iterator[Callable[..., None]]:
    """Execute a call on a place below the root; yield the function that records it."""
    global _within  # noqa: PLW0603 -- one recorder a process, without an object to hold it
    _die(call, place, "before")
    with _locked(_log) as fd:
        _within = True
        try:
            yield lambda *facts: _write(fd, (call, place, *facts))
        finally:
            _within = False
    _die(call, place, "after")


def _die(call: str, place: str, when: str) -> None:
    try:
        fd = _real["open"](_kills, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        plan = json.loads(os.pread(fd, 1 << 16, 0) or b"null")
        if (
            plan is None
            or (plan["call"], plan["when"]) != (call, when)
            or not re.search(plan["path"], place)
            or plan.get("holds", "").encode() not in _written.get(place, b"")
        ):
            return
        left = plan.get("skip", 0)
        _real["ftruncate"](fd, 0)
        if left:
            _real["pwrite"](fd, json.dumps({**plan, "skip": left - 1}).encode(), 0)
            return
        _real["unlink"](_kills)
    finally:
        os.close(fd)
    mark(_log, {"killed": plan})
    os.kill(os.getpid(), signal.SIGKILL)


def _place_of(path: Any, dir_fd: int | None = None) -> str | None:
    if isinstance(path, int):
        return None
    name = os.fsdecode(path)
    if dir_fd is not None:
        name = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
    folder, base = os.path.split(os.path.abspath(name))
    return _place(os.path.join(os.path.realpath(folder), base))


def _place_at(fd: int) -> str | None:
    try:
        return _place(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        return None


def _place(path: str) -> str | None:
    if path == _root:
        return ""
    place = path.removeprefix(_root + "/")
    if place == path or place.endswith(" (deleted)") or "/logs/" in place:
        return None
    return place if place.startswith(_RECORDED) else None


def _sites() -> tuple[str, ...]:
    """Return the lines of the program that requested a sync, from the inside out."""
    frame: FrameType | None = sys._getframe(2)
    asked, found = True, []
    while frame is not None and asked:
        ours, asked = _OURS.search(frame.f_code.co_filename), frame.f_code.co_name in _ASKED
        if ours is not None:
            found.append(f"{ours[1]}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(found)


def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    changing = flags & (os.O_CREAT | os.O_TRUNC)
    place = _place_of(path, dir_fd) if changing else None
    if place is None:
        fd: int = _real["open"](path, flags, mode, dir_fd=dir_fd)
        return fd
    with _recording("open", place) as record:
        try:
            before = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            before = None
        fd = _real["open"](path, flags, mode, dir_fd=dir_fd)
        inode = os.fstat(fd).st_ino
        record(inode, before is None or before.st_ino != inode, bool(flags & os.O_TRUNC))
    return fd


def _pwrite(fd: int, data: Any, offset: int) -> int:
    return _put(fd, data, lambda: (_real["pwrite"](fd, data, offset), offset))


def _write_next(fd: int, data: Any) -> int:
    def put() -> tuple[int, int]:
        count = _real["write"](fd, data)
        return count, os.lseek(fd, 0, os.SEEK_CUR) - count

    if not stat.S_ISREG(os.fstat(fd).st_mode):
        count: int = _real["write"](fd, data)
        return count
    return _put(fd, data, put)


def _put(fd: int, data: Any, put: Callable[[], tuple[int, int]]) -> int:
    place = _place_at(fd)
    if place is None:
        return put()[0]
    with _recording("pwrite", place) as record:
        count, offset = put()
        if data:
            _written[place] = bytes(data)[:count]
        record(os.fstat(fd).st_ino, offset, bytes(data)[:count])
    return count


def _ftruncate(fd: int, length: int) -> None:
    place = _place_at(fd)
    if place is None:
        _real["ftruncate"](fd, length)
        return
    with _recording("ftruncate", place) as record:
        _real["ftruncate"](fd, length)
        record(os.fstat(fd).st_ino, length)


def _rename(
    src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    old, new = _place_of(src, src_dir_fd), _place_of(dst, dst_dir_fd)
    if old is None or new is None:
        _real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        return
    with _recording("rename", new) as record:
        _real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        record(old)


def _named(call: str) -> Callable[..., None]:
    def carry_out(path: Any, *rest: Any, dir_fd: int | None = None, **more: Any) -> None:
        place = _place_of(path, dir_fd)
        if place is None:
            _real[call](path, *rest, dir_fd=dir_fd, **more)
            return
        with _recording(call, place) as record:
            _real[call](path, *rest, dir_fd=dir_fd, **more)
            record()

    return carry_out


def _sync(fd: int) -> None:
    found = os.fstat(fd)
    place = _place_at(fd)
    if place is None:
        return
    sites = _sites()
    with _recording("syncdir" if stat.S_ISDIR(found.st_mode) else "sync", place) as record:
        record(found.st_ino, sites)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Record changes that bypass the recorder."""
    if event != "open" or _within or not isinstance(arguments[0], str | bytes):
        return
    if (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR) and arguments[1] is not None:
        with suppress(OSError):
            place = _place_of(arguments[0])
            if place is not None:
                mark(_log, {"unrecorded": place})


_WRAPPED: dict[str, Callable[..., Any]] = {
    "open": _open,
    "pwrite": _pwrite,
    "write": _write_next,
    "ftruncate": _ftruncate,
    "rename": _rename,
    "unlink": _named("unlink"),
    "mkdir": _named("mkdir"),
    "rmdir": _named("rmdir"),
    "fsync": _sync,
    "fdatasync": _sync,
}

if "POWERCUT_LOG" in os.environ:
    install(*(os.environ[f"POWERCUT_{key}"] for key in ("LOG", "ROOT", "KILLS")))
