"""The protected paths of a workspace: files that run automatically or instruct agents.

A git hook runs at the person's next commit; an editor setting applies when they open the folder. An
existing path is mounted read-only, and every folder above it on itself, so that no command can
rename them. A missing path gets an empty placeholder while commands run, see `placeholders`. In a
teammate's own copy only the repository is protected: git may change the other files there, and
`copies.forbidden` keeps such changes out of the project. No mount can protect a symbolic link, or a
repository that a command is just creating. `repair` checks both when the command has ended.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from teamd.sandbox import GIT
from teamd.sandbox.git_repository import named_by_settings

_MOST_LINKS: Final = 40  # as in Linux


def follow(path: Path) -> Iterator[str]:
    """Yield each link on a path, and its final target, which may be missing."""
    at = os.sep
    for at, is_link in _steps(path):
        if is_link:
            yield at
    yield at


def leads_through(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether resolving a path passes through one of some folders; path_resolution(7).

    A path with more links than the kernel follows counts as if it did.
    """
    inside = tuple(f"{folder}{os.sep}" for folder in folders)
    links = 0
    for step, is_link in _steps(path):
        links += is_link
        if f"{step}{os.sep}".startswith(inside) or links > _MOST_LINKS:
            return True
    return False


def _steps(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each step of resolving a path, and whether that step is a link."""
    left, at, links = [*reversed(path.parts[1:])], os.sep, 0
    while left and links <= _MOST_LINKS:
        part = left.pop()
        step = os.path.dirname(at) if part == os.pardir else os.path.join(at, part)  # noqa: PTH118, PTH120 -- faster as text
        try:
            target = os.readlink(step)  # noqa: PTH115 -- keeps the text
        except OSError:
            at = step
            yield at, False
            continue
        yield step, True
        links += 1
        at = os.sep if target.startswith(os.sep) else at
        left += reversed([part for part in Path(target).parts if part != os.sep])


# Git ignores an empty folder in place of a file, except for these files.
_FILES: Final = frozenset((
    ".git/commondir", ".git/info/attributes", ".git/config.worktree",
    ".git/objects/info/alternates",
))  # fmt: skip
_OF_REPOSITORY: Final = (
    "hooks", "config", "config.worktree", "info/attributes", "modules",
    "worktrees", "commondir",  # lead git to other settings
    "remotes", "branches",  # name the address of a remote that the settings name without one
    "objects/info/alternates",  # to other objects; copies of the folder read all files there
)  # fmt: skip
# Instructions for agents; a team may exist to write them.
INSTRUCTIONS: Final = ("AGENTS.md", "CLAUDE.md", "team.toml")
BUILT_IN: Final = (
    *(f"{GIT}/{name}" for name in _OF_REPOSITORY),
    *INSTRUCTIONS,
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".mcp.json",
    ".lfsconfig",  # can make git-lfs fetch from any server at a checkout
    # Editors and shells read these when a person opens or enters the folder.
    ".devcontainer",
    ".envrc",
    ".exrc",
    ".idea",
    ".nvim.lua",
    ".vimrc",
    ".vscode",
    ".zed",
    # Hooks of git that are kept in the project folder.
    ".githooks",
    ".husky",
    ".pre-commit-config.yaml",
    "lefthook.yml",
)


class PathState(Enum):
    """The kind of file at a path."""

    FOLDER = auto()
    FILE = auto()
    LINK = auto()
    MISSING = auto()


@dataclass(frozen=True, slots=True)
class ProtectedPath:
    """A protected path as found; if it is missing, its first missing part.

    Attributes:
        above: the folders between the workspace and the path, outermost first.
        target: the target of a link.
        wants_file: whether its placeholder is a file rather than a folder.
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
    """Return the protected paths, relative to the workspace.

    The value says whether git reads a file there and would fail at a folder.

    Args:
        workspace: the folder.
        more: paths besides the built-in ones.
        allowed: paths of `INSTRUCTIONS` that may be changed.
        made: the existing placeholders.
        may_init: whether a command may create a repository.
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
    """Find the present state of each path below a folder, and of the targets of its links.

    Several paths below the same missing folder become one path.

    Args:
        root: the folder.
        names: the result of `protected_names`, or plain names.
    """
    files = names if isinstance(names, Mapping) else {}
    places = [_find(root, name, wants_file=files.get(name, False)) for name in names]
    places += [_find(root, name, wants_file=is_file) for name, is_file in _targets(root, places)]
    found = {place.path: place for place in reversed(places)}
    return [found[path] for path in sorted(found)]  # a folder is before those in it


def watch_paths(workspace: Path, places: Iterable[ProtectedPath]) -> Callable[[], str]:
    """Return a function that names a path which is no longer protected, or returns an empty text.

    A mount disappears if a process outside of the sandbox replaces its path.
    """
    numbers = {path: _number(path) for place in places for path in (place.path, *place.above)}
    commondir = workspace / GIT / "commondir"

    def find_changed() -> str:
        changed = [path.name for path, number in numbers.items() if _number(path) != number]
        if commondir not in numbers and os.path.lexists(commondir):
            changed.append(commondir.name)
        return changed[0] if changed else ""

    return find_changed


def _number(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_protected(path: Path, places: Iterable[ProtectedPath]) -> bool:
    """Return whether a path is protected or inside a protected one, ignoring case."""
    # On some file systems `.Git` is `.git`; on others no project needs both spellings.
    asked = _fold(path)
    return any(asked.is_relative_to(_fold(place.path)) for place in places)


def _targets(root: Path, places: Iterable[ProtectedPath]) -> Iterator[tuple[str, bool]]:
    """Yield the links that each protected link leads to, and its final target, below root."""
    links = [place for place in places if place.state is PathState.LINK]
    for path, is_file in ((one, link.wants_file) for link in links for one in follow(link.path)):
        if path.startswith(f"{root}{os.sep}"):
            yield os.path.relpath(path, root), is_file


def _fold(path: Path) -> Path:
    return Path(str(path).casefold())


def _find(root: Path, name: str, *, wants_file: bool) -> ProtectedPath:
    path, above, parts = root, list[Path](), name.split("/")
    for at, part in enumerate(parts):
        if at:
            above.append(path)
        path /= part
        last = wants_file and at == len(parts) - 1
        try:
            mode = path.lstat().st_mode
        except OSError:
            return ProtectedPath(path, PathState.MISSING, tuple(above), wants_file=last)
        if stat.S_ISLNK(mode):
            target = os.readlink(path)  # noqa: PTH115 -- keeps the text
            return ProtectedPath(path, PathState.LINK, tuple(above), target, wants_file=last)
        if not stat.S_ISDIR(mode):
            return ProtectedPath(path, PathState.FILE, tuple(above))
    return ProtectedPath(path, PathState.FOLDER, tuple(above))
