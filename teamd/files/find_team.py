"""Find a team by its name, by its directory, or from a folder upwards as git does."""

from __future__ import annotations

import os
from pathlib import Path

from teamd.errors import NoTeam, translate_os_errors
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import check_folder
from teamd.messages import TEAM_FOLDER, TEAMS_FOLDER, check_team_name


def named(team_directory: str | None, team: str | None = None) -> TeamPaths | None:
    """Return the team that `--team`, `--team-dir` or `TEAMD_DIR` names; `None` if none is given.

    The team need not exist yet.

    Raises:
        NoTeam: the path cannot be a team directory.
        BadTeamName: the name is not valid for a team.
    """
    if team is not None:
        return _by_name(project(here()), check_team_name(team))
    chosen = team_directory or os.environ.get("TEAMD_DIR")
    if not chosen:
        return None
    try:
        return TeamPaths(Path(chosen).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:  # no such user, circular links, or a NUL
        raise NoTeam(f"{chosen!r} cannot be a team directory: {error}") from error


def project(start: Path) -> Path:
    """Return the nearest folder from `start` upwards that holds teams, otherwise `start`."""
    for folder in (start, *start.parents):
        if any(directories.holds_anything(folder / name) for name in (TEAM_FOLDER, TEAMS_FOLDER)):
            return folder
    return start


def discover(start: Path) -> TeamPaths | None:
    """Look for `.team/` in `start` and in each folder above it, as git looks for `.git/`.

    Raises:
        StoreError: the directory that was found belongs to another user.
    """
    for folder in (start, *start.parents):
        candidate = folder / TEAM_FOLDER
        if directories.is_directory(candidate):
            found = _own(TeamPaths(candidate))
            if directories.holds_anything(candidate):
                return found
    return None


def existing(team_directory: str | None, team: str | None = None) -> TeamPaths:
    """Return the team that a command refers to.

    Raises:
        NoTeam: the team does not exist.
        StoreError: the team belongs to another user.
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
    """Return a team after checking that this user owns it and that it is not a link.

    A link that the person names is followed, see `named`. A link that was found may be part of a
    folder from somewhere else and lead anywhere.

    Raises:
        StoreError: the directory is a link or belongs to another user.
    """
    check_folder(found.root, "name the folder that it leads to, with --team-dir or TEAMD_DIR")
    directories.check_owner(found.root)
    return found


def finish(found: TeamPaths) -> TeamPaths:
    """Make the names in a team directory durable, unless a supervisor has done so."""
    if not files.exists(found.supervisor):
        found.make_durable()
    return found


def existing_or_here(team_directory: str | None, team: str | None = None) -> TeamPaths:
    """Return the team for `teamd start`: an existing one, otherwise a new one in this folder."""
    chosen = named(team_directory, team) or discover(here()) or TeamPaths(here() / TEAM_FOLDER)
    if files.exists(chosen.root) and not directories.is_directory(chosen.root):
        raise NoTeam(f"{chosen.root} is not a folder; move it away, or name another team directory")
    return chosen


def all_teams(folder: Path) -> list[TeamPaths]:
    """Return the teams of a project: the one in `.team/`, then those in `.teams/` by name.

    Raises:
        StoreError: the folders cannot be read.
    """
    first = TeamPaths(folder / TEAM_FOLDER)
    with translate_os_errors(folder / TEAMS_FOLDER):
        others = (TeamPaths(root) for root in sorted((folder / TEAMS_FOLDER).glob("[!.]*/")))
        there = [team for team in (first, *others) if team.root.is_dir()]
        return [team for team in there if not team.root.is_symlink()]


def _by_name(folder: Path, name: str) -> TeamPaths:
    """Return the team of that name, ignoring case, or the path for a new one."""
    exact = TeamPaths(folder / TEAMS_FOLDER / name)
    if directories.is_directory(exact.root):
        return exact
    there = (team for team in all_teams(folder) if (team.own_name or "").lower() == name.lower())
    return next(there, exact)


def here() -> Path:
    """Return the current folder.

    Raises:
        NoTeam: the folder has been removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NoTeam("the current folder has been removed; `cd` to another one") from error
