"""Merges a teammate's commit onto the tip of a branch, in a sandbox and in a repository made there.

It has no hooks, and no settings but ours: of merge drivers and filters that attributes name there
are those alone which git itself has. No files are checked out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.copies import work
from teamd.copies.clone import hand_over, remove_tree
from teamd.copies.confined import ConfinedGit, confined_git
from teamd.copies.head import Head
from teamd.copies.record import check_object_id
from teamd.copies.source import Source, last_words
from teamd.errors import TeamError, translate_os_errors
from teamd.files.paths import TeamPaths
from teamd.programs import Captured

_PACK: Final = "pack"  # a file with the objects of the merge
# What is protected comes from the tip: where the work changes it, it is another commit that is
# merged, without that change, so that a later merge of the work still has it. Where the work and
# the branch parted more than once, a change since any of these places counts.
# Arguments: tip, commit, format, name, address, patterns. On standard input: the message.
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
printf '%s\\n' "$made" "^$tip" "^$known" | {work.PACK} >/tmp/{_PACK}
echo "$made"
cat /tmp/left
"""


@dataclass(frozen=True, slots=True)
class Onto:
    """How a merge ended.

    Attributes:
        commit: that was made; empty for none.
        conflicts: the files in which there are some.
        left_out: protected files that the work changes.
    """

    commit: str = ""
    conflicts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A merge that is to be made.

    Attributes:
        tip: of the branch.
        commit: the teammate's.
        message: of the merge commit.
        name: of its author.
        email: of its author.
        protect: patterns of paths that are taken from the tip.
    """

    tip: str
    commit: str
    message: str
    name: str
    email: str
    protect: tuple[str, ...]


class Unmergeable(TeamError):
    """Git can make no merge of it, whatever is in its files."""


def merge_onto(paths: TeamPaths, source: Source, head: Head, wanted: Wanted) -> Onto:
    """Make a merge commit in the person's repository, to which no ref leads yet.

    Raises:
        Unmergeable: git refuses it.
        TeamError: it cannot be done now.
    """
    folder = _folder(paths)
    remove_left(paths)
    with translate_os_errors(folder):
        folder.mkdir(mode=0o700)
    try:
        with confined_git(paths, folder, head.origin, writable=True) as git:
            hand_over(git, head)
            made = _read(_run(git, head, wanted))
            if made.commit:
                with (git.scratch / _PACK).open("rb") as pack:
                    known = [wanted.tip, wanted.commit]
                    work.take_objects(source, made.commit, known, pack.fileno())
            return made
    finally:
        remove_tree(folder)


def remove_left(paths: TeamPaths) -> None:
    """Remove what is left of a merge whose process was killed.

    Raises:
        StoreError: that is not possible.
    """
    with translate_os_errors(_folder(paths)):
        remove_tree(_folder(paths))


def _folder(paths: TeamPaths) -> Path:
    return paths.work / ".merging"


def pathspecs(patterns: Sequence[str]) -> list[str]:
    """Return patterns of settings as git knows them."""
    return [f":(top,glob){pattern}" for pattern in patterns]


def _run(git: ConfinedGit, head: Head, wanted: Wanted) -> Captured:
    commits = (wanted.tip, wanted.commit, head.format)
    words = (*commits, wanted.name, wanted.email, *pathspecs(wanted.protect))
    done = git.run(_MERGE, *words, given=wanted.message.encode(errors="replace"))
    if done.status != 0:
        raise Unmergeable(f"git could not merge it: {last_words(done)}")
    return done


def _read(done: Captured) -> Onto:
    said, _, rest = done.stdout.partition(b"\n")
    names = tuple(_names(rest.split(b"\0")))
    if said.strip():
        return Onto(check_object_id(os.fsdecode(said).strip()), left_out=names)
    return Onto(left_out=names) if said else Onto(conflicts=names)


def _names(found: Sequence[bytes]) -> Iterator[str]:
    yield from dict.fromkeys(os.fsdecode(one) for one in found if one)
