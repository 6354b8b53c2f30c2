"""Resets a working copy to its base and keeps its work for 30 days."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.copies import copy_status, record
from teamd.copies.clone import DISCARDED, clone, now_in_refs, remove_copy, sweep_discarded
from teamd.copies.copy_status import WorkState
from teamd.copies.record import Copy, check_object_id
from teamd.copies.sandboxed_git import SandboxedGit, open_sandboxed_git
from teamd.copies.source import GitKilled, Source, head_at, last_words, source_of
from teamd.errors import StoreError, TeamError, translate_os_errors
from teamd.files import directories, locks
from teamd.files.paths import TeamPaths

# Arguments: name, tip of its branch if another commit is checked out. Fails for a nested
# repository, because no commit would contain its files, and they must not be reported as kept.
_SAVE: Final = """
export GIT_AUTHOR_NAME="$1" GIT_AUTHOR_EMAIL="$1" GIT_COMMITTER_NAME="$1" GIT_COMMITTER_EMAIL="$1"
git add -A .
git ls-files -s -z | tr '\\n\\0' '?\\n' | sed -n 's/^160000 [^\t]*\t//p' >/tmp/links
while IFS= read -r at; do
  if [ -e "$at/.git" ]; then echo "$at is a repository of its own" >&2; exit 1; fi
done </tmp/links
tree=$(git write-tree)
if [ -z "$2" ] && [ "$tree" = "$(git rev-parse 'HEAD^{tree}')" ]; then git rev-parse HEAD; exit; fi
git commit-tree "$tree" -p HEAD ${2:+-p "$2"} -m "what was discarded of $1"
"""
# Moves from the saved commit to the base by the index of the saved commit. So git does not
# overwrite or remove files that changed since, or untracked files. Exits with 75 if something has
# changed. Arguments: branch, base, saved commit, checked out commit, tip of the branch.
_RESET: Final = """
[ "$(git rev-parse HEAD)" = "$4" ] || exit 75
tip=$(git rev-parse -q --verify "refs/heads/$1" || :)
[ -z "$tip" ] || [ "$tip" = "$5" ] || exit 75
git read-tree -m -u "$3" "$2" || exit 75
rm -rf .git/rebase-merge .git/rebase-apply .git/sequencer .git/index.lock .git/HEAD.lock
rm -f .git/MERGE_HEAD .git/MERGE_MSG .git/MERGE_MODE .git/SQUASH_MSG
rm -f .git/CHERRY_PICK_HEAD .git/REVERT_HEAD .git/BISECT_LOG
cp /tmp/index .git/index.lock
mv .git/index.lock .git/index
git update-ref -m discard "refs/heads/$1" "$2" "$tip" || exit 75
git symbolic-ref -m discard HEAD "refs/heads/$1"
"""
_MOVED: Final = 75
_MOST_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The base to which a copy was reset, and where its work is kept.

    Attributes:
        base: the commit that is now checked out.
        kept: a ref in the person's repository, or a folder; empty if there was no work.
    """

    base: str
    kept: str = ""


def discard(paths: TeamPaths, name: str, *, force: bool = False) -> Discarded:
    """Reset a working copy to its base.

    Ignored files and other branches stay.

    Args:
        paths: the team.
        name: the name of the teammate, which may be at work.
        force: whether to discard work, which is then kept for 30 days.

    Raises:
        TeamError: there is work, or it could not be kept; then nothing has changed.
    """
    with locks.locked(record.lock_file(paths, name)):
        copy = record.get(paths, name)
        source = source_of(copy)
        sweep_discarded(source)
        try:
            done = _reset(paths, copy, source, force=force)
        except (GitKilled, StoreError):
            raise
        except TeamError:  # git cannot read the copy, or its work cannot be committed
            if not force:
                raise
            return _make_anew(paths, copy, source)
        if done is None:
            raise TeamError(
                f"{name} changes its working copy faster than it can be reset; "
                f"`teamctl shutdown {name}`, then discard it again"
            )
        return done


def _reset(paths: TeamPaths, copy: Copy, source: Source, *, force: bool) -> Discarded | None:
    """Reset a copy; return `None` if nothing was reset because its teammate keeps writing."""
    ref = _free_ref(copy, source)
    for _ in range(_MOST_TRIES):
        state = copy_status.look(paths, copy)
        if state.any and not force:
            raise TeamError(
                f"{copy.name} has work that nobody merged: {state.describe()}; "
                f"`teamctl discard {copy.name} --force` discards it, and keeps it for 30 days"
            )
        with open_sandboxed_git(paths, copy.folder, copy.origin, writable=True) as git:
            saved = _save(git, copy, state)
            work_there = state.any or saved != state.head
            if work_there and not force:  # written after the check
                continue
            if work_there:
                copy_status.fetch_commit(git, source, saved, [copy.base], prefix=copy_status.ASIDE)
                source.move_ref(ref, saved)
            if _go_to_base(git, copy, state, saved):
                return Discarded(base=copy.base, kept=ref if work_there else "")
    return None


