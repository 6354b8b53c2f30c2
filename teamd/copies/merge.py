"""Merges a teammate's commits into the person's current branch: all of them or none."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.copies import copy_status, move_branch, record
from teamd.copies.clone import hand_over, remove_tree
from teamd.copies.copy_status import WorkState, name_files
from teamd.copies.forbidden import CommitGate
from teamd.copies.move_branch import check_free
from teamd.copies.record import Copy, check_object_id
from teamd.copies.sandboxed_git import SandboxedGit, open_sandboxed_git
from teamd.copies.source import Head, Source, last_words, source_of
from teamd.errors import TeamError, translate_os_errors
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.programs import Captured
from teamd.settings import Settings

_PACK: Final = "pack"  # a file with the objects of the merge
# Protected paths keep their content from the tip. If the work changes them, a second commit without
# those changes is merged instead, so that a later merge of the work still contains them. With
# several merge bases, a change since any of them counts.
# Arguments: tip, commit, format, name, address, patterns. Standard input: the message.
_MERGE: Final = f"""
tip=$1 work=$2 known=$2 format=$3
export GIT_AUTHOR_NAME="$4" GIT_AUTHOR_EMAIL="$5" GIT_COMMITTER_NAME="$4" GIT_COMMITTER_EMAIL="$5"
shift 5
cat >/tmp/message
case $format in
  sha1) git init -q --template= ;;
  *) git init -q --template= --object-format="$format" ;;
