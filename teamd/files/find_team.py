"""How a team is found: by its name, by its directory, or from a folder upwards, as git does it."""

from __future__ import annotations

import os
from pathlib import Path

from teamd.errors import NoTeam, translate_os_errors
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import check_folder
from teamd.messages import TEAM_FOLDER, TEAMS_FOLDER, check_team_name


def named(team_directory: str | None, team: str | None = None) -> TeamPaths | None:
    """The team that `--team`, `--team-dir` or `TEAMD_DIR` names, if any of them does.

    It need not be there yet.

    Raises:
        NoTeam: nothing could be there.
        BadTeamName: no team can have that name.
    """
    if team is not None:
        return _by_name(project(here()), check_team_name(team))
    chosen = team_directory or os.environ.get("TEAMD_DIR")
    if not chosen:
        return None
    try:
        return TeamPaths(Path(chosen).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:  # no such user; links in a circle; a NUL
        raise NoTeam(f"{chosen!r} cannot be a team directory: {error}") from error


def project(start: Path) -> Path:
    """The nearest folder from `start` upwards that holds teams; `start` where there is none."""
    for folder in (start, *start.parents):
        if any(directories.holds_anything(folder / name) for name in (TEAM_FOLDER, TEAMS_FOLDER)):
            return folder
    return start


def discover(start: Path) -> TeamPaths | None:
    """Look for `.team/` in `start` and in each folder above it, as git looks for `.git/`.

    Raises:
        StoreError: the one that is found belongs to another user.
    """
    for folder in (start, *start.parents):
        candidate = folder / TEAM_FOLDER
        if directories.is_directory(candidate):
            found = _own(TeamPaths(candidate))
            if directories.holds_anything(candidate):
                return found
    return None


def existing(team_directory: str | None, team: str | None = None) -> TeamPaths:
    """The team that a command means.

    Raises:
        NoTeam: there is none.
        StoreError: it belongs to another user.
    """
    chosen = named(team_directory, team)
    if chosen is None:
        found = discover(here())
        if found is None:
            raise NoTeam(f"no .team/ in {here()} or above it; `teamd start` makes one here")
        return finish(found)
    if not directories.is_directory(chosen.root):
        if team is not None:
            raise NoTeam(f"there is no team {team!r} in {chosen.home}; `teamctl create {team}`")
        raise NoTeam(f"there is no team directory {chosen.root}; `teamd start` makes it")
    return finish(_own(chosen))


def _own(found: TeamPaths) -> TeamPaths:
    """Return a team of this user's that stands where it is said to stand.

    A link that a person names is followed, see `named`; one that is found may come with a folder
    that somebody else made, and lead to anything.

    Raises:
        StoreError: it is a link, or belongs to another user.
    """
    check_folder(found.root, "name the folder that it leads to, with --team-dir or TEAMD_DIR")
    directories.check_owner(found.root)
    return found


def finish(found: TeamPaths) -> TeamPaths:
    """Make the names of a team safe, and return it; a supervisor has seen to that already."""
    if not files.exists(found.supervisor):
        found.make_durable()
    return found


def existing_or_here(team_directory: str | None, team: str | None = None) -> TeamPaths:
    """The team that `teamd start` means: the one that is found, else a new one right here."""
    chosen = named(team_directory, team) or discover(here()) or TeamPaths(here() / TEAM_FOLDER)
    if files.exists(chosen.root) and not directories.is_directory(chosen.root):
        raise NoTeam(f"{chosen.root} is no folder; move it away, or name another team directory")
    return chosen


def all_teams(folder: Path) -> list[TeamPaths]:
    """The teams of a project: that in `.team/` first, then those in `.teams/` by name.

    Raises:
        StoreError: the folders cannot be read.
    """
    first = TeamPaths(folder / TEAM_FOLDER)
    with translate_os_errors(folder / TEAMS_FOLDER):
        others = (TeamPaths(root) for root in sorted((folder / TEAMS_FOLDER).glob("[!.]*/")))
        there = [team for team in (first, *others) if team.root.is_dir()]
        return [team for team in there if not team.root.is_symlink()]


def _by_name(folder: Path, name: str) -> TeamPaths:
    """The team of that name, compared without case; else the place where it would be."""
    exact = TeamPaths(folder / TEAMS_FOLDER / name)
    if directories.is_directory(exact.root):
        return exact
    there = (team for team in all_teams(folder) if (team.own_name or "").lower() == name.lower())
    return next(there, exact)


def here() -> Path:
    """Return the current folder.

    Raises:
        NoTeam: it has been removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NoTeam("the current folder has been removed; `cd` to another one") from error
