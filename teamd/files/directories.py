"""Directories: made private and safe, never another user's, and swept of what a kill left there.

That is files that were written aside and never renamed.
"""

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
    """Make a folder of this process that is removed at the end; those of dead ones go first.

    Args:
        parent: where it is made; others may make theirs there, too.
        prefix: how its name begins.

    Raises:
        OSError: it cannot be made.
    """
    from tempfile import mkdtemp  # noqa: PLC0415 -- only where one is made

    remove_scratch(parent, prefix)
    me = Identity.own()
    made = Path(mkdtemp(prefix=f"{prefix}{me.pid}-{me.started:.0f}-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def remove_scratch(parent: Path, prefix: str) -> None:
    """Remove the folders that this user's killed processes have left."""
    form = re.compile(rf"{re.escape(prefix)}(\d+)-(\d+)-\w+")
    for folder in parent.glob(f"{prefix}*"):
        named = form.fullmatch(folder.name)
        if named and not Identity(pid=int(named[1]), started=float(named[2])).alive:
            with suppress(OSError):  # gone meanwhile
                if folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)


_ABANDONED_SECONDS: Final = 3600.0  # nobody takes so long from writing aside to renaming
_ASIDE: Final = ".teamd-*.tmp"


def is_directory(path: Path) -> bool:
    """Return whether it is a folder, or a link to one."""
    with translate_os_errors(path):
        return path.is_dir()


def holds_anything(path: Path) -> bool:
    """Return whether it is a folder with something in it; a sandbox's placeholder is empty."""
    with translate_os_errors(path):
        return path.is_dir() and any(path.iterdir())


def remove_placeholder(path: Path) -> None:
    """Remove an empty folder, which a sandbox puts in the place of a file that is missing."""
    with suppress(OSError):
        path.rmdir()


def list_files(folder: Path, pattern: str) -> list[Path]:
    """Return what matches in a folder, sorted; nothing where there is none."""
    with translate_os_errors(folder):
        check_folder(folder)
        return sorted(folder.glob(pattern))


def make_private_directory(directory: Path) -> None:
    """Make a directory that only its owner can look into, with its parents, unless it is there.

    Whether it was made now or found half made, its name is not safe yet: see `make_safe_directory`.

    Raises:
        StrangeFile: a symbolic link stands in its place.
        StoreError: it cannot be made.
    """
    with translate_os_errors(directory):
        with private_umask():
            directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        check_folder(directory)


def close_directory(directory: Path) -> None:
    """Take from others what they may do in a directory that is there already."""
    with translate_os_errors(directory):
        if stat.S_IMODE(directory.stat().st_mode) != PRIVATE_DIRECTORY:
            directory.chmod(PRIVATE_DIRECTORY)


def make_safe_directory(directory: Path) -> None:
    """Make a private directory, whose name is on disk before anything stands in it.

    Whoever made it may have been killed before its name was safe; a directory with something in it
    has been through here.
    """
    make_private_directory(directory)
    with translate_os_errors(directory):
        if not any(directory.iterdir()):
            sync_names(directory.parent)


def sync_directory(directory: Path) -> None:
    """Bring a directory's entries to the disk: a file's name is not safe before."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_names(directory: Path) -> None:
    """Make the entries of a directory safe, and its own name and those of the folders above it.

    A folder of another user was not made by us, and those above it were not either.
    """
    with translate_os_errors(directory):
        for folder in (directory, *directory.parents):
            with suppress(PermissionError):  # one may go through a folder that one may not list
                sync_directory(folder)
            if folder.stat().st_uid != os.geteuid():
                return


def check_owner(path: Path) -> None:
    """Refuse what belongs to another user, as git refuses another user's repository.

    Raises:
        StoreError: it does; the sentence names the remedy.
    """
    with translate_os_errors(path):
        owner = path.stat().st_uid
    if owner != os.geteuid():
        raise StoreError(
            f"{path} belongs to user {owner}, not to you (user {os.geteuid()}); "
            "run this as its owner, or use another folder"
        )


def find_strange(paths: TeamPaths) -> Iterator[StrangeFile]:
    """Yield what is in a team directory and would be refused where it is opened: links, say."""
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
    """Files that were written aside so long ago that whoever wrote them is gone.

    Working copies may hold a hundred thousand files, none of which was written so.
    """
    with translate_os_errors(paths.root):
        folders = (one for one in paths.root.glob("*/") if one != paths.work)
        found = chain(paths.root.glob(_ASIDE), *(one.rglob(_ASIDE) for one in folders))
        return list(older(found, seconds=_ABANDONED_SECONDS))


def older(found: Iterable[Path], *, seconds: float) -> Iterator[Path]:
    """Those that nobody has written to for so long; what goes meanwhile is passed over."""
    for path in found:
        with translate_os_errors(path), suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime >= seconds:
                yield path


def sweep(paths: TeamPaths) -> list[Path]:
    """Remove what was written aside and left; returns what that was.

    Raises:
        StoreError: something cannot be removed.
    """
    found = aside(paths)
    for path in found:
        with translate_os_errors(path):
            path.unlink(missing_ok=True)
    return found
