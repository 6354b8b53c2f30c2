"""What commands may read besides what the system has: the PATH, and what settings name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from teamd.files.paths import home_folder
from teamd.sandbox.links import leads_through
from teamd.sandbox.policy import Policy
from teamd.sandbox.toolchains import changed_at, needed_by

SYSTEM_FOLDERS: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store",
    "/gnu/store",
)  # fmt: skip
_MOST_ROUNDS: Final = 10  # a link may lead to below itself, and further down at each look
_SYSTEM: Final = tuple(f"{folder}{os.sep}" for folder in SYSTEM_FOLDERS)


@dataclass(frozen=True, slots=True)
class Readable:
    """Folders and files that commands may read.

    Attributes:
        folders: as they are named, those that hold others first.
        reach: where they really are, and the system's, each with a slash behind it.
        linked: those of them that are named by way of a link.
    """

    folders: tuple[str, ...]
    reach: tuple[str, ...]
    linked: tuple[str, ...] = ()

    @classmethod
    def find(cls, policy: Policy) -> Readable:
        """Look for what a policy lets commands read."""
        folders = tuple(map(str, _find(policy)))
        real = {folder: os.path.realpath(folder) for folder in (*SYSTEM_FOLDERS, *folders)}
        reach = (f"{folder}{os.sep}" for folder in dict.fromkeys(real.values()))
        linked = tuple(folder for folder in folders if real[folder] != folder)
        return cls(folders, tuple(reach), linked)


@dataclass(slots=True)
class ReadableCache:
    """What a policy lets commands read, looked for again when a folder on the PATH has changed.

    What another command could change is not among it.
    """

    policy: Policy
    _seen: list[int] | None = None
    _found: Readable = field(init=False)

    def get(self) -> Readable:
        """Return it as it is now."""
        seen = [changed_at(folder) for folder in self.policy.path]
        if seen != self._seen:
            self._found, self._seen = Readable.find(self.policy), seen
        return self._found


def is_of_system(place: Path) -> bool:
    """Return whether it lies in one of the system's folders."""
    return f"{place}{os.sep}".startswith(_SYSTEM)


def _find(policy: Policy) -> list[Path]:
    """Return the folders on the PATH, with what their programs need, and those that are named."""
    found = dict.fromkeys(policy.readable)
    inner = _inner(policy)
    for folder in policy.path:
        # Some may not be looked into: they are passed over, as a shell does.
        if not is_of_system(folder) and os.path.isdir(folder):  # noqa: PTH112
            needed = (place for place in needed_by(folder) if _may_show(place, inner, policy))
            found.update(dict.fromkeys(needed))
    places = [place for place in found if not _is_there_anyway(place, policy)]
    for _ in range(_MOST_ROUNDS):  # what a link leads to may hold others
        if (shown := _outermost(places)) == places:
            break
        places = [place for place in shown if not _is_there_anyway(place, policy)]
    return places


def _is_there_anyway(place: Path, policy: Policy) -> bool:
    return place.is_relative_to(policy.workspace) or is_of_system(place)


def _outermost(places: Iterable[Path]) -> list[Path]:
    """Return them without those that another shows: bubblewrap takes a while for each.

    Where a link in the other leads away, it is where that leads: nothing can be mounted at a link.
    """
    found: dict[Path, str] = {}
    for place in sorted(places, key=lambda place: len(place.parts)):
        real = os.path.realpath(place)
        holders = [one for one in place.parents if one in found]
        shown = (os.path.join(found[one], place.relative_to(one)) for one in holders)  # noqa: PTH118 -- text, as `real`
        if real not in shown:
            found[Path(real) if holders else place] = real
    return list(found)


def _inner(policy: Policy) -> list[str]:
    """Return what no folder for programs holds, each with a slash behind it."""
    home = home_folder()
    person = [] if home is None else [os.path.realpath(home)]
    return [f"{one}{os.sep}" for one in (*person, "/run", policy.workspace, *policy.hidden)]


def _may_show(folder: Path, inner: Sequence[str], policy: Policy) -> bool:
    """Return whether a folder for programs holds no more than these, and is the person's alone.

    A command may lead a path through its own folders to anything.
    """
    place = os.path.realpath(folder).rstrip(os.sep) + os.sep
    return not (any(one.startswith(place) for one in inner) or leads_through(folder, policy.own))
