"""Puts a working tree right that git was killed in while it moved along with its branch.

Git changes the files first, then its index, then the branch. A kill in between leaves some files as
they are in the new commit, cut off or missing, and a lock. What differs in any other way is the
person's, and then nothing is touched.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from teamd.copies.source import Source

_LOCKS: Final = ("index.lock", "HEAD.lock", "ORIG_HEAD.lock")  # of one working tree
_STALE_SECONDS: Final = 10.0  # a git that lives holds the lock of a ref for milliseconds


def clear_ref_locks(source: Source, ref: str) -> None:
    """Remove the locks that a killed git left on a ref, on ours, and on their list.

    Raises:
        TeamError: git cannot say where they are.
    """
    common = source.common_folder
    locks = (common / f"{ref}.lock", common / "packed-refs.lock")
    stale = [one for one in (*locks, *common.glob("refs/teamd/**/*.lock")) if _is_stale(one)]
    if stale and not _git_runs_in(source.folder):
        for lock in stale:
            lock.unlink(missing_ok=True)


def _is_stale(lock: Path) -> bool:
    try:
        return time.time() - lock.stat().st_mtime > _STALE_SECONDS
    except OSError:
        return False


def mend(tree: Source, tip: str, commit: str) -> None:
    """Set a working tree back to the tip, if all that differs was left by a move to a commit.

    Raises:
        TeamError: git cannot do it.
    """
    if _git_runs_in(tree.folder):
        return
    listed = tree.do("diff", "--name-only", "--no-renames", "-z", tip, commit)
    moved = set(filter(None, listed.split("\0")))
    ours = {path for path in moved if _is_begun(tree, path, tip, commit)}
    if not set(tree.list_changes()) <= ours:
        return
    words = (word for name in _LOCKS for word in ("--git-path", name))
    for lock in tree.do("rev-parse", *words).split("\n"):
        if ours or _is_stale(tree.folder / lock):  # a git may have begun since we looked
            (tree.folder / lock).unlink(missing_ok=True)
    if not ours:
        return
    for path in ours:
        if not _blob(tree, tip, path):  # the reset would leave it there
            with suppress(OSError):
                (tree.folder / path).unlink()
    tree.do("reset", "--quiet", "--hard", tip)


def _is_begun(tree: Source, path: str, tip: str, commit: str) -> bool:
    """Return whether a file differs from the tip as a move to the commit would have it."""
    file = tree.folder / path
    before, after = _blob(tree, tip, path), _blob(tree, commit, path)
    checked_out = ("cat-file", "--filters")  # with the ends of lines that the person's files have
    if not os.path.lexists(file):
        return bool(before)
    if file.is_symlink() or not file.is_file():
        return False
    there = file.read_bytes()
    old = tree.run(*checked_out, f"{tip}:{path}").stdout if before else None
    new = tree.run(*checked_out, f"{commit}:{path}").stdout if after else b""
    return there != old and new.startswith(there)


def _blob(tree: Source, commit: str, path: str) -> str:
    return tree.ask("rev-parse", "--verify", "--quiet", f"{commit}:{path}")


def _git_runs_in(folder: Path) -> bool:
    """Return whether a git works in a folder, the person's for one: then its lock is alive."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            where = (process / "cwd").readlink()
            named = (process / "comm").read_text().startswith("git")
            if named and where.is_relative_to(folder):
                return True
    return False
