"""The record of a working copy: its repository and commits. Commands cannot write to it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from teamd.errors import StoreError, TeamError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.sandbox.policy import Origin

_OBJECT_ID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_RECORD: Final = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A teammate's working copy.

    Attributes:
        name: the name of the teammate.
        team: the team's name, for the author of its commits.
        address: the teammate's name in refs, unique among the teams of a repository.
        folder: the folder of the copy.
        origin: the repository from which it was cloned.
        base: the commit from which it was cloned, or the last one that was merged.
        first: the commit from which it was cloned.
        squashed: the person's commit with the changes of `base`, after a merge with `--squash`.
        made_in: the folder in which it was made; differs from `folder` after the project was moved.
    """

    name: str
    team: str
    address: str
    folder: Path
    origin: Origin
    base: str
    first: str
    made_in: Path
    squashed: str = ""

    @property
    def moved(self) -> bool:
        """Return whether the copy was moved, so that its path to borrowed objects is outdated."""
        return self.made_in != _real(self.folder)

    @property
    def branch(self) -> str:
        """The branch on which its teammate works."""
        return f"team/{self.name}"

    @property
    def email(self) -> str:
        """The mail address of the author of its commits."""
        return f"{self.name}@{self.team}"

    @property
    def discarded(self) -> str:
        """The folder of refs to its discarded work in the person's repository."""
        return f"refs/teamd/discarded/{self.address}"


def check_object_id(text: str) -> str:
    """Check that a text is a full object name, because an agent can write anything in its copy.

    Raises:
        TeamError: it is not.
    """
    if not _OBJECT_ID.fullmatch(text):
        raise TeamError(
            f"git named a commit {text[:100]!r} in a working copy, which is not a commit id"
        )
    return text


def find(paths: TeamPaths, name: str) -> Copy | None:
    """Return a teammate's working copy, if there is one, with its record.

    Raises:
        StoreError: its record cannot be read.
    """
    file = record_file(paths, name)
    content = files.read(file)
    if content is None or not directories.is_directory(paths.copy(name)):
        return None
    try:
        found = json.loads(content)
        origin = Origin(folder=Path(found["origin"]), objects=Path(found["objects"]))
        base, team = check_object_id(found["base"]), str(found["team"])
        first = check_object_id(found.get("first", base))
        squashed = str(found.get("squashed", ""))
        made_in = Path(found.get("folder", _real(paths.copy(name))))
    except (ValueError, KeyError, TypeError, TeamError) as error:
        raise StoreError(
            f"{file} is damaged; move it and {paths.copy(name)} away, and spawn {name} again"
        ) from error
    here = new(paths, name, team, _follow(origin, made_in, _real(paths.copy(name))), base)
    return replace(here, first=first, squashed=squashed, made_in=made_in)


def _follow(origin: Origin, was: Path, now: Path) -> Origin:
    """Return the repository of a copy, even if both were moved or copied together."""
    if was == now or not was.is_relative_to(origin.folder):
        return origin
    within = was.relative_to(origin.folder)
    folder = now.parents[len(within.parts) - 1]
    if folder / within != now:
        return origin
    inside = origin.objects.is_relative_to(origin.folder)
    there = folder / origin.objects.relative_to(origin.folder) if inside else origin.objects
    return Origin(folder=folder, objects=there)


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))


def new(paths: TeamPaths, name: str, team: str, origin: Origin, base: str) -> Copy:
    """Return the record of a copy, which may not exist yet."""
    address, folder = address_of(paths, name), paths.copy(name)
    return Copy(
        name=name,
        team=team,
        address=address,
        folder=folder,
        origin=origin,
        base=base,
        first=base,
        made_in=_real(folder),
    )


def address_of(paths: TeamPaths, name: str) -> str:
    """Return a teammate's name as used in refs."""
    return name if paths.own_name is None else f"{name}@{paths.own_name}"


def get(paths: TeamPaths, name: str) -> Copy:
    """Return a teammate's working copy.

    Raises:
        TeamError: the teammate has none.
    """
    found = find(paths, name)
    if found is None:
        raise TeamError(
            f"{name} has no working copy; `teamctl spawn {name} ROLE PROMPT --worktree --fresh` "
            "gives it one"
        )
    return found


def write(paths: TeamPaths, copy: Copy) -> None:
    """Write the record of a copy, which may not exist yet."""
    content = {
        "format": 1,
        "team": copy.team,
        "origin": str(copy.origin.folder),
        "objects": str(copy.origin.objects),
        "base": copy.base,
        "first": copy.first,
        "squashed": copy.squashed,
        "folder": str(copy.made_in),
    }
    files.replace(record_file(paths, copy.name), json.dumps(content).encode() + b"\n")


def with_base(paths: TeamPaths, copy: Copy, base: str, *, squashed: str = "") -> Copy:
    """Record another base of a copy."""
    moved = replace(copy, base=base, squashed=squashed)
    write(paths, moved)
    return moved


def list_folders(paths: TeamPaths) -> list[Path]:
    """Return the folders of all working copies of a team."""
    if not directories.is_directory(paths.work):
        return []
    names = [file.stem for file in directories.list_files(paths.work, f"*{_RECORD}")]
    return [paths.copy(name) for name in names if directories.is_directory(paths.copy(name))]


def record_file(paths: TeamPaths, name: str) -> Path:
    return paths.work / f"{name}{_RECORD}"


def lock_file(paths: TeamPaths, name: str) -> Path:
    """Return the lock file held while a copy is made, or while its objects or refs are read."""
    directories.make_private_directory(paths.work)
    return paths.work / f"{name}.lock"
