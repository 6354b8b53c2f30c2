"""Reverts changes that no mount can prevent, after a command has ended.

A command may have replaced a link among the protected paths, or added hooks to a new repository.
Removed files are kept in the team directory for the person.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from teamd.errors import translate_os_errors
from teamd.files import directories
from teamd.files.safe_open import FOLDER
from teamd.sandbox import GIT
from teamd.sandbox.git_repository import keep_harmless
from teamd.sandbox.placeholders import SAME_FOLDER, RunningCommand

_STANDARD_HOOK: Final = ".sample"
_FOREIGN: Final = ("config.worktree", "modules", "worktrees")
_LARGEST_BYTES: Final = 1 << 20
_NEW_FILE_MODE: Final = 0o644


def repair(workspace: Path, holder: RunningCommand, kept: Path) -> list[str]:
    """Repair the protected paths of a workspace after a command.

    Other commands may run in it, so folders are opened by descriptor and no link is followed.

    Args:
        workspace: the folder.
        holder: the command, with the state of the workspace when it started.
        kept: the folder for removed files, made when needed.

    Returns:
        The removed files and folders, relative to the workspace.

    Raises:
        StoreError: neither a file nor the folder around it can be removed.
    """
    with translate_os_errors(workspace), _Folder.open(workspace, kept) as root:
        return [*_restore_links(root, workspace, holder), *_repair_git(root, holder)]


def _repair_git(root: _Folder, holder: RunningCommand) -> list[str]:
    """Remove dangerous files from a repository, or the whole repository if that fails."""
    if not root.has(GIT):
        return []
    if not holder.may_init:
        # In place of this file, a placeholder would break git itself.
        with suppress(OSError), root.inner(GIT) as git:
            return [f"{GIT}/{name}" for name in _take_commondir(git)]
        return []
    try:
        with root.inner(GIT) as git:
            return [f"{GIT}/{name}" for name in _disarm(git)]
    except OSError:  # not a folder, or a folder that cannot be changed
        return root.take(GIT)


def _restore_links(root: _Folder, workspace: Path, holder: RunningCommand) -> Iterator[str]:
    for name, target in holder.links.items():
        place = Path(name).relative_to(workspace)
        with ExitStack() as stack:
            folder = root
            for part in place.parts[:-1]:
                folder = stack.enter_context(folder.inner(part))
            if folder.link(place.name) != target:
                yield from (str(place) for _ in folder.take(place.name))
                os.symlink(target, place.name, dir_fd=folder.fd)


def _disarm(git: _Folder) -> Iterator[str]:
    """Remove hooks and settings that run programs from a new repository."""
    with git.inner("hooks", optional=True) as hooks:
        for name in hooks.names():
            if not name.endswith(_STANDARD_HOOK):
                yield from (f"hooks/{one}" for one in hooks.take(name))
    with git.inner("info", optional=True) as info:
        yield from (f"info/{one}" for one in info.take("attributes"))
    with (
        git.inner("objects", optional=True) as objects,
        objects.inner("info", optional=True) as info,
    ):
        yield from (f"objects/info/{one}" for one in info.take("alternates"))
    yield from _take_commondir(git)
    for name in _FOREIGN:
        yield from git.take(name)
    content = git.read("config")
    harmless = keep_harmless(content)
    if harmless.split() != content.split():
        yield from git.take("config")
        git.write("config", harmless)


def _take_commondir(git: _Folder) -> list[str]:
    """Remove the file `commondir`, unless its content is that of a placeholder."""
    with suppress(OSError):  # not a regular file
        if git.read("commondir").encode() == SAME_FOLDER:
            return []
    return git.take("commondir")


def _open_up(name: str, above: int) -> None:
    """Make a folder accessible to its owner, because a command may have changed the mode.

    Raises:
        OSError: it is a link or not a folder.
    """
    fd = os.open(name, FOLDER | os.O_PATH, dir_fd=above)
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        with suppress(OSError):
            os.chmod(f"/proc/self/fd/{fd}", mode | stat.S_IRWXU)  # noqa: PTH101 -- a descriptor
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class _Folder:
    """An open folder; `fd` is -1 if it does not exist."""

    fd: int
    kept: Path

    @classmethod
    @contextmanager
    def open(cls, path: Path, kept: Path) -> Iterator[_Folder]:
        fd = os.open(path, FOLDER)
        try:
            yield cls(fd, kept)
        finally:
            os.close(fd)

    @contextmanager
    def inner(self, name: str, *, optional: bool = False) -> Iterator[_Folder]:
        """Open a subfolder.

        Raises:
            OSError: it is missing, a link or not a folder.
        """
        if optional and not self.has(name):
            yield replace(self, fd=-1)
            return
        _open_up(name, self.fd)
        fd = os.open(name, FOLDER, dir_fd=self.fd)
        try:
            yield replace(self, fd=fd)
        finally:
            os.close(fd)

    def has(self, name: str) -> bool:
        return name in self.names()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.fd)) if self.fd >= 0 else []  # noqa: PTH208 -- a descriptor

    def link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.fd)
        except OSError:
            return None

    def take(self, name: str) -> list[str]:
        """Move an entry to `kept`; return its name, or an empty list if it is missing."""
        if not self.has(name):
            return []
        os.fchmod(self.fd, stat.S_IMODE(os.fstat(self.fd).st_mode) | stat.S_IRWXU)
        aside = f"{name}-{os.urandom(4).hex()}"
        directories.make_private_directory(self.kept)
        try:
            os.rename(name, self.kept / aside, src_dir_fd=self.fd)
        except OSError:  # `kept` is on another disk, or the entry is a read-only folder
            os.rename(name, f".removed-{aside}", src_dir_fd=self.fd, dst_dir_fd=self.fd)
        return [name]

    def read(self, name: str) -> str:
        """Return the content of a file; empty if it is missing.

        Raises:
            OSError: it is a link, not a regular file, or too large.
        """
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd)
        except FileNotFoundError:
            return ""
        with open(fd, "rb") as file:  # noqa: PTH123 -- a descriptor
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is no file", name)
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise OSError(errno.EFBIG, "it is too large", name)
        return content.decode(errors="replace")

    def write(self, name: str, content: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        fd = os.open(name, flags, _NEW_FILE_MODE, dir_fd=self.fd)
        try:
            os.write(fd, content.encode())
        finally:
            os.close(fd)