esac
mkdir -p .git/objects/info .git/info
cp /tmp/alternates .git/objects/info/alternates
if [ -s /tmp/shallow ]; then cp /tmp/shallow .git/shallow; fi
git cat-file blob "$tip:.gitattributes" >.git/info/attributes 2>/dev/null || :
status=0
bases=$(git merge-base --all "$tip" "$work") || status=$?
if [ $status -eq 1 ]; then echo 'it has no history in common' >&2; fi
if [ $status -ne 0 ]; then exit $status; fi
base=${{bases%%[!0-9a-f]*}}
: >/tmp/left
if [ $# -gt 0 ]; then
  for one in $bases; do
    git diff-tree -r -z --name-only --no-renames "$one" "$work" -- "$@"
  done | LC_ALL=C sort -zu >/tmp/changed
  git diff-tree -r -z --name-only --no-renames "$tip" "$work" -- "$@" |
    LC_ALL=C sort -zu >/tmp/there
  LC_ALL=C comm -z -12 /tmp/changed /tmp/there >/tmp/left
fi
if [ -s /tmp/left ]; then
  GIT_INDEX_FILE=/tmp/base git read-tree "$base"
  git read-tree "$work"
  git ls-files -z -- "$@" | git update-index -z --force-remove --stdin
  GIT_INDEX_FILE=/tmp/base git ls-files -s -z -- "$@" | git update-index -z --index-info
  tree=$(git write-tree)
  work=$(git commit-tree "$tree" -p "$base" -m "$(git log -1 --format=%s "$work")")
  if git diff-tree --quiet "$base" "$work"; then echo '' ''; cat /tmp/left; exit 0; fi
fi
status=0
git merge-tree --write-tree -z --name-only --no-messages "$tip" "$work" >/tmp/merged || status=$?
if [ $status -gt 1 ]; then exit $status; fi
tree=$(head -z -n 1 /tmp/merged | tr -d '\\0')
if [ $status -eq 0 ] && [ $# -gt 0 ]; then
  git diff-tree -r -z --name-only --no-renames "$tip" "$tree" -- "$@" >/tmp/moved
  if [ -s /tmp/moved ]; then echo; cat /tmp/moved; exit 0; fi
fi
if [ $status -eq 1 ]; then echo; tail -z -n +2 /tmp/merged; exit 0; fi
made=$(git commit-tree "$tree" -p "$tip" -p "$work" -F /tmp/message)
printf '%s\\n' "$made" "^$tip" "^$known" | {copy_status.PACK} >/tmp/{_PACK}
echo "$made"
cat /tmp/left
"""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """How a merge ended.

    Attributes:
        commit: the merge commit; empty if there is none.
        conflicts: the files with conflicts.
        left_out: protected files that the work changes.
    """

    commit: str = ""
    conflicts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """A merge to make.

    Attributes:
        tip: the tip of the branch.
        commit: the commit of the teammate.
        message: the message of the merge commit.
        name: its author's name.
        email: its author's address.
        protect: patterns of paths that are taken from the tip.
    """

    tip: str
    commit: str
    message: str
    name: str
    email: str
    protect: tuple[str, ...]


class Unmergeable(TeamError):
    """Git refuses the merge for a reason other than conflicts."""


def merge_onto(paths: TeamPaths, source: Source, head: Head, wanted: MergeRequest) -> MergeOutcome:
    """Make a merge commit in the person's repository, without a ref.

    Raises:
        Unmergeable: git refuses it.
        TeamError: it cannot be made now.
    """
    folder = _folder(paths)
    remove_left(paths)
    with translate_os_errors(folder):
        folder.mkdir(mode=0o700)
    try:
        with open_sandboxed_git(paths, folder, head.origin, writable=True) as git:
            hand_over(git, head)
            made = _read(_run(git, head, wanted))
            if made.commit:
                with (git.scratch / _PACK).open("rb") as pack:
                    known = [wanted.tip, wanted.commit]
                    copy_status.take_objects(source, made.commit, known, pack.fileno())
            return made
    finally:
        remove_tree(folder)


def remove_left(paths: TeamPaths) -> None:
    """Remove the folder of a merge whose process was killed.

    Raises:
        StoreError: it cannot be removed.
    """
    with translate_os_errors(_folder(paths)):
        remove_tree(_folder(paths))


def _folder(paths: TeamPaths) -> Path:
    return paths.work / ".merging"


def pathspecs(patterns: Sequence[str]) -> list[str]:
    """Return patterns from the settings as git pathspecs."""
    return [f":(top,glob){pattern}" for pattern in patterns]


def _run(git: SandboxedGit, head: Head, wanted: MergeRequest) -> Captured:
    commits = (wanted.tip, wanted.commit, head.format)
    words = (*commits, wanted.name, wanted.email, *pathspecs(wanted.protect))
    done = git.run(_MERGE, *words, given=wanted.message.encode(errors="replace"))
    if done.status != 0:
        raise Unmergeable(f"git could not merge it: {last_words(done)}")
    return done


def _read(done: Captured) -> MergeOutcome:
    said, _, rest = done.stdout.partition(b"\n")
    names = tuple(dict.fromkeys(os.fsdecode(one) for one in rest.split(b"\0") if one))
    if said.strip():
        return MergeOutcome(check_object_id(os.fsdecode(said).strip()), left_out=names)
    return MergeOutcome(left_out=names) if said else MergeOutcome(conflicts=names)


_SHORT: Final = 12
_LOCKED_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A completed merge.

    Attributes:
        branch: the person's branch.
        commit: its tip after the merge, which is the old tip if there was nothing to merge.
        merged: the number of commits that were merged.
    """

    branch: str
    commit: str
    merged: int


def merge(
    paths: TeamPaths, name: str, settings: Settings, *, squash: bool = False, message: str = ""
) -> Merged:
    """Merge a teammate's branch into the branch that the person has checked out.

    The hooks of the person's repository run as in a merge by the person.

    Args:
        paths: the team.
        name: the name of the teammate.
        settings: the settings, which name the protected paths.
        squash: whether to make one ordinary commit instead of a merge commit.
        message: the commit message.

    Raises:
        TeamError: it failed and nothing has changed; the message says why.
    """
    with locks.locked(record.lock_file(paths, name)):
        copy = record.get(paths, name)
        source = source_of(copy)
        branch, before = _check_source(source, copy)
        with open_sandboxed_git(paths, copy.folder, copy.origin) as git:
            state = copy_status.read_state(git, copy)
            check_work(copy, state)
            copy_status.fetch_commit(git, source, state.tip, [copy.base, before])
        taken = copy_status.count_new(source, copy, state.tip, within=before)
        if taken:
            gate = CommitGate(paths, settings, source)
            gate.check(copy.name, state.tip, before)
            if not squash:
                gate.check_history(copy.name, state.tip, before, copy.base)
            tree = _foresee(source, before, state.tip)
            gate.check_changed(copy.name, source.differences(before, tree) if tree else [])
            check_free(source, before, state.tip)
            _do_merge(source, copy, (branch, before), state.tip, squash=squash, message=message)
        commit = source.do("rev-parse", "HEAD")
        if state.ahead or taken:
            source.pin(copy.address, state.tip)
            record.with_base(paths, copy, state.tip, squashed=commit if squash else "")
        return Merged(branch=branch, commit=commit, merged=0 if commit == before else taken)


def _check_source(source: Source, copy: Copy) -> tuple[str, str]:
    """Return the person's branch and its commit.

    Raises:
        TeamError: nothing can be merged into it now.
    """
    branch = source.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    if not branch:
        raise TeamError(
            f"{source.folder} is not on a branch; `git switch BRANCH`, then merge again"
        )
    if source.is_merging():
        raise TeamError(
            f"a merge or rebase is under way in {source.folder}; finish or abort it first"
        )
    if (lock := source.index_lock).exists():
        raise TeamError(
            f"{lock} exists, so git is running in {source.folder} or was killed there; remove that "
            f"file if git is not running, then `teamctl merge {copy.name}`"
        )
    if names := source.list_changes():
        raise TeamError(
            f"you have uncommitted work in {source.folder}: {name_files(names)}; "
            f"commit or stash it, then `teamctl merge {copy.name}`"
        )
    return branch, source.do("rev-parse", "HEAD")


def check_work(copy: Copy, state: WorkState) -> None:
    """Check that all of a teammate's work is committed on its branch.

    Raises:
        TeamError: it is not; the message says what to do.
    """
    if state.uncommitted:
        raise TeamError(
            f"{copy.name} has uncommitted work: {name_files(state.uncommitted)}; have it "
            f"commit that, or `teamctl diff {copy.name}` shows it"
        )
    if state.head != state.tip:
        where = f"the branch {state.branch!r}" if state.branch else "no branch"
        raise TeamError(
            f"{copy.name} is on {where}, and `merge` takes {copy.branch}; have it `git switch "
            f"{copy.branch}` and merge there what belongs to it"
        )


def _foresee(source: Source, before: str, commit: str) -> str:
    """Return the tree that a merge would make, with renames by the person applied.

    Before git 2.38 it is empty, because git cannot compute it.

    Raises:
        GitKilled: git was killed.
    """
    done = source.answer("merge-tree", "--write-tree", "-z", "--name-only", before, commit)
    return os.fsdecode(done.stdout.partition(b"\0")[0])


def _do_merge(
    source: Source, copy: Copy, at: tuple[str, str], commit: str, *, squash: bool, message: str
) -> None:
    """Merge a commit into the person's branch.

    Args:
        source: the person's repository.
        copy: the teammate's copy.
        at: the person's branch and its commit.
        commit: the commit to merge.
        squash: see `merge`.
        message: see `merge`.

    Raises:
        TeamError: it failed, and nothing has changed unless the message says otherwise.
    """
    said = message or f"Merge branch '{copy.branch}'"
    try:
        done = _squash(source, commit, message) if squash else _merge(source, commit, said)
    except BaseException as error:  # such as Ctrl-C
        _restore(source)
        if stuck := _describe_stuck(source, copy):
            raise TeamError(stuck) from error
        raise
    if done.status != 0 and not source.holds(commit, within="HEAD"):  # it may fail after the commit
        if done.status < 0:  # killed: its lock remains, and files unknown to `merge --abort`
            with suppress(TeamError):
                move_branch.repair_worktree(
                    source, at[1], _foresee(source, at[1], commit) or commit
                )
        conflicts = _conflicts(source)
        _restore(source)
        stuck = _describe_stuck(source, copy)
        raise TeamError(stuck or _explain(copy, at, done, conflicts, source.list_changes()))


def _merge(source: Source, commit: str, message: str) -> Captured:
    whole = ("--no-ff", "--no-squash", "--commit", "--no-edit")  # override `mergeOptions`
    return source.run("merge", *whole, "-m", message, commit, quiet=False)


def _squash(source: Source, commit: str, message: str) -> Captured:
    done = source.run("merge", "--ff", "--squash", commit, quiet=False)
    if done.status != 0 or source.run("diff", "--cached", "--quiet").status == 0:
        _forget_message(source)
        return done
    said = ["-m", message] if message else ["--no-edit"]
    return source.run("commit", "--quiet", *said, quiet=False)


def _conflicts(source: Source) -> list[str]:
    listed = source.run("diff", "--name-only", "--diff-filter=U", "-z")
    return [one for one in os.fsdecode(listed.stdout).split("\0") if one]


def _restore(source: Source) -> None:
    """Undo a failed merge, but keep commits that were made meanwhile.

    A failed hook, such as a formatter, may have written to merged files.
    """
    deadline = time.monotonic() + _LOCKED_SECONDS
    while (lock := source.index_lock).exists() and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)  # an editor may be reading the index
    if lock.exists():
        return
    if source.run("merge", "--abort").status != 0:
        merged = source.run("diff", "--cached", "--name-only", "--no-renames", "-z").stdout
        source.run("checkout-index", "--quiet", "--force", "-u", "-z", "--stdin", given=merged)
        source.run("reset", "--quiet", "--merge", "HEAD")
    _forget_message(source)


def _describe_stuck(source: Source, copy: Copy) -> str:
    """Return a sentence if a failed merge could not be undone; otherwise an empty string."""
    staged = source.run("diff", "--cached", "--quiet", "--ignore-submodules=dirty").status != 0
    locked = (lock := source.index_lock).exists()
    if not (locked or staged or source.is_merging()):
        return ""
    names = source.list_changes()
    found = f"the merge has changed {name_files(names)}" if names else "`git status` shows it"
    first = f"remove {lock} if git is not running, then " if locked else ""
    return (
        f"{copy.name}'s work was not merged, and git could not undo the merge in {source.folder}: "
        f"{found}; {first}`git reset --merge` undoes it"
    )


def _forget_message(source: Source) -> None:
    for name in ("SQUASH_MSG", "MERGE_MSG"):
        (source.folder / source.do("rev-parse", "--git-path", name)).unlink(missing_ok=True)


def _explain(
    copy: Copy, at: tuple[str, str], done: Captured, conflicts: list[str], left: list[str]
) -> str:
    branch, before = at
    if not conflicts:
        said = last_words(done) if done.stderr.strip() else os.fsdecode(done.stdout)
        why = " ".join(said.split())
        now = f"changes are left in {name_files(left)}" if left else "nothing has changed"
        return f"{copy.name}'s work was not merged, and {now}: {why}"
    told = f"git merge {before[:_SHORT]}, resolve the conflicts, commit"
    return (
        f"{copy.name}'s work conflicts with {branch} in {name_files(conflicts)}, and nothing "
        f'has changed; `teamctl send {copy.name} "{told}"` has it solve that'
    )
