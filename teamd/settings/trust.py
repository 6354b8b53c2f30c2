"""The settings files that the person has confirmed with `teamctl trust`.

They are kept outside of every project, in the person's state folder, one file for each place. It
holds a hash that covers the place, the file behind a symbolic link and the content; and the content
itself, since what is written there later may only tighten what was confirmed.
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
        place: where it stands, with no link in its folders.
        hashes: of the contents that count, the last one first; none once it was revoked.
        content: what was confirmed last.
        time: when, in seconds since the epoch.
    """

    place: str
    hashes: tuple[str, ...]
    content: bytes
    time: float

    def covers(self, path: Path, data: bytes) -> bool:
        """Return whether the person has confirmed these bytes under that name."""
        return hash_of(path, data) in self.hashes

    def encode(self) -> bytes:
        """Return the entry as it stands in the store."""
        known = {"format": _FORMAT, "path": self.place, "hashes": self.hashes, "time": self.time}
        return json.dumps({**known, "content": self.content.decode("latin-1")}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read an entry.

        Raises:
            ValueError: it is none, or one of a later version.
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
            raise ValueError("no entry") from error


class TrustStore:
    """The files that one person has confirmed.

    Args:
        environment: names the person's state folder.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = trust_folder(environment)

    def find(self, path: Path) -> Confirmed | None:
        """Return what was confirmed of the file of that name, if anything was."""
        if self._folder is None or not os.path.lexists(self._folder):  # nothing was, ever
            return None
        return _read(self._folder / _entry_name(path))

    def confirmed(self) -> Iterator[Confirmed]:
        """Yield all that was confirmed."""
        entries = [] if self._folder is None else directories.list_files(self._folder, _ENTRIES)
        yield from filter(None, map(_read, entries))

    def confirm(self, path: Path, data: bytes, *, earlier: bytes | None = None) -> None:
        """Note that the person has confirmed these bytes under that name, and no others.

        It is on disk when this returns.

        Args:
            path: the settings file.
            data: what it says, or will say.
            earlier: bytes that go on to count, for a file that is about to be replaced: whoever
                does that may be killed before or after.

        Raises:
            StoreError: it cannot be kept; the sentence says what to do.
        """
        contents = [data] if earlier is None else [data, earlier]
        self._put(path, tuple(hash_of(path, one) for one in contents), data)

    def extend(self, path: Path, old: bytes, new: bytes) -> None:
        """Note that a file is about to be changed by the person: it is trusted as it was.

        Raises:
            StoreError: it cannot be kept.
        """
        found = self.find(path)
        if found is not None and found.covers(path, old):
            self.confirm(path, new, earlier=old)

    def forget(self, path: Path) -> bool:
        """Forget what was confirmed of a file; returns whether anything was.

        Raises:
            StoreError: that cannot be kept.
        """
        if self.find(path) is None:
            return False
        self._put(path, (), b"")  # not removed: so it is as safe from a power cut as the rest
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
                "there is no place to keep what you trust: HOME is not set; "
                "set HOME or XDG_STATE_HOME to a folder of yours"
            )
        try:
            directories.make_safe_directory(self._folder)
        except StoreError as error:
            raise _unkept(self._folder, error) from error
        directories.check_owner(self._folder)
        return self._folder


def hash_of(path: Path, data: bytes) -> str:
    """Hash a place, what a link there leads to, and content.

    The place counts besides the file itself: paths in a file are relative to where it was found, so
    a link to a trusted file elsewhere is another file.
    """
    head = json.dumps([str(_place(path)), os.path.realpath(path)]).encode()
    return hashlib.sha256(head + b"\0" + data).hexdigest()


def _place(path: Path) -> Path:
    """Return where a file stands, whatever it links to."""
    return Path(os.path.realpath(path.parent), path.name)


def _entry_name(path: Path) -> str:
    return f"{hashlib.sha256(os.fsencode(_place(path))).hexdigest()}.json"


def _read(entry: Path) -> Confirmed | None:
    """Read an entry; one that is damaged, revoked or another user's confirms nothing."""
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
        f"what you trust cannot be kept in {folder}: {why}; "
        "set XDG_STATE_HOME to a folder that you may write to"
    )
