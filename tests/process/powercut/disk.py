"""A simulated disk, rebuilt from a recording, with its possible contents after a power cut.

The model promises only what POSIX promises: the data of a file is safe after a sync of the file, a
name after a sync of its directory. Unsynced changes are lost, kept or partly kept, independently
for each file and directory; the changes to one directory keep their order (every journaling and
copy-on-write file system guarantees that). An overwrite in place of safe bytes leaves either the
old or the new bytes: a sector is written as a whole, which SQLite relies on as well ("powersafe
overwrite"), and each overwrite in place of the program is shorter than a sector.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.e2e.harness import Project
from tests.process.powercut.preload.sitecustomize import install, mark
from tests.waiting import wait_until

_VERSIONS: Final = 8
_IN_COPY: Final = re.compile(r"/work/[^/]+/")
Record = tuple[Any, ...]
State = dict[str, bytes | None]  # by path below the root; `None` is a directory


class Kept(Enum):
    """The part of the unsynced changes to a file's data that survives."""

    NONE = auto()
    ALL = auto()
    TRUNCATED = auto()
    ZEROS = auto()
    HALF = auto()
    EARLIER = auto()


@dataclass(slots=True)
class File:
    """A file's data: current, safe, and the changes between them.

    Attributes:
        versions: the data before each change since the last sync.
    """

    data: bytes = b""
    safe: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # `None`: truncated there
    versions: list[bytes] = field(default_factory=list)
    _known: dict[Kept, bytes] = field(default_factory=dict)

    def change(self, offset: int, data: bytes | None) -> None:
        """Write at an offset, or truncate there; an empty write changes nothing."""
        if data == b"":
            return
        self.versions = [*self.versions[-_VERSIONS:], self.data]
        self.data = _changed(self.data, offset, data)
        if not self.data:
            self.pending.clear()  # data before a full truncation remains in `versions` only
        self.pending.append((offset, data))
        self._known.clear()

    def sync(self) -> None:
        """Make the data safe."""
        self.safe = self.data
        self.pending.clear()
        self.versions.clear()
        self._known.clear()

    def after(self, kept: Kept) -> bytes:
        """Return the data after a power cut."""
        if not self.pending or kept is Kept.NONE:
            return self.safe
        if kept is Kept.ALL:
            return self.data
        if kept is Kept.EARLIER:
            return self.versions[len(self.versions) // 2]
        if kept not in self._known:
            self._known[kept] = self._after(kept)
        return self._known[kept]

    def _after(self, kept: Kept) -> bytes:
        found = self.safe
        left = sum(len(data or b"") for _, data in self.pending) // 2
        for offset, data in self.pending:
            if data is None:
                found = _changed(found, offset, None)
            elif kept is Kept.ZEROS:
                found += bytes(max(0, offset + len(data) - len(found)))
            elif kept is Kept.HALF:
                whole = offset + len(data) <= len(found)
                found = _changed(found, offset, data if whole else data[:left])
                left = max(0, left - len(data))
        return found


@dataclass(slots=True)
class Folder:
    """A directory's entries; a change removes names and assigns names to node numbers."""

    entries: dict[str, int] = field(default_factory=dict)
    safe: dict[str, int] = field(default_factory=dict)
    pending: list[dict[str, int | None]] = field(default_factory=list)

    def change(self, names: dict[str, int | None]) -> None:
        """Remove and assign names atomically."""
        _rename(self.entries, names)
        self.pending.append(names)

    def sync(self) -> None:
        """Make the entries safe."""
        self.safe = dict(self.entries)
        self.pending.clear()

    def after(self, changes: int) -> dict[str, int]:
        """Return the entries after a power cut that keeps that many unsynced changes."""
        found = dict(self.safe)
        for names in self.pending[:changes]:
            _rename(found, names)
        return found


# Each model treats all files and all directories alike; its name appears in the log of a failure.
MODELS: Final[dict[str, tuple[bool, Kept]]] = {
    "nothing": (False, Kept.NONE),
    "names": (True, Kept.NONE),
    "data": (False, Kept.ALL),
    "empty": (True, Kept.TRUNCATED),
    "zeros": (True, Kept.ZEROS),
    "half": (True, Kept.HALF),
    "earlier": (True, Kept.EARLIER),
    "all": (True, Kept.ALL),
}


class Disk:
    """The files of a project, updated call by call.

    Args:
        before: the safe files before the recording.
        ignored: a line of the program whose syncs are ignored.
    """

    def __init__(self, before: State, ignored: str = "") -> None:
        self._nodes: list[File | Folder] = [Folder()]
        self._numbers: dict[int, int] = {}  # by current inode; the system reuses inodes
        self._ignored = ignored
        for path, data in sorted(before.items()):
            node = Folder() if data is None else File(data, data)
            self._name(path, self._add(node))
        for node in self._nodes:
            node.sync()

    def apply(self, record: Record) -> bool:  # noqa: C901 -- one case a call
        """Apply one record; return whether the possible states after a power cut have changed."""
        _, call, place, *facts = record
        match call, facts:
            case "open", (inode, made, emptied):
                if made:
                    self._numbers[inode] = self._add(File())
                    self._name(place, self._numbers[inode])
                elif emptied and self._file(place, inode).data:
                    self._file(place, inode).change(0, None)
            case "pwrite", (inode, offset, data):
                self._file(place, inode).change(offset, data)
            case "ftruncate", (inode, length):
                self._file(place, inode).change(length, None)
            case "rename", (old,):
                self._rename(old, place)
            case (("unlink" | "rmdir"), ()) if is_of_commands(place):
                return False  # bubblewrap created some of these without a record
            case (("unlink" | "rmdir"), ()):
                folder, name = self._above(place)
                folder.change({name: None})
            case "mkdir", ():
                self._name(place, self._add(Folder()))
            case (("sync" | "syncdir"), (inode, sites)):
                node = self._find(place) if call == "syncdir" else self._file(place, inode)
                if self._ignored in sites or not node.pending:
                    return False
                node.sync()
            case _:
                raise ValueError(record)
        return True

    def after(self, model: str) -> State:
        names, kept = MODELS[model]
        return self._found(lambda: kept, lambda pending: pending if names else 0)

    def after_by_chance(self, chance: Random) -> State:
        """Return a state after a power cut now, random for each file and directory."""
        kinds = list(Kept)
        return self._found(lambda: chance.choice(kinds), lambda pending: chance.randint(0, pending))

    def _found(self, kept: Callable[[], Kept], changes: Callable[[int], int]) -> State:
        """Return the state with the given part of each file and each directory."""
        found: State = {}
        left = [("", 0)]
        while left:
            path, number = left.pop()
            node = self._nodes[number]
            if isinstance(node, File):
                found[path] = node.after(kept()) if node.pending else node.data
                continue
            if path:
                found[path] = None
                path += "/"
            entries = node.after(changes(len(node.pending))) if node.pending else node.entries
            left += [(path + name, entry) for name, entry in entries.items()]
        return found

    def _add(self, node: File | Folder) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _name(self, place: str, number: int) -> None:
        folder, name = self._above(place)
        folder.change({name: number})

    def _rename(self, old: str, new: str) -> None:
        folder, name = self._above(old)
        there, new_name = self._above(new)
        if folder is there:
            folder.change({name: None, new_name: folder.entries[name]})
            return
        there.change({new_name: folder.entries[name]})
        folder.change({name: None})

    def _above(self, place: str) -> tuple[Folder, str]:
        parent, _, name = place.rpartition("/")
        folder = self._find(parent)
        assert isinstance(folder, Folder)
        return folder, name

    def _find(self, place: str) -> File | Folder:
        node = self._nodes[0]
        for name in filter(None, place.split("/")):
            assert isinstance(node, Folder)
            node = self._nodes[node.entries[name]]
        return node

    def _file(self, place: str, inode: int) -> File:
        if inode not in self._numbers:  # it existed before the recording
            folder, name = self._above(place)
            self._numbers[inode] = folder.entries[name]
        node = self._nodes[self._numbers[inode]]
        assert isinstance(node, File)
        return node


def read_log(path: Path, start: int = 0) -> list[Record]:
    """Return the records of a log from an offset on: process, call, place, facts."""
    data, found = path.read_bytes() if path.exists() else b"", []
    while start < len(data):
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        found.append(pickle.loads(data[start + 4 : end]))
        start = end
    return found


def state_of(root: Path, names: Iterable[str]) -> State:
    """Return the files and directories below `root` in entries with the given names."""
    found: State = {}
    for name in names:
        top = root / name
        for path in (top, *sorted(top.rglob("*"))) if top.exists() else ():
            place = str(path.relative_to(root))
            if "/logs/" not in place and not is_of_commands(place):
                found[place] = None if path.is_dir() else path.read_bytes()
    return found


def is_of_commands(place: str) -> bool:
    """Return whether a place is in a home of commands or in a working copy.

    Writes of commands and git there are not acknowledged, or are synced in the sandbox, which is
    not recorded.
    """
    return "/homes/" in place or _IN_COPY.search(place) is not None


def put_state(root: Path, state: State) -> None:
    """Create a state in an empty folder."""
    for place, data in sorted(state.items()):
        # Path objects would take half of the time of thousands of states.
        path = f"{root}/{place}"
        if data is None:
            os.mkdir(path, 0o700)  # noqa: PTH102 -- so
        else:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(fd, "wb", 0) as file:  # noqa: PTH123 -- a descriptor
                file.write(data)


def _changed(found: bytes, offset: int, data: bytes | None) -> bytes:
    if data is None:
        return found[:offset] + bytes(max(0, offset - len(found)))
    return found[:offset] + bytes(max(0, offset - len(found))) + data + found[offset + len(data) :]


def _rename(entries: dict[str, int], names: dict[str, int | None]) -> None:
    for name, number in names.items():
        if number is None:
            entries.pop(name, None)
        else:
            entries[name] = number


PRELOAD: Final = Path(__file__).with_name("preload")
TOPS: Final = (".team", ".teams", "team.toml", "deep")

# A program without our code: `flock`, one write, fsync, close.
FOREIGN: Final = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, sys.stdin.buffer.read())
os.fsync(fd)
os.close(fd)
"""
_MARK: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); import sitecustomize;"
    "sitecustomize.mark(sys.argv[2], {'ran': sys.argv[3]})"
)


class Recording:
    """Records all file operations of a project from now on.

    Args:
        project: a project without running processes.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.log = project.root / "powercut.log"
        self._kills = project.root / "powercut.kills"
        project.environment |= {
            "PYTHONPATH": str(PRELOAD),
            "POWERCUT_LOG": str(self.log),
            "POWERCUT_ROOT": str(project.folder),
            "POWERCUT_KILLS": str(self._kills),
        }
        self.before: State = state_of(project.folder, TOPS)

    def mark(self, **facts: Any) -> None:
        """Record a fact at this point of the recording."""
        mark(str(self.log), facts)

    def kill_at(self, call: str, path: str, when: str = "before", **more: Any) -> None:
        """Have the next process that makes such a call kill itself there."""
        plan = {"call": call, "path": path, "when": when, **more}
        aside = self._kills.with_suffix(".new")
        aside.write_text(json.dumps(plan), encoding="utf-8")
        aside.rename(self._kills)

    def record_this_process(self) -> None:
        install(str(self.log), str(self.project.folder), str(self._kills))

    def let_live(self) -> None:
        self._kills.unlink(missing_ok=True)

    def was_killed(self) -> bool:
        return not self._kills.exists()

    def wait_for_the_kill(self, what: str) -> None:
        wait_until(self.was_killed, timeout_seconds=30, what=f"the kill: {what}")

    def command_that_marks(self, label: str) -> str:
        """Return a shell command that records that it ran."""
        return shlex.join([sys.executable, "-S", "-c", _MARK, str(PRELOAD), str(self.log), label])

    def append(self, path: Path, text: str) -> None:
        """Append to a file as a foreign program does, without a kill, and sync it."""
        argv = [sys.executable, "-c", FOREIGN, str(path)]
        environment = {**self.project.environment, "POWERCUT_KILLS": ""}
        subprocess.run(argv, env=environment, input=text.encode(), check=True, timeout=60)

    def records(self) -> list[Record]:
        return read_log(self.log)

    def check(self) -> None:
        """Check that the recording is complete: applied in full, it reproduces the disk.

        No process may be writing at that moment.
        """
        disk = Disk(self.before)
        for record in self.records():
            if record[1] == "mark":
                assert "unrecorded" not in record[2], record
            else:
                disk.apply(record)
        rebuilt = {k: v for k, v in disk.after("all").items() if not is_of_commands(k)}
        real = state_of(self.project.folder, TOPS)
        assert {*rebuilt} == {*real}, {*rebuilt} ^ {*real}
        assert rebuilt == real
