"""The settings files that the person has confirmed with `teamctl trust`.

They are recorded outside of every project, in the person's state folder, with one entry for each
path. An entry contains a hash of the path, the target of a symbolic link and the content. It also
contains the content itself, because later, unconfirmed content may only tighten it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from teamd.errors import StoreError
from teamd.files import directories, files
from teamd.files.paths import trust_folder

_FORMAT: Final = 1
_ENTRIES: Final = "*.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """A settings file as the person has confirmed it.

    Attributes:
        place: its path, without links in the folders.
        hashes: the hashes of the contents that count, the last one first; empty after `forget`.
        content: the content that was confirmed last.
        time: when it was confirmed, in seconds since the epoch.
    """

    place: str
    hashes: tuple[str, ...]
    content: bytes
    time: float

    def covers(self, path: Path, data: bytes) -> bool:
        """Return whether the person has confirmed these bytes under that name."""
        return hash_of(path, data) in self.hashes

    def encode(self) -> bytes:
        """Return the entry as the store keeps it."""
        known = {"format": _FORMAT, "path": self.place, "hashes": self.hashes, "time": self.time}
        return json.dumps({**known, "content": self.content.decode("latin-1")}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read an entry.

        Raises:
            ValueError: it is damaged, or from a later version.
        """
        try:
            found = json.loads(data)
            if found["format"] != _FORMAT:
                raise ValueError("of another version")
            return cls(
                place=str(found["path"]),
                hashes=tuple(map(str, found["hashes"])),
                content=str(found["content"]).encode("latin-1"),
                time=float(found["time"]),
            )
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError("not an entry") from error


class TrustStore:
    """The files that one person has confirmed.

    Args:
        environment: its variables name the person's state folder.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = trust_folder(environment)

    def find(self, path: Path) -> Confirmed | None:
        """Return the entry of a file, if the person has confirmed one."""
        if self._folder is None or not os.path.lexists(self._folder):
            return None
        return _read(self._folder / _entry_name(path))

    def confirmed(self) -> Iterator[Confirmed]:
        """Yield every entry."""
        entries = [] if self._folder is None else directories.list_files(self._folder, _ENTRIES)
        yield from filter(None, map(_read, entries))

    def confirm(self, path: Path, data: bytes, *, earlier: bytes | None = None) -> None:
        """Record that the person has confirmed these bytes of a file, and no others.

        The entry is on disk when this returns.

        Args:
            path: the settings file.
            data: its content, now or soon.
            earlier: another content that still counts, if the file is about to be replaced, because
                the process may be killed before or after that.

        Raises:
            StoreError: the entry cannot be written; the message has a remedy.
        """
        contents = [data] if earlier is None else [data, earlier]
        self._put(path, tuple(hash_of(path, one) for one in contents), data)

    def extend(self, path: Path, old: bytes, new: bytes) -> None:
        """Trust the new content of a file that teamctl changes, if the old one is trusted.

        Raises:
            StoreError: the entry cannot be written.
        """
        found = self.find(path)
        if found is not None and found.covers(path, old):
            self.confirm(path, new, earlier=old)

    def forget(self, path: Path) -> bool:
        """Revoke a file; return whether it was confirmed.

        Raises:
            StoreError: the entry cannot be written.
        """
        if self.find(path) is None:
            return False
        self._put(path, (), b"")  # not removed: a written entry is synced to disk
        return True

    def _put(self, path: Path, hashes: tuple[str, ...], content: bytes) -> None:
        place = str(_place(path))
        entry = Confirmed(place=place, hashes=hashes, content=content, time=time.time())
        folder = self._made()
        try:
            files.replace(folder / _entry_name(path), entry.encode())
        except StoreError as error:
            raise _unkept(folder, error) from error

    def _made(self) -> Path:
        if self._folder is None:
            raise StoreError(
                "there is no folder to record what you trust: HOME is not set; "
                "set HOME or XDG_STATE_HOME to a folder of yours"
            )
        try:
            directories.make_safe_directory(self._folder)
        except StoreError as error:
            raise _unkept(self._folder, error) from error
        directories.check_owner(self._folder)
        return self._folder


def hash_of(path: Path, data: bytes) -> str:
    """Return a hash of a path, the target of a link there, and the content.

    The path counts besides the target: paths in the file are relative to its folder, so a link to a
    trusted file elsewhere is another file.
    """
    head = json.dumps([str(_place(path)), os.path.realpath(path)]).encode()
    return hashlib.sha256(head + b"\0" + data).hexdigest()


def _place(path: Path) -> Path:
    """Return the path of a file without links in its folders; the file itself may be a link."""
    return Path(os.path.realpath(path.parent), path.name)


def _entry_name(path: Path) -> str:
    return f"{hashlib.sha256(os.fsencode(_place(path))).hexdigest()}.json"


def _read(entry: Path) -> Confirmed | None:
    """Return an entry; `None` if it is damaged, revoked or belongs to another user."""
    try:
        with files.opened(entry) as fd:
            if fd is None or os.fstat(fd).st_uid != os.geteuid():
                return None
            found = Confirmed.decode(files.read_descriptor(fd))
            return found if found.hashes else None
    except (StoreError, ValueError):
        return None


def _unkept(folder: Path, error: StoreError) -> StoreError:
    why = getattr(error.__cause__, "strerror", None) or error
    return StoreError(
        f"what you trust cannot be recorded in {folder}: {why}; "
        "set XDG_STATE_HOME to a folder that you may write to"
    )
