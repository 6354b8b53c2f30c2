"""Places of a workspace that stay as they are, since they run by themselves or instruct agents.

A hook runs at the person's next commit, a setting of an editor when they open the folder. What is
there is mounted read-only, and every folder above it on itself, so that none of them can be
renamed. What is missing is kept from being made by an empty placeholder for as long as a command
runs, see `placeholders`. In a teammate's own copy only its repository is held: git may change the
rest there, and `copies.forbidden` keeps such changes out of the project. No mount can hold a
symbolic link or a repository that is just being made in its place; these are looked after when the
command has ended, see `repair`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from typing import Final

from teamd.sandbox.git_settings import named_by_settings

_MOST_LINKS: Final = 40  # as in Linux


def follow(path: Path) -> Iterator[str]:
    """Yield each link on the way of a path, and where it ends; nothing need stand there."""
    at = os.sep
    for at, is_link in _steps(path):
        if is_link:
            yield at
    yield at


def leads_through(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether anything on the way of a path is one of some folders, or lies in one.

    A way of more links than the kernel follows may: others go on where this stops to look.
    """
    inside = tuple(f"{folder}{os.sep}" for folder in folders)
    links = 0
    for step, is_link in _steps(path):
        links += is_link
        if f"{step}{os.sep}".startswith(inside) or links > _MOST_LINKS:
            return True
    return False


