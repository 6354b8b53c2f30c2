"""Moves a branch of the person to a checked commit, together with its working tree."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final

import psutil

from teamd.copies.copy_status import name_files
from teamd.copies.source import Source, last_words, read_head
from teamd.errors import TeamError

_LOCKS: Final = ("index.lock", "HEAD.lock", "ORIG_HEAD.lock")  # of a working tree
_STALE_SECONDS: Final = 10.0  # a running git holds a ref's lock for milliseconds


def clear_ref_locks(source: Source, ref: str) -> None:
    """Remove locks that a killed git left on a ref, on our refs or on `packed-refs`.

    Raises:
        TeamError: git cannot name the folder of its refs.
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


def repair_worktree(tree: Source, tip: str, commit: str) -> None:
    """Reset a working tree to the tip, if all its differences come from a killed move to `commit`.

    Raises:
        TeamError: git fails.
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
        if ours or _is_stale(tree.folder / lock):  # a git may have started since the check
            (tree.folder / lock).unlink(missing_ok=True)
    if not ours:
        return
    for path in ours:
        if not _blob(tree, tip, path):  # the reset would keep it
            with suppress(OSError):
                (tree.folder / path).unlink()
    tree.do("reset", "--quiet", "--hard", tip)


def _is_begun(tree: Source, path: str, tip: str, commit: str) -> bool:
    """Return whether a file differs from the tip as if a move to the commit had begun."""
    file = tree.folder / path
    before, after = _blob(tree, tip, path), _blob(tree, commit, path)
    checked_out = ("cat-file", "--filters")  # converts line endings as in the person's files
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
    """Return whether a git process, such as the person's, runs in a folder and may hold locks."""
    for process in psutil.process_iter(["name", "cwd"]):
        where = process.info["cwd"]  # `None` for another user's process
        if where and process.info["name"].startswith("git") and Path(where).is_relative_to(folder):
            return True
    return False


# The queue records the end of the entry next, so a power cut must not undo the move.
_DURABLE: Final = ("-c", "core.fsync=all")


class NotLanded(TeamError):
    """A branch cannot move now; `str()` says what the person can do."""


class InTheWay(NotLanded):
    """A branch cannot move to this commit, but perhaps to another one."""


def find_tip(source: Source, branch: str) -> str:
    """Return the commit of a branch; if it does not exist, create it from HEAD.

    Raises:
        TeamError: it cannot be created.
    """
    ref = ref_of(branch)
    if target := source.ask("symbolic-ref", "--quiet", ref):
        meant = target.removeprefix("refs/heads/")
        raise TeamError(f"{branch} is another name for {meant}; set [merge] into to that")
    if found := source.find(ref):
        return found
    head = read_head(source).commit
    try:
        source.move_ref(ref, head, "0" * len(head))
    except TeamError as error:  # a branch `team` excludes `team/main`
        raise TeamError(
            f"the branch {branch} cannot be made; rename the one that is in its way, or set "
            f"[merge] into in team.toml to another: {error}"
        ) from error
    return head


def count_ahead(source: Source, branch: str) -> tuple[str, int]:
    """Return the checked out branch, and the number of commits of another branch that it lacks.

    The number is 0 if the other branch does not exist, or is the same.
    """
    current = source.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    if current in ("", branch):
        return current, 0
    return current, int(source.ask("rev-list", "--count", f"HEAD..{ref_of(branch)}") or 0)


def ref_of(branch: str) -> str:
    """Return the full ref of a branch."""
    return f"refs/heads/{branch}"


def find_tree(source: Source, branch: str) -> Source | None:
    """Return the working tree that has a branch checked out.

    Raises:
        NotLanded: the branch is being rebased there.
        TeamError: git fails. Without an answer the branch must not move, because it may be checked
            out.
    """
    for listed in source.do("worktree", "list", "--porcelain", "-z").split("\0\0"):
        first, *facts = listed.split("\0")
        folder = Path(first.removeprefix("worktree "))
        tree = replace(source, folder=Path(os.path.realpath(folder)))
        if f"branch {ref_of(branch)}" in facts and folder.is_dir():
            return tree
        if "detached" in facts and folder.is_dir() and _rebased(tree) == ref_of(branch):
            raise NotLanded(f"{branch} is being rebased in {tree.folder}; finish or abort that")
    return None


