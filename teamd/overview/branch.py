"""The branch into which the queue merges, beside the branch that the person has checked out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teamd.errors import StoreError, TeamError
from teamd.files import files
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
    from teamd.copies.move_branch import count_ahead  # noqa: PLC0415 -- only if there is a branch
    from teamd.copies.source import Source  # noqa: PLC0415 -- the same

    folder, into = place
    try:
        onto, count = count_ahead(Source.of(folder, [paths.work]), into)
    except TeamError:
        return None
    return BranchAhead(into, onto, count) if count else None


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