def _steps(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each place on the way, without a link before it, and whether it is a link itself."""
    left, at, links = [*reversed(path.parts[1:])], os.sep, 0
    while left and links <= _MOST_LINKS:
        part = left.pop()
        step = os.path.dirname(at) if part == os.pardir else os.path.join(at, part)  # noqa: PTH118, PTH120 -- text
        try:
            target = os.readlink(step)  # noqa: PTH115 -- as it is
        except OSError:
            at = step
            yield at, False
            continue
        yield step, True
        links += 1
        at = os.sep if target.startswith(os.sep) else at
        left += reversed([part for part in Path(target).parts if part != os.sep])


GIT: Final = ".git"
# Git passes over an empty folder wherever it is, but for those whose content it reads itself.
_FILES: Final = frozenset((
    ".git/commondir", ".git/info/attributes", ".git/config.worktree",
    ".git/objects/info/alternates",
))  # fmt: skip
_OF_REPOSITORY: Final = (
    "hooks", "config", "config.worktree", "info/attributes", "modules",
    "worktrees", "commondir",  # lead git to settings elsewhere
    "objects/info/alternates",  # to objects elsewhere; copies of the folder read all that is there
)  # fmt: skip
_path: Final = lru_cache(4096)(Path)  # the same ones for each command: to make one takes longer
# What tells agents what to do; a team may be there to write it.
INSTRUCTIONS: Final = ("AGENTS.md", "CLAUDE.md", "team.toml")
BUILT_IN: Final = (
    *(f"{GIT}/{name}" for name in _OF_REPOSITORY),
    *INSTRUCTIONS,
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".mcp.json",
    ".lfsconfig",  # has git-lfs fetch from anywhere, at a checkout
    # Editors and shells read these when a person opens or enters the folder.
    ".devcontainer",
    ".envrc",
    ".exrc",
    ".idea",
    ".nvim.lua",
    ".vimrc",
    ".vscode",
    ".zed",
    # Hooks of git that are kept in the folder itself.
    ".githooks",
    ".husky",
    ".pre-commit-config.yaml",
    "lefthook.yml",
)


class PathState(Enum):
    """What stands in a place."""

    FOLDER = auto()
    FILE = auto()
    LINK = auto()
    MISSING = auto()


@dataclass(frozen=True, slots=True)
class ProtectedPath:
    """A place as it is found: its path, or that of the first part of it which is not there.

    Attributes:
        above: the folders between the workspace and it, outermost first.
        target: of a link, where it leads.
        wants_file: whether a placeholder here is a file rather than a folder.
    """

    path: Path
    state: PathState
    above: tuple[Path, ...] = ()
    target: str = ""
    wants_file: bool = False


def protected_names(
    workspace: Path,
    more: Iterable[str] = (),
    *,
    allowed: Iterable[str] = (),
    made: Container[str] = (),
    may_init: bool,
    owns_tree: bool = False,
) -> dict[str, bool]:
    """Return the places of a workspace that stay as they are, relative to it.

    With each comes whether git reads a file there, which it could not do with a folder.

    Args:
        workspace: the folder.
        more: places besides the built-in ones.
        allowed: those of `INSTRUCTIONS` that may be changed.
        made: the placeholders that stand there now.
        may_init: whether a command may make a repository where there is none.
        owns_tree: whether the files of the working tree may change, see `Policy`.
    """
    names = [name for name in BUILT_IN if name not in INSTRUCTIONS or name not in set(allowed)]
    if owns_tree:
        names = [name for name in names if name.startswith(f"{GIT}/")]
    names += [os.path.normpath(name) for name in more]
    git = workspace / GIT
    is_repository = git.is_dir() and not git.is_symlink() and str(git) not in made
    if not is_repository:
        names = [name for name in names if not name.startswith(f"{GIT}/")]
        if not may_init or os.path.lexists(git):
            names.append(GIT)
    named = dict(named_by_settings(workspace, git if is_repository else None))
    return {**{name: name in _FILES for name in names}, **named}


def find_protected_paths(
    root: Path, names: Iterable[str] | Mapping[str, bool]
) -> list[ProtectedPath]:
    """Look at each of these places below a folder, and where links among them lead.

    Several below one that is missing are one place.

    Args:
        root: the folder.
        names: as of `protected_names`, or none of them a file for git.
    """
    files = names if isinstance(names, Mapping) else {}
    places = [_find(root, name, wants_file=files.get(name, False)) for name in names]
    places += [_find(root, name, wants_file=is_file) for name, is_file in _targets(root, places)]
    found = {place.path: place for place in reversed(places)}
    return sorted(found.values(), key=lambda place: len(place.path.parts))


class HeldPaths:
    """What the mounts of a command hold. A mount goes when somebody outside replaces its place."""

    def __init__(self, workspace: Path, places: Iterable[ProtectedPath]) -> None:
        found = {one.path for one in places} | {one for place in places for one in place.above}
        self._foreign = {workspace / GIT / "commondir"} - found
        self._numbers = {path: _number(path) for path in found}

    def changed(self) -> str:
        """Return a place that is open by now, or one that no mount can hold; empty for none."""
        for path, number in self._numbers.items():
            if _number(path) != number:
                return path.name
        return next((one.name for one in self._foreign if os.path.lexists(one)), "")


def _number(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_protected(path: Path, places: Iterable[ProtectedPath]) -> bool:
    """Return whether a path is such a place, or lies in one, also by another spelling."""
    # Some file systems take `.Git` for `.git`; where they do not, nobody needs the other one.
    asked = _fold(path)
    return any(asked.is_relative_to(_fold(place.path)) for place in places)


def _targets(root: Path, places: Iterable[ProtectedPath]) -> Iterator[tuple[str, bool]]:
    """Yield the links that lead on from links among the places, and where they end, below root."""
    links = [place for place in places if place.state is PathState.LINK]
    for path, is_file in ((one, link.wants_file) for link in links for one in follow(link.path)):
        if path.startswith(f"{root}{os.sep}"):
            yield os.path.relpath(path, root), is_file


def _fold(path: Path) -> Path:
    return Path(str(path).casefold())


def _find(root: Path, name: str, *, wants_file: bool) -> ProtectedPath:
    path, above, parts = str(root), list[Path](), name.split("/")
    for at, part in enumerate(parts):  # as text: for each command, many times
        if at:
            above.append(_path(path))
        path = os.path.join(path, part)  # noqa: PTH118
        last = wants_file and at == len(parts) - 1
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return ProtectedPath(_path(path), PathState.MISSING, tuple(above), wants_file=last)
        if stat.S_ISLNK(mode):
            target = os.readlink(path)  # noqa: PTH115 -- as it is
            return ProtectedPath(_path(path), PathState.LINK, tuple(above), target, wants_file=last)
        if not stat.S_ISDIR(mode):
            return ProtectedPath(_path(path), PathState.FILE, tuple(above))
    return ProtectedPath(_path(path), PathState.FOLDER, tuple(above))
