"""The state of a working copy, its difference to the base, and the transfer of its commits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

from teamd.copies.record import Copy, check_object_id
from teamd.copies.sandboxed_git import OWN_OBJECTS, SandboxedGit, open_sandboxed_git
from teamd.copies.source import Source, last_words
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths

_LOOK_SECONDS: Final = 120.0  # a large copy with a cold cache
_GLANCE_SECONDS: Final = 20.0  # for commands that show many copies
_MOST_NAMED: Final = 5
_FACTS: Final = 4
_SHORT: Final = 12
_LINK: Final = "160000"  # the mode of a submodule or other nested repository
# Arguments: branch, base. Prints one line per fact, then the files.
_STATE: Final = """
git symbolic-ref -q HEAD || echo
git rev-parse --verify -q 'HEAD^{commit}'
own=$(git rev-parse -q --verify "refs/heads/$1" || echo HEAD)
tip=$(git rev-parse -q --verify "$own^{commit}")
echo "$tip"
git rev-list --count HEAD "$tip" "^$2"
git status --porcelain -z --no-renames --untracked-files=all
"""
# New objects go to the sandbox's temporary folder, because the copy is read-only.
ASIDE: Final = f"""
mkdir -p /tmp/objects
export GIT_OBJECT_DIRECTORY=/tmp/objects
export GIT_ALTERNATE_OBJECT_DIRECTORIES="${OWN_OBJECTS}:$GIT_ALTERNATE_OBJECT_DIRECTORIES"
export GIT_INDEX_FILE=/tmp/index
"""
_UNHIDE: Final = """
if git ls-files -v | grep -q '^[a-zS]'; then
  if [ -z "${GIT_INDEX_FILE:-}" ]; then cp "$GIT_DIR/index" /tmp/index; fi
  export GIT_INDEX_FILE=/tmp/index
  git ls-files -z | git update-index -z --no-assume-unchanged --stdin
  git ls-files -z | git update-index -z --no-skip-worktree --stdin
fi
"""
# Uses a temporary index. Files marked assume-unchanged or skip-worktree are compared as well.
OWN_INDEX: Final = f"""{ASIDE}
if [ -f "$GIT_DIR/index" ]; then cp "$GIT_DIR/index" /tmp/index; fi
{_UNHIDE}"""
PACK: Final = "git pack-objects --quiet --revs --stdout --thin --delta-base-offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkState:
    """The state of a working copy.

    Attributes:
        branch: the checked out branch; empty if none is.
        head: the checked out commit.
        tip: the commit of the teammate's branch.
        ahead: the number of commits that its base does not have.
        uncommitted: the files that differ from `head`, including untracked ones.
    """

    branch: str
    head: str
    tip: str
    ahead: int
    uncommitted: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Return whether the copy has work that its base does not have."""
        return bool(self.ahead or self.uncommitted)

    def describe(self) -> str:
        """Return the number of commits and files in words."""
        return f"{_count(self.ahead, 'commit')} and {_count(len(self.uncommitted), 'file')}"


def look(paths: TeamPaths, copy: Copy, seconds: float = _LOOK_SECONDS) -> WorkState:
    """Return the present state of a copy.

    Raises:
        TeamError: it is damaged, or reading takes longer than `seconds`.
    """
    with open_sandboxed_git(paths, copy.folder, copy.origin) as git:
        return read_state(git, copy, seconds)


def to_json(paths: TeamPaths, copy: Copy) -> dict[str, Any]:
    """Return a copy as `team --json` shows it; numbers are `null` if it cannot be read."""
    shown = {"path": str(copy.folder), "branch": copy.branch, "base": copy.base}
    try:
        state = look(paths, copy, _GLANCE_SECONDS)
    except TeamError as error:
        return {**shown, "ahead": None, "uncommitted": None, "trouble": str(error)}
    branch = state.branch or None
    return {**shown, "branch": branch, "ahead": state.ahead, "uncommitted": len(state.uncommitted)}


def read_state(git: SandboxedGit, copy: Copy, seconds: float = _LOOK_SECONDS) -> WorkState:
    """Return the state of a copy.

    Raises:
        TeamError: it is damaged, or reading takes longer than `seconds`.
    """
    done = git.run(_UNHIDE + _STATE, copy.branch, copy.base, seconds=seconds)
    facts = done.stdout.split(b"\n", _FACTS)
    if done.status != 0 or len(facts) <= _FACTS or not facts[3].isdigit():
        raise TeamError(
            f"the working copy {copy.folder} is damaged ({last_words(done)}); "
            f"`teamctl discard {copy.name} --force` creates a new one and keeps this one aside"
        )
    branch, head, tip = (os.fsdecode(fact) for fact in facts[:3])
    return WorkState(
        branch=branch.removeprefix("refs/heads/"),
        head=check_object_id(head),
        tip=check_object_id(tip),
        ahead=int(facts[3]),
        uncommitted=tuple(os.fsdecode(one[3:]) for one in facts[_FACTS].split(b"\0") if one),
    )


