"""The versions of files: which of them a teammate has seen, and who has written them.

A file tool compares and replaces under one lock, which all teammates of all teams in a workspace
share, so that no two changes are made to the same version. A version is a digest of the content,
so it tells whether a file has the content that was read, whatever happened to it meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final

from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths, workspaces_folder

LARGEST_BYTES: Final = 32 << 20  # held in memory, twice while it is edited
_MOST_BYTES: Final = 1 << 20  # of the record of a workspace; then its older half goes
_SPARE_LINES: Final = 100


def version_of(data: bytes) -> str:
    """Return the version of a file with this content."""
    return sha256(data).hexdigest()


def version_in(file: BufferedReader) -> str:
    """Return the version of an open file."""
    return version_of_large(file) or file_digest(file, "sha256").hexdigest()


def version_of_large(file: BinaryIO) -> str | None:
    """Return the version of a file that is too large for memory: its state on disk."""
    found = os.fstat(file.fileno())
    if found.st_size <= LARGEST_BYTES:
        return None
    state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return ".".join(map(str, state))


@dataclass(frozen=True, slots=True)
class Seen:
    """The part of a file that a teammate has seen: a version, and how many of its first lines.

    Attributes:
        lines: `None` for all of them; 0 if only lines further down were seen.
    """

    version: str
    lines: int | None


_GONE: Final = Seen("", None)


class SeenFiles:
    """The files that one conversation has seen.

    They are kept beside it: a teammate that is killed or hibernates keeps its knowledge, and one
    that starts over has read nothing. After a power cut, lost entries are read again.

    Args:
        path: the file that keeps them; `None` for a conversation that ends with its process.
        conversation: returns the name of the present conversation.
    """

    def __init__(self, path: Path | None = None, conversation: Callable[[], str] = str) -> None:
        self._path = path
        self._conversation = conversation
        self._of: str | None = None
        self._seen: dict[str, Seen] = {}

    def get(self, place: Path) -> Seen | None:
        """Return the seen lines of a file."""
        self._load()
        return self._seen.get(str(place))

    def put(self, place: Path, seen: Seen) -> None:
        """Record the seen lines of a file."""
        if self.get(place) == seen:
            return
        self._seen[str(place)] = seen
        if self._path is not None:
            directories.make_private_directory(self._path.parent)
            files.append(self._path, self._line(str(place), seen), durable=False)

    def _load(self) -> None:
        """Read the entries of an earlier process, unless it was in another conversation."""
        if self._of == (now := self._conversation()):
            return
        self._of, self._seen = now, {}
        if self._path is None:
            return
        lines = (files.read(self._path) or b"").splitlines()
        for found in map(_decode, lines):
            if found.get("of") == now:
                with suppress(KeyError):  # torn, by a power cut
                    self._seen[found["path"]] = Seen(found["version"], found["lines"])
        if len(lines) > _SPARE_LINES + 2 * len(self._seen):
            kept = [self._line(path, seen) for path, seen in self._seen.items()]
            files.replace(self._path, b"".join(kept), durable=False)

    def _line(self, path: str, seen: Seen) -> bytes:
        return _encode(of=self._of, path=path, version=seen.version, lines=seen.lines)


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The record of teammates' writes in one workspace, in a file that is also its lock.

    Attributes:
        path: outside the team directory, since several teams may work in one workspace.
    """

    path: Path

    @classmethod
    def of(cls, workspace: Path, paths: TeamPaths) -> WrittenFiles:
        """Return the record of a workspace."""
        name = sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:32]
        return cls(workspaces_folder(paths) / f"{name}.written.jsonl")

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the workspace's lock for writers; yields the record's descriptor."""
        directories.make_private_directory(self.path.parent)
        with locks.locked(self.path) as fd:
            yield fd

    def note(self, fd: int, place: Path, version: str, by: str) -> None:
        """Record the writer of a version before the write, so that a kill cannot lose the name."""
        size = os.fstat(fd).st_size
        if size > _MOST_BYTES:
            kept = files.read_descriptor(fd, size - _MOST_BYTES // 2)
            os.ftruncate(fd, 0)
            files.write_at_end(fd, kept[kept.find(b"\n") + 1 :], 0)
        line = _encode(path=str(place), version=version, by=by, time=time.time())
        files.write_at_end(fd, line)

    def find(self, fd: int, place: Path, version: str) -> tuple[str, float] | None:
        """Return who wrote a version, and when; `None` if a command or a person did."""
        for line in reversed(files.read_descriptor(fd).splitlines()):
            found = _decode(line)
            if (found.get("path"), found.get("version")) == (str(place), version):
                return str(found.get("by")), float(found.get("time", 0.0))
        return None


class UnseenVersion(Exception):
    """A change to a version that the teammate has not seen; `str()` says what to do."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that one teammate knows, among all writers in its workspace.

    Attributes:
        who: returns its address, `NAME@TEAM`.
    """

    written: WrittenFiles
    seen: SeenFiles = field(default_factory=SeenFiles)
    who: Callable[[], str] = lambda: "you"

    def note_read(self, place: Path, version: str, *, first: int, last: int, more: bool) -> None:
        """Note that lines of a file were shown.

        Args:
            place: of the file.
            version: of the file.
            first: the first line that was shown.
            last: the last one.
            more: whether others follow.
        """
        before = self.seen.get(place)
        lines = before.lines if before and before.version == version else 0
        if lines is not None and first <= lines + 1:
            lines = max(lines, last) if more else None
        self.seen.put(place, Seen(version, lines))

    @contextmanager
    def changing(self) -> Iterator[Changing]:
        """Compare and replace in the block, as the only writer in the workspace."""
        with self.written.locked() as fd:
            yield Changing(self, fd)


@dataclass(frozen=True, slots=True)
class Changing:
    """A change under the workspace's lock."""

    versions: Versions
    fd: int

    def check(self, place: Path, shown: str, version: str | None, *, whole: bool) -> None:
        """Check that the teammate knows the version that it changes.

        Args:
            place: of the file.
            shown: its name in sentences.
            version: its present version; `None` if it does not exist.
            whole: whether all of it is replaced.

        Raises:
            UnseenVersion: the teammate has not read that version, or not all of it.
        """
        seen = self.versions.seen.get(place)
        if version is None:
            self._check_gone(place, shown, seen)
            return
        if seen is None:
            raise UnseenVersion(
                f"you have not read {shown}, which {self._writer(place, version)}; "
                "look at it with read_file before you change it"
            )
        if seen.version != version:
            raise UnseenVersion(
                f"{shown} has changed since you read it: {self._writer(place, version)}; "
                "read it again with read_file, then make your change to its current content"
            )
        if whole and seen.lines is not None:
            raise UnseenVersion(
                f"you have not read all of {shown}; go on with read_file offset={seen.lines + 1}, "
                "or change a part of it with edit_file"
            )

    def _check_gone(self, place: Path, shown: str, seen: Seen | None) -> None:
        """Refuse, once, to recreate a file that another writer has removed."""
        if seen is None or seen == _GONE:
            return
        self.versions.seen.put(place, _GONE)
        raise UnseenVersion(
            f"{shown} was removed or renamed since you read it, by a command or a person; look "
            "where it is now, and if it is still wanted here, write it once more"
        )

    def begin(self, place: Path, version: str) -> None:
        """Note that the teammate is about to write a file."""
        self.versions.written.note(self.fd, place, version, self.versions.who())

    def end(self, place: Path, version: str) -> None:
        """Record that the change is done, and its version seen."""
        self.versions.seen.put(place, Seen(version, None))

    def _writer(self, place: Path, version: str) -> str:
        """Say who has written a file and when."""
        found = self.versions.written.find(self.fd, place, version)
        if found is None:
            with suppress(OSError):
                return f"a command or a person wrote at {_moment(place.stat().st_mtime)}"
            return "a command or a person wrote"
        by, when = found
        me, _, team = self.versions.who().partition("@")
        name = by.removesuffix(f"@{team}")
        if name == me:
            return f"you wrote at {_moment(when)}, in a call that was broken off or long ago"
        return f"{name} wrote at {_moment(when)}"


def _moment(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def _encode(**facts: Any) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _decode(line: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return {}
