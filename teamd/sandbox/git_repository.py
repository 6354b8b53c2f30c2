"""Finds the repository of a workspace and the paths that git's settings name, see git-config(1).

Commands can read the repository of a linked working tree, see git-worktree(1), but not write to it:
it also holds the hooks and settings of other folders of the person. A repository in a folder above
the workspace contains the files of other folders, so it is hidden.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.files.paths import home_folder
from teamd.sandbox import GIT, WITHOUT

if TYPE_CHECKING:
    from teamd.settings.schema import ToolSettings

# Other settings can make git run programs or read settings from other files.
_HARMLESS: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode"
    r"|symlinks)|extensions\.(objectformat|refstorage)|user\.(name|email)|init\.defaultbranch"
)
_SECTION: Final = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)\s*\]\s*(?:[#;].*)?")
_VARIABLE: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^\"\\#;\n]*)")
_ANY_SECTION: Final = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\]')
_ANY_VALUE: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)")
_CONTINUED: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")  # not after an escaped backslash
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b"}
_MOST_FILES: Final = 20  # because files can include each other
_LARGEST_BYTES: Final = 1 << 20


def named_by_settings(workspace: Path, git: Path | None) -> Iterator[tuple[str, bool]]:
    """Yield the hook folders and settings files in a workspace that git's settings name.

    Args:
        workspace: the folder; the yielded paths are relative to it.
        git: its repository; without one, only the person's own settings are read.

    Yields:
        A path, and whether git reads a file there.
    """
    own = () if git is None else (git / "config", git / "config.worktree")
    sources = [*own, *_of_person()]
    for file in sources:  # the loop adds included files
        for kind, value in _paths_in(_read(file)):
            # Hook paths are relative to the working tree, included files to the including one.
            base = workspace if kind == "hooks" else file.parent
            found = Path(os.path.normpath(base / os.path.expanduser(value)))  # noqa: PTH111
            if kind == "file" and found not in sources and len(sources) < _MOST_FILES:
                sources.append(found)
            if found != workspace and found.is_relative_to(workspace):
                yield str(found.relative_to(workspace)), kind == "file"


def _of_person() -> Iterator[Path]:
    """Yield the files with settings for all repositories, see FILES in git-config(1)."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    for name in ("/etc/gitconfig", "~/.gitconfig", f"{folder}/git/config", named):
        if name:
            yield Path(os.path.expanduser(name))  # noqa: PTH111 -- without a home


def keep_harmless(content: str) -> str:
    """Return only the settings that neither run a program nor include a file."""
    kept, section = [], ""
    for line in content.splitlines():
        if found := _SECTION.fullmatch(line):
            section = found.group(1).lower()
            kept.append(f"[{section}]")
        elif (found := _VARIABLE.fullmatch(line)) and _HARMLESS.fullmatch(
            f"{section}.{found.group(1).lower()}"
        ):
            kept.append(f"\t{found.group(1)} = {found.group(2).strip()}")
        elif line.strip():
            section = section if line.strip().startswith(("#", ";")) or found else ""
    return "".join(f"{line}\n" for line in kept)


def _paths_in(content: str) -> Iterator[tuple[str, str]]:
    """Yield the paths in settings, each with its kind: `hooks` or `file`."""
    section = ""
    for line in _CONTINUED.sub(r"\1", content.replace("\r\n", "\n")).split("\n"):
        rest = line
        if found := _ANY_SECTION.match(line):
            section, rest = found.group(1).lower(), line[found.end() :]
        if not (found := _ANY_VALUE.match(rest)):
            continue
        name, value = found.group(1).lower(), _plain(found.group(2))
        if value and (section, name) == ("core", "hookspath"):
            yield "hooks", value
        elif value and section in ("include", "includeif") and name == "path":
            yield "file", value


def _plain(value: str) -> str:
    """Return a value without its comment, quotes and escapes."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"?|((?:[^"\\#;]|\\.)+)|[#;].*', value.strip())
    joined = "".join(map("".join, parts)).strip()
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), joined)


def _read(path: Path, flags: int = 0) -> str:
    """Return the start of a regular file, or an empty text for anything else."""
    with suppress(OSError, ValueError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
        with open(fd, "rb") as file:  # noqa: PTH123 -- a descriptor
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.fsdecode(file.read(_LARGEST_BYTES))
    return ""


def _read_own(path: Path) -> str:
    """Return the line in a file of git, which must not be a link."""
    return _read(path, os.O_NOFOLLOW).rstrip("\n")


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
    back, common = (_read_own(own / name) for name in ("gitdir", "commondir"))
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
    said = _read_own(git)
    if not said.startswith(_GITDIR):
        return None
    return Path(os.path.normpath(git.parent / said.removeprefix(_GITDIR)))
