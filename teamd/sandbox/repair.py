"""Undoes what no mount can prevent, once a command has ended.

A link among the protected places may have been replaced, and a repository that was just made may
hold hooks already. What is taken away is kept in the team directory, for the person.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.errors import translate_os_errors
from teamd.files import directories, files
from teamd.sandbox.places import GIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.sandbox.placeholders import Holder

# All else makes git run something, or read settings from somewhere else.
_HARMLESS: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode"
    r"|symlinks)|extensions\.(objectformat|refstorage)|user\.(name|email)|init\.defaultbranch"
)
_SECTION: Final = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)\s*\]\s*(?:[#;].*)?")
_VARIABLE: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^\"\\#;\n]*)")
_STANDARD_HOOK: Final = ".sample"
_FOREIGN: Final = ("commondir", "config.worktree", "info/attributes", "modules")
_NEW_FILE_MODE: Final = 0o644


def repair(workspace: Path, holder: Holder, kept: Path) -> list[str]:
    """Put a workspace right again after a command.

    Args:
        workspace: the folder.
        holder: the command, with what stood there when it began.
        kept: a folder for what is taken away; made at need.

    Returns:
        What was taken away, relative to the workspace.
    """
    taken = [*_restore_links(holder, kept)]
    git = workspace / GIT
    if holder.may_init and os.path.lexists(git):
        taken += _disarm(git, kept) if git.is_dir() and not git.is_symlink() else [_take(git, kept)]
    elif git.is_dir() and not git.is_symlink() and os.path.lexists(git / "commondir"):
        # A placeholder of that name would stop git itself.
        taken.append(_take(git / "commondir", kept))
    return [os.path.relpath(path, workspace) for path in taken]


def _restore_links(holder: Holder, kept: Path) -> Iterator[Path]:
    for name, target in holder.links.items():
        path = Path(name)
        with suppress(OSError):
            if os.readlink(path) == target:  # noqa: PTH115 -- as it was read
                continue
        if os.path.lexists(path):
            yield _take(path, kept)
        with translate_os_errors(path):
            path.symlink_to(target)


def _disarm(git: Path, kept: Path) -> Iterator[Path]:
    """Take hooks and settings that run something out of a repository that was just made."""
    for hook in sorted((git / "hooks").glob("*")) if not (git / "hooks").is_symlink() else ():
        if hook.suffix != _STANDARD_HOOK or hook.is_symlink():
            yield _take(hook, kept)
    for name in ("hooks", "info"):
        if (git / name).is_symlink():
            yield _take(git / name, kept)
    for name in _FOREIGN:
        if os.path.lexists(git / name):
            yield _take(git / name, kept)
    config = git / "config"
    content = (files.read(config) or b"").decode(errors="replace") if config.is_file() else ""
    harmless = keep_harmless(content)
    if config.is_symlink() or harmless.split() != content.split():
        yield _take(config, kept)
        files.replace(config, harmless.encode(), mode=_NEW_FILE_MODE, durable=False)


def keep_harmless(content: str) -> str:
    """Return the settings of git that neither run nor include anything."""
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


def _take(path: Path, kept: Path) -> Path:
    """Move something out of the workspace; what cannot be moved to the team is removed."""
    directories.make_private_directory(kept)
    with translate_os_errors(path):
        place = kept / f"{path.name}-{os.urandom(4).hex()}"
        try:
            path.rename(place)
        except OSError:  # another disk
            path.rename(path.with_name(f".removed-{os.urandom(4).hex()}"))
    return path