def fetch_commit(
    git: SandboxedGit, source: Source, commit: str, known: Sequence[str], *, prefix: str = ""
) -> None:
    """Copy a commit from a working copy into the person's repository, without a ref.

    The objects are packed in the sandbox. Then they are checked as by `git fsck`, and must be
    complete.

    Args:
        git: runs in the working copy.
        source: the person's repository.
        commit: a commit of the working copy.
        known: commits that the person's repository has.
        prefix: a script that runs before packing.

    Raises:
        TeamError: it failed; the person's repository has no new ref.
    """
    wanted = "".join(f"{line}\n" for line in (commit, *(f"^{one}" for one in known)))
    with tempfile.TemporaryFile(dir=git.scratch.parent) as pack:
        git.do(prefix + PACK, given=wanted.encode(), stdout=pack.fileno())
        pack.seek(0)
        take_objects(source, commit, known, pack.fileno())


def take_objects(source: Source, commit: str, known: Sequence[str], pack: int) -> None:
    """Add a commit to the person's repository from a pack that was made in a sandbox.

    Args:
        source: the person's repository.
        commit: the new commit.
        known: commits that the repository has.
        pack: a descriptor of the output of `git pack-objects`.

    Raises:
        TeamError: objects are missing or damaged; the person's repository has no new ref.
    """
    source.add_pack(pack)
    missing = ("rev-list", "--objects", "--quiet", commit, "--not", *known)
    if source.run(*missing).status != 0:
        raise TeamError(f"objects of the commit {commit} are missing in its pack")
    if lost := set.intersection(*(_links(source, one, commit) for one in known)):
        _check_known(source, commit, lost)


def _links(source: Source, old: str, new: str) -> set[str]:
    """Return the paths where the new commit has a nested repository and the old one does not."""
    said = source.do("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new).split("\0")
    changes = zip(said[::2], said[1::2], strict=False)  # pairs of `:old new …` and the path
    return {at for modes, at in changes if _LINK in modes.split()[1] and _LINK not in modes[:7]}


def _check_known(source: Source, commit: str, links: set[str]) -> None:
    """Check that `.gitmodules` lists the nested repositories, because a commit lacks their content.

    Raises:
        TeamError: it does not list all of them.
    """
    words = ("config", "--blob", f"{commit}:.gitmodules", "-z", "--get-regexp", r"\.path$")
    said = source.ask(*words).split("\0")
    if lost := sorted(links - {one.partition("\n")[2] for one in said}):
        raise TeamError(
            f"the commit {commit[:_SHORT]} contains no files of {name_files(lost)}, a repository "
            "of its "
            "own; `git rm --cached` that, move its .git away, and commit its files"
        )


def count_new(source: Source, copy: Copy, tip: str, *, within: str) -> int:
    """Count the commits of a teammate that another commit does not contain, squashed or not."""
    squashed = copy.squashed and source.holds(copy.squashed, within=within)
    known = (copy.first, within, *([copy.base] if squashed else ()))
    return int(source.do("rev-list", "--count", "--ignore-missing", tip, "--not", *known))


def name_files(files: Sequence[str]) -> str:
    """Return a few file names on one line, for a sentence."""
    shown = ", ".join(one if one.isprintable() else repr(one) for one in files[:_MOST_NAMED])
    more = len(files) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# Arguments: base, when to color. Untracked files are added to a temporary index. The path of a
# nested repository ends with a slash; it is not a file.
_DIFF: Final = """
git ls-files -z --others --exclude-standard >/tmp/others
grep -z '/$' </tmp/others | tr '\\n\\0' '?\\n' | while IFS= read -r at; do
  echo "$at is a repository of its own: what is in it is not shown, and no commit holds it"
done
export GIT_LITERAL_PATHSPECS=1
if [ -s /tmp/others ]; then grep -zv '/$' </tmp/others | xargs -0 -r git add -N -f --; fi
git diff --no-ext-diff --no-textconv --color="$2" "$1" --
"""


@contextmanager
def opened_diff(paths: TeamPaths, copy: Copy, *, colour: bool = False) -> Iterator[IO[bytes]]:
    """Yield a file with the difference between a copy and its base; the agent wrote its content.

    Raises:
        TeamError: the copy is damaged.
    """
    with (
        open_sandboxed_git(paths, copy.folder, copy.origin) as git,
        tempfile.TemporaryFile(dir=paths.work) as file,
    ):
        when = "always" if colour else "never"
        git.do(OWN_INDEX + _DIFF, copy.base, when, stdout=file.fileno())
        file.seek(0)
        yield file


def pager_of(source: Source) -> str:
    """Return the person's git pager in that repository; empty for none."""
    pager = source.ask("var", "GIT_PAGER")
    return "" if pager == "cat" else pager


def wants_colour(source: Source) -> bool:
    """Return whether the person's git colors diffs on a terminal."""
    return source.ask("config", "--get-colorbool", "color.diff", "true") == "true"
