"""The branch into which the queue merges, beside the branch that the person has checked out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from teamd.errors import StoreError, TeamError
from teamd.files import files
from teamd.files.file_stamp import Version, version_of
from teamd.files.paths import TeamPaths
from teamd.team.roster import Team


@dataclass(frozen=True, slots=True)
class BranchAhead:
    """A branch with commits that the person's branch does not have.

    Attributes:
        into: the branch of the queue.
        onto: the branch that the person has checked out.
    """

    into: str
    onto: str
    count: int

    @property
    def command(self) -> str:
        return f"git merge {self.into}"

    @property
    def text(self) -> str:
        commits = "1 commit" if self.count == 1 else f"{self.count} commits"
        return f"{self.into} is {commits} ahead of {self.onto}"

    @property
    def line(self) -> str:
        """The fact and the next step."""
        return f"{self.text}; `{self.command}` takes them"

    def to_json(self) -> dict[str, Any]:
        facts = {"into": self.into, "onto": self.onto, "ahead": self.count}
        return {**facts, "text": self.text, "command": self.command}


def read_ahead(paths: TeamPaths, team: Team) -> BranchAhead | None:
    """Return how far the queue's branch is ahead; `None` if it is not, or cannot be read."""
    if (place := team.merges) is None or not _may_exist(*place):
        return None
    return _read_ahead(*place, paths.work, _versions(*place))


@lru_cache(maxsize=16)
def _read_ahead(
    folder: Path, into: str, work: Path, _versions: tuple[Version | float | None, ...]
) -> BranchAhead | None:
    """Run git, but only if a branch may have moved: live views ask several times a second."""
    from teamd.copies.move_branch import count_ahead  # noqa: PLC0415 -- only if there is a branch
    from teamd.copies.source import Source  # noqa: PLC0415 -- the same

    try:
        onto, count = count_ahead(Source.of(folder, [work]), into)
    except TeamError:
        return None
    return BranchAhead(into, onto, count) if count else None


def _versions(folder: Path, branch: str) -> tuple[Version | float | None, ...]:
    """Return the versions of the files that name the commits of both branches."""
    git = folder / ".git"
    if not git.is_dir():
        return (time.monotonic(),)  # a linked working tree: always another one
    try:
        head = (files.read(git / "HEAD") or b"").decode(errors="replace")
    except StoreError:
        head = ""
    refs = ("HEAD", head.removeprefix("ref: ").strip(), f"refs/heads/{branch}", "packed-refs")
    return tuple(version_of(git / ref) for ref in refs)


def _may_exist(folder: Path, branch: str) -> bool:
    """Return whether a repository may have a branch, without running git."""
    git, ref = folder / ".git", f"refs/heads/{branch}"
    if not git.is_dir():
        return git.is_file()  # a linked working tree
    try:
        packed = files.read(git / "packed-refs") or b""
    except StoreError:
        packed = b""
    return (git / ref).exists() or f" {ref}\n".encode() in packed
