"""Finds the git repository of a workspace that does not contain it, and explains the limits.

Commands can read the repository of a linked working tree, see git-worktree(1), but not write to it:
it also holds the hooks and settings of other folders of the person. A repository in a folder above
the workspace contains the files of other folders, so it is hidden.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.files.paths import home_folder
from teamd.sandbox.probe import WITHOUT
from teamd.sandbox.protected_paths import GIT

if TYPE_CHECKING:
    from teamd.settings.schema import ToolSettings

_LARGEST_BYTES: Final = 1 << 13
_GITDIR: Final = "gitdir: "
_OWN_COPY: Final = "spawn it with --worktree, and it commits in a copy of its own"


def linked_repository(workspace: Path) -> Path | None:
    """Return the repository of a linked working tree, if commands may see it.

    Both must name each other. Otherwise a forged `.git` file would show any repository.
    """
    own = _named_by(workspace / GIT)
    if own is None or Path(os.path.realpath(own)) != own or own.parent.name != "worktrees":
        return None  # the sandbox could not find it through a link
    repository = own.parent.parent
    back, common = (_read(own / name) for name in ("gitdir", "commondir"))
    is_mutual = back and os.path.realpath(own / back) == str(workspace / GIT)
    is_whole = common and os.path.realpath(own / common) == str(repository)
    if not (is_mutual and is_whole and (repository / "objects").is_dir()):
        return None
    holds_more = workspace.is_relative_to(repository) or _holds_home(repository)
    return None if holds_more or repository.is_relative_to(workspace) else repository


def explain_git(tools: ToolSettings, workspace: Path) -> str:
    """Say why git fails for teammates in a shared folder, and what the person can do.

    The sentence is empty if git works, and if there is no repository.
    """
    if tools.sandbox in WITHOUT:
        return ""
    root = Path(os.path.realpath(workspace))
    git = root / GIT
    if (repository := linked_repository(root)) is not None:
        return (
            f"a teammate in {root} can read its git history and not commit, since its repository "
            f"{repository} lies outside; {_OWN_COPY}"
        )
    if (own := _named_by(git)) is not None:
        return (
            f"git does not work for a teammate in {root}, since its repository {own} lies outside; "
            f"{_OWN_COPY}"
        )
    if os.path.lexists(git):
        return ""
    top = next((one for one in root.parents if os.path.lexists(one / GIT)), None)
    if top is None or _holds_home(top):  # the person may keep dotfiles in git
        return ""
    return (
        f"git does not work for a teammate in {root}, which is a folder in the repository {top}; "
        f'set [team] workspace = "{os.path.relpath(top, root)}" in team.toml'
    )


def _holds_home(folder: Path) -> bool:
    home = home_folder()
    return home is not None and Path(os.path.realpath(home)).is_relative_to(folder)


def _named_by(git: Path) -> Path | None:
    """Return the folder that a `.git` file names, see gitrepository-layout(5)."""
    said = _read(git)
    if not said.startswith(_GITDIR):
        return None
    return Path(os.path.normpath(git.parent / said.removeprefix(_GITDIR)))


def _read(path: Path) -> str:
    """Return the text of a small regular file, or an empty text for anything else."""
    with suppress(OSError, ValueError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.fsdecode(os.read(fd, _LARGEST_BYTES)).rstrip("\n")
        finally:
            os.close(fd)
    return ""
