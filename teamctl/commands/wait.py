"""`teamctl wait`: waits until teammates are idle."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from teamctl import arguments
from teamctl.arguments import timeout_option
from teamctl.render import output
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import DeadlinePassed, ExitCode
from teamd.files import files, pidfile
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.overview.members import WAITING
from teamd.overview.overview import Overview, OverviewReader
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status

# A teammate that takes mail reports its work within this time.
_CALM_SECONDS: Final = 0.5


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=arguments.teammates)
@timeout_option
@output.json_option
@team_options
def command(choice: TeamOptions, names: Sequence[str], *, timeout: float, as_json: bool) -> int:
    """Wait until none of the NAMES is at work or has mail to read, and print the state of each.

    The exit status is 0 if all of them are idle, 1 if one waits for an answer, is paused, has
    failed or is shut down, and 4 after --timeout.
    """
    paths = choice.existing()
    members = wait_for(paths.root, _Rest(paths, names).look, timeout_seconds=timeout)
    if members is None:
        working = [one.name for one in _named(paths, names) if _at_work(paths, one)]
        who = ", ".join(working) or "somebody"
        raise DeadlinePassed(f"{who} is still at work after {timeout:g} s; `teamctl team` shows it")
    seen = OverviewReader(paths).read()
    ended = [(one, *_ended(one, seen)) for one in members]
    if as_json:
        output.print_json({"members": [{**one.encode(), "state": how} for one, how, _ in ended]})
    else:
        for one, how, why in ended:
            click.echo(output.plain(f"{one.name} is {how}" + (f": {why}" if why else "")))
    idle = all(how == Status.IDLE for _, how, _ in ended)
    return ExitCode.DONE if idle else ExitCode.REFUSED


def _ended(member: Member, seen: Overview) -> tuple[str, str | None]:
    """Return the state of a resting teammate, as in `teamctl team`, and the reason."""
    view = seen.find(member.name)
    if view is None or view.state != WAITING or view.request is None:
        return member.status, member.reason
    answers = f"`{view.request.approve}` or `{view.request.reject}`"
    return WAITING, member.reason or f"{view.request.sentence}; {answers}"


@dataclass(slots=True)
class _Rest:
    """Checks whether all named teammates have been at rest for a moment."""

    paths: TeamPaths
    names: Sequence[str]
    _since: float | None = field(default=None)

    def look(self) -> list[Member] | None:
        """Return the teammates if all of them rest.

        Raises:
            NoTeamd: a teammate is at work, but no teamd runs.
            UnknownTeammate: a name is not in the team.
        """
        members = _named(self.paths, self.names)
        if any(_at_work(self.paths, one) for one in members):
            pidfile.check(self.paths)
            self._since = None
            return None
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return members if now - self._since >= _CALM_SECONDS else None


def _named(paths: TeamPaths, names: Sequence[str]) -> list[Member]:
    team = Roster(paths).read()
    return [team.get(name) for name in names]


def _at_work(paths: TeamPaths, member: Member) -> bool:
    """Return whether the teammate works, or is about to work."""
    if member.status is not Status.IDLE:
        return member.status is Status.WORKING
    waiting = paths.has_mail(member.name) or files.size(paths.taken(member.name)) > 0
    return waiting and member.reason is None  # otherwise the mail is held, and the reason says why
