"""Directories: create them privately, check their owner, and sweep abandoned temporary files."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError, StrangeFile, translate_os_errors
from teamd.files.safe_open import PRIVATE_DIRECTORY, check_folder, find_fault, private_umask
from teamd.process_id import Identity

if TYPE_CHECKING:
    from teamd.files.paths import TeamPaths


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder for this process that is removed at the end.

    Folders that dead processes left are removed first.

    Args:
        parent: the folder in which it is made; other processes may use the same one.
        prefix: the start of its name.

    Raises:
        OSError: the folder cannot be made.
    """
    from tempfile import mkdtemp  # noqa: PLC0415 -- only needed here

    remove_scratch(parent, prefix)
    me = Identity.own()
    made = Path(mkdtemp(prefix=f"{prefix}{me.pid}-{me.started:.0f}-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def remove_scratch(parent: Path, prefix: str) -> None:
    """Remove the folders that killed processes of this user have left."""
    form = re.compile(rf"{re.escape(prefix)}(\d+)-(\d+)-\w+")
    for folder in parent.glob(f"{prefix}*"):
        named = form.fullmatch(folder.name)
        if named and not Identity(pid=int(named[1]), started=float(named[2])).alive:
            with suppress(OSError):  # removed concurrently
                if folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)


_ABANDONED_SECONDS: Final = 3600.0  # far more than any write takes until its rename
ASIDE: Final = ".teamd-*.tmp"  # files that are renamed when they are written


def is_directory(path: Path) -> bool:
    """Return whether the path is a folder or a link to one."""
    with translate_os_errors(path):
        return path.is_dir()


def holds_anything(path: Path) -> bool:
    """Return whether the path is a non-empty folder; a sandbox's placeholder is empty."""
    with translate_os_errors(path):
        return path.is_dir() and any(path.iterdir())


def remove_placeholder(path: Path) -> None:
    """Remove an empty folder, which a sandbox creates in place of a missing file."""
    with suppress(OSError):
        path.rmdir()


def list_files(folder: Path, pattern: str) -> list[Path]:
    """Return the sorted paths in a folder that match; empty if the folder does not exist."""
    with translate_os_errors(folder):
        check_folder(folder)
        return sorted(folder.glob(pattern))


def make_private_directory(directory: Path) -> None:
    """Make a directory, and its parents, that only its owner can access.

    The directory's name is not durable yet, even if the directory existed: see
    `make_safe_directory`.

    Raises:
        StrangeFile: a symbolic link is in its place.
        StoreError: the directory cannot be made.
    """
    with translate_os_errors(directory):
        with private_umask():
            directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        check_folder(directory)


def close_directory(directory: Path) -> None:
    """Remove the access that other users have to an existing directory."""
    with translate_os_errors(directory):
        if stat.S_IMODE(directory.stat().st_mode) != PRIVATE_DIRECTORY:
            directory.chmod(PRIVATE_DIRECTORY)


def make_safe_directory(directory: Path) -> None:
    """Make a private directory and sync its name before any file is put in it.

    An empty directory is synced again: its creator may have been killed before the sync. A
    directory with files in it has been synced.
    """
    make_private_directory(directory)
    with translate_os_errors(directory):
        if not any(directory.iterdir()):
            sync_names(directory.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory's entries; before that the name of a new file may be lost."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_names(directory: Path) -> None:
    """Sync the entries of a directory, its own name and the names of the folders above it.

    This ends at a folder of another user: we made neither that folder nor those above it.
    """
    with translate_os_errors(directory):
        for folder in (directory, *directory.parents):
            with suppress(PermissionError):  # a folder may be traversable but not readable
                sync_directory(folder)
            if folder.stat().st_uid != os.geteuid():
                return


def check_owner(path: Path) -> None:
    """Refuse a path that belongs to another user, as git refuses another user's repository.

    Raises:
        StoreError: the owner is another user; the sentence gives the remedy.
    """
    with translate_os_errors(path):
        owner = path.stat().st_uid
    if owner != os.geteuid():
        raise StoreError(
            f"{path} belongs to user {owner}, not to you (user {os.geteuid()}); "
            "run this as its owner, or use another folder"
        )


def find_strange(paths: TeamPaths) -> Iterator[StrangeFile]:
    """Yield the files of a team directory that `safe_open` would refuse, such as links."""
    with translate_os_errors(paths.root):
        kept = (*paths.folders, paths.subagents, paths.all_seen, paths.models)
        for folder in (*kept, *paths.all_jobs.glob("*/")):
            try:
                found = list_files(folder, "*")
            except StrangeFile as error:
                yield error
            else:
                yield from filter(None, map(_fault, found))
        yield from filter(None, map(_fault, paths.own_files))


def _fault(path: Path) -> StrangeFile | None:
    with suppress(FileNotFoundError):
        return None if path.is_dir() else find_fault(path, path.lstat())
    return None


def aside(paths: TeamPaths) -> list[Path]:
    """Return temporary files so old that their writers must be gone.

    Working copies are skipped: they may hold a hundred thousand files, and none of ours.
    """
    with translate_os_errors(paths.root):
        folders = (one for one in paths.root.glob("*/") if one != paths.work)
        found = chain(paths.root.glob(ASIDE), *(one.rglob(ASIDE) for one in folders))
        return list(older(found, seconds=_ABANDONED_SECONDS))


def older(found: Iterable[Path], *, seconds: float) -> Iterator[Path]:
    """Yield the paths that were not modified for this many seconds; skip paths that vanish."""
    for path in found:
        with translate_os_errors(path), suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime >= seconds:
                yield path


def sweep(paths: TeamPaths) -> list[Path]:
    """Remove abandoned temporary files; return their paths.

    Raises:
        StoreError: a file cannot be removed.
    """
    found = aside(paths)
    for path in found:
        with translate_os_errors(path):
            path.unlink(missing_ok=True)
    return found