def _rebased(tree: Source) -> str:
    """Return the ref of the branch that is being rebased in a working tree; empty for none."""
    words = ("--git-path", "rebase-merge/head-name", "--git-path", "rebase-apply/head-name")
    files = (tree.folder / file for file in tree.do("rev-parse", *words).split("\n"))
    return next((file.read_text().strip() for file in files if file.is_file()), "")


def check_ready(source: Source, branch: str) -> None:
    """Check that the working tree of a branch, if any, can move along with it.

    Raises:
        NotLanded: it contains uncommitted work.
    """
    tree = find_tree(source, branch)
    if tree is not None:
        _check_clean(tree, branch)


def check_free(tree: Source, before: str, after: str) -> None:
    """Check that no ignored or untracked file exists where a commit adds a file.

    Git itself would overwrite ignored files.

    Raises:
        InTheWay: at least one exists.
    """
    gone = set(tree.differences(before, after, only="D"))
    added = tree.differences(before, after, only="A")
    found = [one for path in added for one in _in_the_way(tree.folder, path, gone)]
    if names := [*dict.fromkeys(found)]:
        raise InTheWay(
            f"it would replace files of yours in {tree.folder} that are not "
            f"committed: {name_files(names)}; move them away"
        )


def _in_the_way(folder: Path, path: str, gone: Collection[str]) -> Iterator[str]:
    """Yield the existing files at, below or above the path of a new file."""
    wanted = PurePath(path)
    for part in (*reversed(wanted.parents[:-1]), wanted):
        try:
            mode = (folder / part).lstat().st_mode
        except OSError:
            return
        if not stat.S_ISDIR(mode):
            yield from {str(part)} - set(gone)
            return
    below = (Path(above, name) for above, _, names in os.walk(folder / path) for name in names)
    yield from (one for one in (os.path.relpath(file, folder) for file in below) if one not in gone)


def repair_half_moved(source: Source, branch: str, tip: str, commit: str) -> None:
    """Restore the files that a killed move from a branch's tip to a commit left half changed.

    Raises:
        TeamError: git fails.
    """
    tree = find_tree(source, branch)
    if tree is not None and source.find(ref_of(branch)) == tip:
        repair_worktree(tree, tip, commit)


def _check_clean(tree: Source, branch: str) -> None:
    if tree.is_merging():
        raise NotLanded(f"a merge or rebase is under way in {tree.folder}; finish or abort it")
    if names := tree.list_changes():
        raise NotLanded(
            f"{branch} is checked out in {tree.folder}, where you have uncommitted work: "
            f"{name_files(names)}; commit or stash it"
        )


def fast_forward(source: Source, branch: str, tip: str, commit: str) -> None:
    """Move a branch from its tip to a commit whose first parent is the tip.

    Raises:
        NotLanded: the person's work is in the way.
        TeamError: the branch has moved meanwhile, or cannot be moved.
    """
    if (tree := find_tree(source, branch)) is None:
        source.do(*_DURABLE, "update-ref", "-m", "teamd queue", ref_of(branch), commit, tip)
        return
    _check_clean(tree, branch)
    if source.find(ref_of(branch)) != tip:
        raise TeamError(f"{branch} has moved meanwhile")
    check_free(tree, tip, commit)
    # The person's `mergeOptions` are meant for other merges; `--squash` would move only the files.
    plain = (*_DURABLE, "-c", f"branch.{branch}.mergeOptions=")
    done = tree.run(*plain, "merge", "--ff-only", "--no-overwrite-ignore", "--quiet", commit)
    if done.status != 0 and source.find(ref_of(branch)) != commit:  # git moves the branch last
        repair_half_moved(source, branch, tip, commit)  # it may have been killed
        raise NotLanded(f"git cannot update {tree.folder}: {last_words(done)}")
