"""Moves a branch of the person's to a commit that was checked, with the files where it is out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.copies import mending
from teamd.copies.source import last_words
from teamd.copies.work import name_files
from teamd.errors import TeamError

if TYPE_CHECKING:
    from teamd.copies.source import Source

# The end of an entry is written down next: a power cut may not take the branch back.
_DURABLE: Final = ("-c", "core.fsync=all")


class NotLanded(TeamError):
    """A branch that does not move now; `str()` says what the person can do."""


def find_tip(source: Source, branch: str) -> str:
    """Return the commit of a branch, which is made from HEAD where there is none.

    Raises:
        TeamError: it cannot be made.
    """
    ref = ref_of(branch)
    if found := source.find(ref):
        return found
    head = source.read_head().commit
    try:
        source.move_ref(ref, head, "0" * len(head))
    except TeamError as error:  # a branch `team` leaves no room for `team/main`, for one
        raise TeamError(
            f"the branch {branch} cannot be made; rename the one that is in its way, or set "
            f"[merge] into in team.toml to another: {error}"
        ) from error
    return head


def ref_of(branch: str) -> str:
    """Return the whole name of a branch."""
    return f"refs/heads/{branch}"


def find_tree(source: Source, branch: str) -> Source | None:
    """Return the working tree that has a branch checked out."""
    tree = ""
    for line in source.ask("worktree", "list", "--porcelain").splitlines():
        key, _, value = line.partition(" ")
        if key == "worktree":
            tree = value
        elif key == "branch" and value == ref_of(branch) and Path(tree).is_dir():
            return replace(source, folder=Path(os.path.realpath(tree)))
    return None


def check_ready(source: Source, branch: str) -> None:
    """See that the working tree that has a branch checked out can move along with it.

    Raises:
        NotLanded: there is work of the person's in it.
    """
    tree = find_tree(source, branch)
    if tree is not None:
        _check_clean(tree, branch)


def mend(source: Source, branch: str, tip: str, commit: str) -> None:
    """Put the files right that a kill left half moved from a branch's tip to a commit.

    Raises:
        TeamError: git cannot do it.
    """
    tree = find_tree(source, branch)
    if tree is not None and source.find(ref_of(branch)) == tip:
        mending.mend(tree, tip, commit)


def _check_clean(tree: Source, branch: str) -> None:
    if tree.is_merging():
        raise NotLanded(f"a merge or rebase is under way in {tree.folder}; end it")
    if names := tree.list_changes():
        raise NotLanded(
            f"{branch} is checked out in {tree.folder}, where you have uncommitted work: "
            f"{name_files(names)}; commit or stash it"
        )


def land(source: Source, branch: str, tip: str, commit: str) -> None:
    """Move a branch from its tip to a commit that has that as its first parent.

    Raises:
        NotLanded: the person has work in the way.
        TeamError: it is somewhere else by now, or cannot be moved.
    """
    if (tree := find_tree(source, branch)) is None:
        source.do(*_DURABLE, "update-ref", "-m", "teamd queue", ref_of(branch), commit, tip)
        return
    _check_clean(tree, branch)
    if source.find(ref_of(branch)) != tip:
        raise TeamError(f"{branch} has moved meanwhile")
    done = tree.run(*_DURABLE, "merge", "--ff-only", "--quiet", commit)
    if done.status != 0:
        raise NotLanded(f"git cannot update {tree.folder}: {last_words(done)}")
