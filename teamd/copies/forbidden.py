"""Refuses commits of teammates that change protected paths of the project.

In its own copy a teammate may change these paths, so that git works there. This gate keeps such
changes out of the person's branches. Once checked out there, a hook would run with the person's
rights, and the team would act on mail in its folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from teamd.copies.copy_status import name_files
from teamd.copies.source import Source, last_words
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.sandbox.build import own_places
from teamd.sandbox.protected_paths import find_protected_paths, protected_names
from teamd.settings import Settings
from teamd.team.roster import Roster


class Forbidden(TeamError):
    """The work changes protected paths; `str()` names them and says what to do."""


@dataclass(frozen=True, slots=True)
class CommitGate:
    """Refuses commits that change paths protected from the teammate.

    Attributes:
        source: the person's repository, which has the objects of those commits.
    """

    paths: TeamPaths
    settings: Settings
    source: Source

    def check(self, name: str, commit: str, tip: str, base: str = "") -> None:
        """Check that merging a teammate's commit into a tip changes no protected path.

        Args:
            name: the teammate.
            commit: its commit, or the merge of that into the tip.
            tip: the tip of a branch.
            base: the base of its copy: changes that the person made there are not the teammate's.

        Raises:
            Forbidden: it does.
        """
        found = self._find_kept(name, brought(self.source, commit, tip))
        own = _brought_unchanged(self.source, commit, tip, base) if found and base else set()
        self._refuse(name, [path for path in found if path not in own])

    def check_history(self, name: str, commit: str, *known: str) -> None:
        """Check that no commit in the history of a teammate's commit changes a protected path.

        A later commit may take the change back, but the person's `git bisect` checks it out.

        Args:
            name: the teammate.
            commit: its commit.
            known: commits of the person, whose history is trusted; the last is the copy's base.

        Raises:
            Forbidden: a commit changes one.
        """
        commits = self.source.do("rev-list", commit, *(f"^{one}" for one in known))
        words = ("-r", "-c", "-z", "--root", "--name-only", "--no-commit-id", "--no-renames")
        found = self.source.do("diff-tree", "--stdin", *words, given=f"{commits}\n".encode())
        if kept := self._find_kept(name, dict.fromkeys(filter(None, found.split("\0")))):
            raise Forbidden(
                f"{name}'s history changes {name_files(kept)}, which no teammate may change; "
                f"`teamctl merge {name} --squash` takes the work without its history, or have it "
                f"run `git reset --soft {known[-1][:12]}` and commit anew"
            )

    def check_changed(self, name: str, changed: Iterable[str]) -> None:
        """Check that none of a teammate's changed files is protected.

        Raises:
            Forbidden: at least one is.
        """
        self._refuse(name, self._find_kept(name, changed))

    def _refuse(self, name: str, found: Sequence[str]) -> None:
        if found:
            raise Forbidden(
                f"{name}'s work changes {name_files(found)}, which no teammate may change; "
                "have it remove that from its commits, and make the change yourself if you want "
                "it"
            )

    def _find_kept(self, name: str, changed: Iterable[str]) -> list[str]:
        """Return the files among `changed` that are protected from a teammate."""
        kept = [*map(_fold, _places(self.paths, self.settings, self.source.folder, name))]
        return [one for one in changed if _is_kept(one, kept)]


def brought(source: Source, commit: str, tip: str, *patterns: str) -> list[str]:
    """Return the files of a commit that differ from the tip and from a merge base.

    With several merge bases, a difference from any of them counts. Otherwise the author could
    choose the base.

    Args:
        source: the repository, which has both commits.
        commit: a commit of a teammate.
        tip: the tip of a branch.
        patterns: pathspecs; none for all files.
    """
    bases = _merge_bases(source, tip, commit)
    changed = {path for base in bases for path in source.differences(base, commit, *patterns)}
    there = source.differences(tip, commit, *patterns)
    return [path for path in there if path in changed or not bases]


def _brought_unchanged(source: Source, commit: str, tip: str, base: str) -> set[str]:
    """Return the files that a base brings to a tip, and that a commit has as the base has them.

    A file that the tip has changed as well is not among them: its author would choose a version.
    """
    both = {*brought(source, base, tip)}.difference(brought(source, tip, base))
    return both.difference(source.differences(base, commit))


def _merge_bases(source: Source, one: str, other: str) -> list[str]:
    done = source.run("merge-base", "--all", one, other)
    if done.status not in (0, 1):
        raise TeamError(f"git merge-base failed in {source.folder}: {last_words(done)}")
    return os.fsdecode(done.stdout).split()


def _places(paths: TeamPaths, settings: Settings, folder: Path, name: str) -> Iterator[str]:
    """Yield the protected paths, relative to the person's repository."""
    member = Roster(paths).read().find(name)
    tools = settings.in_copy(folder).tools_of(name, member.role if member else "")
    more = (*tools.protect, *own_places(folder))
    names = protected_names(folder, more, allowed=settings.places_allowed_to(name), may_init=False)
    yield from names
    found = (place.path for place in find_protected_paths(folder, names))
    for path in (*found, *paths.off_limits(folder)):
        if path.is_relative_to(folder):
            yield os.path.relpath(path, folder)


def _fold(path: str) -> Path:
    """Ignore case: on some file systems `.Team` is `.team`."""
    return Path(path.casefold())


def _is_kept(path: str, places: Iterable[Path]) -> bool:
    """Return whether a path is protected, or inside or above a protected one."""
    asked = _fold(path)
    return any(asked.is_relative_to(place) or place.is_relative_to(asked) for place in places)
