"""The teams of a project: list, create, start, stop and remove them."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from teamd_commands import command_line

from teamd import secret_environment
from teamd.errors import SettingsError, StoreError, TeamError, UnknownTeam
from teamd.files import directories, files, pidfile
from teamd.files.find_team import all_teams
from teamd.files.paths import TeamPaths, ignore, known_teams_folder
from teamd.messages import TEAMS_FOLDER, check_team_name
from teamd.process_id import Identity
from teamd.team.roster import Roster
from teamd.team.states import Status

_FOR_GOOD: Final = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL})
_START_SECONDS: Final = 90.0  # more than the timeout of `teamd start` itself
_STOP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamFacts:
    """A summary of one team.

    Attributes:
        pid: of its supervisor; `None` if none runs.
        statuses: the number of members in each status.
    """

    name: str
    paths: TeamPaths
    pid: int | None
    statuses: dict[str, int]

    @property
    def folder(self) -> str:
        """The name of the project's folder."""
        return self.paths.home.resolve().name

    @property
    def members(self) -> int:
        """The number of members."""
        return sum(self.statuses.values())

    def to_json(self) -> dict[str, Any]:
        """Return the team as `--json` shows it."""
        return {
            "name": self.name,
            "folder": self.folder,
            "path": str(self.paths.root),
            "running": self.pid is not None,
            "pid": self.pid,
            "members": self.members,
            "statuses": self.statuses,
        }


def teams(folder: Path) -> list[TeamFacts]:
    return [read_facts(paths) for paths in all_teams(folder)]


def remember(paths: TeamPaths) -> None:
    """Record that this user has a team there, for `every_team`; each team has a file of its own.

    Raises:
        StoreError: the file cannot be written.
    """
    folder = known_teams_folder()
    if folder is not None:
        directories.make_private_directory(folder)
        root = os.fsencode(paths.root.resolve())
        files.replace(folder / hashlib.sha256(root).hexdigest()[:32], root, durable=False)


def every_team() -> list[TeamFacts]:
    """Return the existing teams of this user that a teamd has served."""
    found = []
    for paths in known_teams():
        with suppress(TeamError, OSError):  # an unreadable team does not hide the others
            found.append(read_facts(paths))
    return found


def known_teams() -> list[TeamPaths]:
    """Return the paths of those teams, also of teams that cannot be read."""
    folder = known_teams_folder()
    found = []
    for file in [] if folder is None else directories.list_files(folder, "*"):
        with suppress(TeamError, OSError):
            paths = TeamPaths(Path(os.fsdecode(files.read(file) or b"/nowhere")))
            if paths.root.is_absolute() and paths.config.is_file():
                found.append(paths)
    return sorted(found, key=lambda paths: paths.root)


def supervisors(folder: Path) -> set[int]:
    """Return the processes of this user that supervise the teams of a project.

    Raises:
        StoreError: a pid file cannot be read at the moment.
    """
    there = (_supervisor(paths) for paths in all_teams(folder))
    return {process.pid for process in there if process is not None}


def found(folder: Path, name: str) -> TeamFacts:
    """Return the team of that name, ignoring case.

    Raises:
        UnknownTeam: no team has the name; the sentence lists the teams.
    """
    known = teams(folder)
    for team in known:
        if team.name.lower() == name.lower():
            return team
    raise UnknownTeam(name, [team.name for team in known])


def make(folder: Path, name: str) -> TeamPaths:
    """Make the directory of a new team in `.teams/`.

    Raises:
        TeamError: a team of that name exists, or the directory cannot be made.
    """
    check_team_name(name)
    if any(team.name.lower() == name.lower() for team in teams(folder)):
        raise TeamError(f"there is a team {name!r} already; `teamctl teams` lists them")
    paths = TeamPaths(folder / TEAMS_FOLDER / name)
    directories.make_private_directory(paths.root.parent)
    ignore(paths.root.parent)
    paths.create()
    return paths


def name_of(paths: TeamPaths, setting: str | None) -> str:
    """Return the name of a team; one without a `[team] name` keeps the name that it was made with.

    Raises:
        StoreError: the roster cannot be read.
    """
    return paths.own_name or setting or Roster(paths).team_name()