def _free_ref(copy: Copy, source: Source) -> str:
    """Return an unused ref for the work that is about to be discarded."""
    ref = f"{copy.discarded}/{now_in_refs()}"
    taken = source.ask("rev-parse", "--verify", "--quiet", ref)  # by a discard in the same second
    return f"{ref}-{os.urandom(2).hex()}" if taken else ref


def _save(git: SandboxedGit, copy: Copy, state: WorkState) -> str:
    """Commit all files of a copy without a ref; return that commit, or HEAD if it has them all."""
    other = state.tip if state.tip != state.head else ""
    said = git.do(copy_status.OWN_INDEX + _SAVE, copy.name, other)
    return check_object_id(os.fsdecode(said).strip())


def _go_to_base(git: SandboxedGit, copy: Copy, state: WorkState, saved: str) -> bool:
    """Reset a copy unless it changed after it was saved; return whether it was reset."""
    words = (copy.branch, copy.base, saved, state.head, state.tip)
    done = git.run(copy_status.ASIDE + _RESET, *words)
    if done.status not in (0, _MOVED):
        raise TeamError(f"git failed in the working copy {copy.folder}: {last_words(done)}")
    return done.status == 0


def _make_anew(paths: TeamPaths, copy: Copy, source: Source) -> Discarded:
    """Move a damaged copy aside and replace it by a new clone."""
    source.check_writable(copy.base)
    head = head_at(source, copy.base)
    aside = paths.work / f".making-{copy.name}"  # after a kill, the next `clone` removes it
    clone(paths, aside, head, copy)
    directories.make_private_directory(paths.removed)
    kept: Path = paths.removed / f"{copy.name}-{now_in_refs()}-{os.urandom(2).hex()}"
    with translate_os_errors(copy.folder):
        copy.folder.rename(kept)
        aside.rename(copy.folder)
    return Discarded(base=copy.base, kept=str(kept))


def describe_unmerged(paths: TeamPaths) -> str:
    """Name the copies of a team that have unmerged work; return an empty string without any."""
    found = []
    for name in _names(paths):
        try:
            state = copy_status.look(paths, record.get(paths, name))
        except TeamError as error:
            found.append(f"{name} ({error})")
        else:
            if state.any:
                found.append(f"{name} ({state.describe()})")
    return ", ".join(found)


def keep_work(paths: TeamPaths) -> list[str]:
    """Keep unmerged work for 30 days, and remove the other refs of a team's copies.

    Returns:
        The refs to the kept work.

    Raises:
        TeamError: some work cannot be kept in a ref; the message says what to do.
    """
    kept, sources = [], {}
    for name in _names(paths):
        try:
            source = source_of(record.get(paths, name))
            ref = discard(paths, name, force=True).kept
        except TeamError as error:
            raise TeamError(f"{error}; or move {paths.copy(name)} away") from error
        if ref and not ref.startswith(DISCARDED):
            raise TeamError(f"what {name} did is in {ref}; move that away, then delete the team")
        kept.append(ref)
        sources[source.folder] = source
    for source in sources.values():
        _let_go(source, f"@{paths.own_name}")
    return [ref for ref in kept if ref]


def remove_one(paths: TeamPaths, name: str) -> str:
    """Remove the working copy of a former teammate, and keep its unmerged work for 30 days.

    Returns:
        The ref or folder of that work; empty without work or copy.

    Raises:
        TeamError: the work cannot be kept or the copy cannot be removed; the copy stays.
    """
    copy = record.find(paths, name)
    if copy is None:
        return ""
    kept = discard(paths, name, force=True).kept
    with translate_os_errors(copy.folder):
        remove_copy(paths, name, copy.origin.folder)
    return kept


def _let_go(source: Source, team: str) -> None:
    """Remove a team's refs from a repository, except for those to discarded work."""
    end = source.own_ref("", team).removeprefix("/")
    for ref in source.ask("for-each-ref", "--format=%(refname)", "refs/teamd").splitlines():
        if ref.endswith(end) and not ref.startswith(DISCARDED):
            source.remove_ref(ref)


def _names(paths: TeamPaths) -> list[str]:
    return [folder.name for folder in record.list_folders(paths)]
