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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.sandbox.places import PlaceState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from teamd.sandbox.places import Place

_READ_ONLY: Final = ("--ro-bind", "--ro-bind-try")
_BINDS: Final = ("--bind", *_READ_ONLY)
_COVER: Final = "--tmpfs"
_DEVICES: Final = "--dev"
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
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
        root, point = (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), p) for p in (root, point))
        return cls(device, root, point, "ro" in options.split(","))

    def at(self, path: str) -> tuple[str, str]:
        """Return what of which file system stands at a path below this mount."""
        rest = os.path.relpath(path, self.point)
        return self.device, os.path.normpath(os.path.join(self.root, rest))  # noqa: PTH118 -- text


def read_mounts(pid: int | str) -> list[Mount]:
    """Return what is mounted for a process, the latest last.

    Raises:
        OSError: it has ended.
    """
    text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return [Mount.decode(line) for line in text.splitlines()]


def check_mounts(
    argv: Sequence[str],
    workspace: Path,
    places: Iterable[Place],
    mounted: Iterable[Mount],
    own: Sequence[Mount],
) -> None:
    """See that mounts are what the options of bubblewrap say, and that what is protected is held.

    Args:
        argv: bubblewrap and its options.
        workspace: where links may come and go; no path that is mounted in it leads through one.
        places: what stays as it is.
        mounted: what is mounted in the sandbox.
        own: what is mounted for this process.

    Raises:
        OSError: something else is mounted, or not everything.
    """
    inside = f"{workspace}{os.sep}"
    sources = {
        target: source if f"{source}{os.sep}".startswith(inside) else os.path.realpath(source)
        for target, source in _sources(argv).items()
    }
    devices = {mount.device for mount in own}
    top = {mount.point: mount for mount in mounted}  # the latest hides those before it
    fixed = {argv[at + 2] for at, word in enumerate(argv) if word in _READ_ONLY}
    for mount in top.values():
        loose = mount.point in fixed and not mount.read_only
        if loose or (mount.device in devices and not _is_meant(mount, sources, own)):
            raise OSError(errno.ESTALE, f"{mount.point} has just been replaced; try again")
    for point in _covers(argv):
        if point not in top or top[point].device in devices:
            raise OSError(errno.ESTALE, f"{point} has just been replaced; try again")
    for place in places:
        held = top.get(str(place.path))
        if place.state in (PlaceState.FILE, PlaceState.FOLDER) and not (held and held.read_only):
            raise OSError(errno.ESTALE, f"{place.path} has just been replaced; try again")


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


def _is_meant(mount: Mount, sources: Mapping[str, str], own: Sequence[Mount]) -> bool:
    """Return whether a mount shows what stands at its source; so do those within a folder."""
    target = mount.point
    while target not in sources and target != os.sep:
        target = os.path.dirname(target)  # noqa: PTH120 -- text, many times
    if target not in sources:
        return False
    path = os.path.normpath(f"{sources[target]}/{os.path.relpath(mount.point, target)}")
    covering = (one for one in reversed(own) if f"{path}/".startswith(f"{one.point.rstrip('/')}/"))
    nearest = max(covering, key=lambda one: len(one.point), default=None)
    return nearest is None or nearest.at(path) == (mount.device, mount.root)