def check_own_name(paths: TeamPaths, setting: str | None, settings_file: Path) -> None:
    """Check that the project's own team does not have the name of another team.

    Raises:
        SettingsError: two teams would have the same name, which makes mail ambiguous.
    """
    if paths.own_name is not None:
        return
    try:
        name = name_of(paths, setting)
    except StoreError:  # a damaged roster, which is repaired later
        return
    others = [team.own_name for team in all_teams(paths.home) if team.own_name is not None]
    for other in others:
        if other.lower() == name.lower():
            mistake = f"team.name is {name!r}, as is that of {TEAMS_FOLDER}/{other}"
            raise SettingsError(settings_file, [f"{mistake}; give this team another one"])


def deletable(team: TeamFacts) -> TeamFacts:
    """Return the team if it may be removed.

    Raises:
        TeamError: it is the project's own team.
    """
    if team.paths.own_name is None:
        raise TeamError(
            f"{team.name!r} is the project's own team; `teamd stop`, then remove "
            f"{team.paths.root} by hand"
        )
    return team


def must_be_asked(team: TeamFacts) -> bool:
    """Return whether a supervisor runs that has to ask the teammates before the removal.

    Raises:
        TeamError: no supervisor can ask them, and some are not shut down.
    """
    if team.pid is not None:
        return True
    at_work = team.members - team.statuses.get(Status.SHUTDOWN, 0)
    if at_work:
        raise TeamError(
            f"no teamd runs for {team.name!r}, and {at_work} of its members are not shut down: "
            f"after `teamd --team {team.name} start` they can be asked to shut down; --force "
            "deletes the team without asking"
        )
    return False


async def start(paths: TeamPaths, config: Path | None = None) -> list[str]:
    """Start a team's supervisor; it serves requests when this returns.

    Args:
        paths: the team.
        config: the settings file, if it is not the team's own.

    Returns:
        Other lines of its output, such as about settings that wait for trust.

    Raises:
        TeamError: the supervisor did not start.
    """
    with secret_environment.handed_over(os.environ) as secrets:
        named = () if config is None else ("--config", str(config))
        command = ("start", *named, secret_environment.OPTION, str(secrets))
        return await _teamd(command, paths, _START_SECONDS, pass_fds=(secrets,))


async def stop(paths: TeamPaths) -> None:
    """Stop a team's supervisor, if one runs.

    Raises:
        TeamError: the supervisor did not end.
    """
    if pidfile.supervisor(paths) is not None:
        await _teamd(("stop",), paths, _STOP_SECONDS)


def remove(paths: TeamPaths) -> None:
    """Remove a team's directory; it is renamed first, so an interruption leaves no half team.

    Raises:
        TeamError: the directory cannot be removed.
    """
    aside = paths.root.with_name(f".deleted-{paths.root.name}-{os.urandom(4).hex()}")
    try:
        paths.root.rename(aside)
        directories.sync_directory(aside.parent)
        shutil.rmtree(aside)
    except OSError as error:
        raise TeamError(f"{paths.root} cannot be removed: {error.strerror}") from error


def _supervisor(paths: TeamPaths) -> Identity | None:
    try:
        return pidfile.supervisor(paths)
    except StoreError as error:
        # A folder in the file's place, or another user's file: no supervisor of this user locked
        # that.
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _FOR_GOOD:
            return None
        raise


def read_facts(paths: TeamPaths) -> TeamFacts:
    """Return the summary of a team.

    Raises:
        StoreError: its roster or its pid file cannot be read.
    """
    team = Roster(paths).read()
    there = pidfile.supervisor(paths)
    statuses = dict(Counter(str(member.status) for member in team.members))
    pid = None if there is None else there.pid
    return TeamFacts(name=paths.own_name or team.name, paths=paths, pid=pid, statuses=statuses)


async def _teamd(
    command: Sequence[str], paths: TeamPaths, seconds: float, *, pass_fds: Sequence[int] = ()
) -> list[str]:
    from teamd import programs  # noqa: PLC0415 -- subprocess is only needed here

    argv = [*command_line("teamd"), *command, "--team-dir", str(paths.root)]
    ending = programs.capture(argv, timeout_seconds=seconds, cwd=paths.home, pass_fds=pass_fds)
    try:
        ended = await ending
    except OSError as error:  # including TimeoutError
        raise TeamError(f"`teamd {command[0]}` for {paths.root}: {error}") from error
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    said = [line.removeprefix("teamd: ") for line in lines]
    if ended.status:
        raise TeamError(said[-1] if said else f"`teamd {command[0]}` said nothing")
    return said
