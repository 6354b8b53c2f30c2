"""What is mounted in a sandbox is what was meant, seen when every mount stands.

bubblewrap resolves each path once more when it mounts it. A command that runs in the same workspace
can put a link in the way in just that moment, to a folder of the person's, and take it away again.
So nothing begins before the kernel's own list says that each mount shows what stands at its place;
see proc(5) about mountinfo. Afterwards a link leads only to what the sandbox holds.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from teamd.sandbox.places import Place, PlaceState

_READ_ONLY: Final = ("--ro-bind", "--ro-bind-try")
_BINDS: Final = ("--bind", *_READ_ONLY)
_COVER: Final = "--tmpfs"
_DEVICES: Final = "--dev"
_REMOVED: Final = " (deleted)"  # as the kernel ends such a path; a name may end so, too
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of mountinfo.

    Attributes:
        device: of the file system, as `8:1`.
        root: what of the file system is shown.
        point: where it is shown.
    """

    device: str
    root: str
    point: str
    read_only: bool

    @classmethod
    def decode(cls, line: str) -> Mount:
        """Read a line; blanks and the like are in it in octal."""
        _, _, device, root, point, options, *_ = line.split(" ")
        return cls(device, _plain(root), _plain(point), "ro" in options.split(","))

    def at(self, path: str) -> tuple[str, str]:
        """Return what of which file system stands at a path of this mount."""
        rest = path.removeprefix(self.point).lstrip(os.sep)
        return self.device, f"{self.root.rstrip(os.sep)}/{rest}".rstrip(os.sep) or os.sep


def _plain(path: str) -> str:
    """Return a path without its octal; few have any."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path) if "\\" in path else path


def read_mounts(pid: int | str) -> tuple[Mount, ...]:
    """Return what is mounted for a process, the latest last.

    Raises:
        OSError: it has ended.
    """
    text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return decode_mounts(text)


@lru_cache(2)  # a process's own stays the same
def decode_mounts(text: str) -> tuple[Mount, ...]:
    """Read the kernel's list; it ends a line in a newline alone, whatever a path may hold."""
    return tuple(Mount.decode(line) for line in text.split("\n") if line)


class MeantMounts:
    """What is to be mounted in a sandbox.

    Args:
        argv: bubblewrap and its options.
        folders: where links may come and go; no path that is mounted in them leads through one.
        places: what stays as it is.
        own: what is mounted for this process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        folders: Iterable[Path],
        places: Iterable[Place],
        own: Sequence[Mount],
    ) -> None:
        inside = tuple(f"{folder}{os.sep}" for folder in folders)
        self._own = {mount.point: mount for mount in own}  # of two at one point the later
        self._devices = {mount.device for mount in own}
        real = cache(_real)  # many are the same
        self._sources = {
            target: source if f"{source}{os.sep}".startswith(inside) else real(source)
            for target, source in _sources(argv).items()
        }
        # While bubblewrap still mounts: whoever checks is waited for.
        self._stands = {target: self._find(path) for target, path in self._sources.items()}
        self._fixed = {argv[at + 2] for at, word in enumerate(argv) if word in _READ_ONLY}
        self._covers = _covers(argv)
        # One that is missing has just been taken away again: it is not held, and that is seen.
        self._kept = [str(one.path) for one in places if one.state is not PlaceState.LINK]

    def check(self, mounted: Iterable[Mount]) -> None:
        """See that mounts are what they are meant to be, and that what is protected is held.

        Raises:
            OSError: something else is mounted, or not everything.
        """
        top = {mount.point: mount for mount in mounted}  # the latest hides those before it
        for mount in top.values():
            loose = mount.point in self._fixed and not mount.read_only
            if loose or (mount.device in self._devices and not self._is_meant(mount)):
                raise _replaced(mount.point)
        for point in self._covers:
            if point not in top or top[point].device in self._devices:
                raise _replaced(point)
        for point in self._kept:
            if point not in top or not top[point].read_only:
                raise _replaced(point)

    def _is_meant(self, mount: Mount) -> bool:
        """Return whether a mount shows what stands at its source; so do those within a folder."""
        target = mount.point
        while target not in self._sources and target != os.sep:
            target = os.path.dirname(target)  # noqa: PTH120 -- text, many times
        if target not in self._sources:
            return False
        stands = self._stands[target]
        if target != mount.point:
            inner = os.path.relpath(mount.point, target)
            stands = self._find(os.path.normpath(f"{self._sources[target]}/{inner}"))
        return stands is None or stands == (mount.device, mount.root)

    def _find(self, path: str) -> tuple[str, str] | None:
        """Return what of which file system stands at a path, if that is known."""
        point = path
        while (mount := self._own.get(point)) is None and point != os.sep:
            point = point[: point.rfind(os.sep)] or os.sep
        return mount.at(path) if mount else None


def _real(path: str) -> str:
    """Return where a path leads, as the kernel says it: to walk it takes ten times as long.

    It is walked where the kernel does not tell: nothing stands there, or what did is just removed.
    """
    with suppress(OSError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            found = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 -- as it is
        finally:
            os.close(fd)
        if not found.endswith(_REMOVED):
            return found
    return os.path.realpath(path)


def _replaced(point: str) -> OSError:
    return OSError(errno.ESTALE, f"{point} has just been replaced; try again")


def _sources(argv: Sequence[str]) -> dict[str, str]:
    """Return what is to be mounted, by its place; what bubblewrap makes itself is not among it."""
    found = {}
    for at, word in enumerate(argv):
        if word in _BINDS:
            found[argv[at + 2]] = argv[at + 1]
        elif word == _DEVICES:  # single devices of the machine's own
            found[argv[at + 1]] = argv[at + 1]
    return found


def _covers(argv: Sequence[str]) -> list[str]:
    """Return where an empty folder is to hide what stands there."""
    return [argv[at + 1] for at, word in enumerate(argv) if word == _COVER]
