"""Resets a working copy to its base, and keeps what was in it for 30 days."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.copies import record, work
from teamd.copies.clone import clone
from teamd.copies.confined import confined_git
from teamd.copies.record import check_object_id
from teamd.copies.source import now_in_refs, source_of
from teamd.errors import TeamError, translate_os_errors
from teamd.files import directories, locks

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.copies.confined import ConfinedGit
    from teamd.copies.record import Copy
    from teamd.copies.source import Source
    from teamd.copies.work import WorkState
    from teamd.files.paths import TeamPaths

# Arguments: the name, the tip of its branch, if that is another than what is checked out.
_SAVE: Final = """
if [ -f "$GIT_DIR/index" ]; then cp "$GIT_DIR/index" /tmp/index; fi
export GIT_AUTHOR_NAME="$1" GIT_AUTHOR_EMAIL="$1" GIT_COMMITTER_NAME="$1" GIT_COMMITTER_EMAIL="$1"
git add -A .
tree=$(git write-tree)
git commit-tree "$tree" -p HEAD ${2:+-p "$2"} -m "what was discarded of $1"
"""
# Arguments: the branch, its base. An empty folder may be a placeholder, and go by itself meanwhile:
# `git clean` dies of that. So the files go first, and it has failed only where something is left.
_RESET: Final = """
rm -rf .git/rebase-merge .git/rebase-apply .git/sequencer .git/index.lock .git/HEAD.lock
rm -f .git/MERGE_HEAD .git/MERGE_MSG .git/MERGE_MODE .git/SQUASH_MSG
rm -f .git/CHERRY_PICK_HEAD .git/REVERT_HEAD .git/BISECT_LOG
git symbolic-ref -m discard HEAD "refs/heads/$1"
git update-ref -m discard "refs/heads/$1" "$2"
git reset -q --hard
git ls-files -z --others --exclude-standard | xargs -0 -r rm -rf --
git clean -q -ffd || [ -z "$(git status --porcelain)" ]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The base that a copy was reset to, and where its work is kept.

    Attributes:
        base: the commit that the copy stands at.
        kept: a ref in the person's repository, or a folder; empty where there was nothing.
    """

    base: str
    kept: str = ""


def discard(paths: TeamPaths, name: str, *, force: bool = False) -> Discarded:
    """Reset a working copy to its base.

    Files that git ignores stay, and so do other branches.

    Args:
        paths: the team.
        name: the teammate's, which may be at work.
        force: whether also where there is work; it is kept.

    Raises:
        TeamError: there is work, or it could not be kept; then nothing has changed.
    """
    with locks.locked(record.lock_file(paths, name)):
        copy = record.get(paths, name)
        source = source_of(copy)
        source.sweep_discarded()
        try:
            return _reset(paths, copy, source, force=force)
        except TeamError:  # git cannot read it, or what is in it is not fit for a repository
            if not force:
                raise
            return _make_anew(paths, copy, source)


def _reset(paths: TeamPaths, copy: Copy, source: Source, *, force: bool) -> Discarded:
    state = work.look(paths, copy)
    if state.any and not force:
        raise TeamError(
            f"{copy.name} has work that nobody merged: {state.describe()}; "
            f"`teamctl discard {copy.name} --force` discards it, and keeps it for 30 days"
        )
    kept = _keep(paths, copy, source, state) if state.any else ""
    with confined_git(paths, copy.folder, copy.origin, writable=True) as git:
        git.do(_RESET, copy.branch, copy.base)
    return Discarded(base=copy.base, kept=kept)


def _keep(paths: TeamPaths, copy: Copy, source: Source, state: WorkState) -> str:
    """Commit all that is in a copy, and fetch it; return the ref that leads there."""
    ref = f"{copy.discarded}/{now_in_refs()}"
    with confined_git(paths, copy.folder, copy.origin) as git:
        commit = _save(git, copy, state)
        work.fetch_commit(git, source, commit, [copy.base], prefix=work.ASIDE)
    if source.ask("rev-parse", "--verify", "--quiet", ref):  # the second in a second
        ref = f"{ref}-{os.urandom(2).hex()}"
    source.move_ref(ref, commit)
    return ref


def _save(git: ConfinedGit, copy: Copy, state: WorkState) -> str:
    other = state.tip if state.tip != state.head else ""
    if not state.uncommitted and not other:
        return state.head
    said = git.do(work.ASIDE + _SAVE, copy.name, other)
    return check_object_id(os.fsdecode(said).strip())


def _make_anew(paths: TeamPaths, copy: Copy, source: Source) -> Discarded:
    """Put a copy aside in which git does not work any more, and make another."""
    head = source.at(copy.base)
    aside = paths.work / f".making-{copy.name}"  # removed by whoever makes one there next
    clone(paths, aside, head, copy)
    directories.make_private_directory(paths.removed)
    kept: Path = paths.removed / f"{copy.name}-{now_in_refs()}-{os.urandom(2).hex()}"
    with translate_os_errors(copy.folder):
        copy.folder.rename(kept)
        aside.rename(copy.folder)
    return Discarded(base=copy.base, kept=str(kept))
