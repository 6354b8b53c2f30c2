"""`teamctl wait`: waits until teammates are idle."""

from __future__ import annotations

from collections.abc import Sequence

import click

from teamctl import arguments
from teamctl.arguments import timeout_option
from teamctl.mail.team_rest import RECHECK_SECONDS, Choose, RestWatch, explain_late
from teamctl.render import output
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import DeadlinePassed, ExitCode, TeamError
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.overview.members import WAITING
from teamd.overview.overview import Overview, OverviewReader
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.states import Status


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=arguments.teammates)
@click.option("--all", "everybody", is_flag=True, help="Wait for the whole team.")
@timeout_option
@output.json_option
@team_options
def command(
    choice: TeamOptions, names: Sequence[str], *, everybody: bool, timeout: float, as_json: bool
) -> int:
    """Wait until NAME is idle and has no mail to read, and print its state.

    With several names, or with --all, the command waits until all of them are idle at once; --all
    leaves out teammates that are shut down. The exit status is 0 if all of them are idle, 1 if one
    waits for an answer, is paused, has failed or is shut down, and 4 after --timeout.
    """
    if bool(names) == everybody:
        raise click.UsageError("name one or more teammates, or give --all")
    paths = choice.existing()

    def choose(team: Team) -> list[Member]:
        if names:
            return [team.get(name) for name in names]
        return [member for member in team.members if member.status is not Status.SHUTDOWN]

    if not choose(Roster(paths).read()):
        raise TeamError("there is nobody to wait for; `teamctl spawn` starts a teammate")
    members = _wait(paths, choose, timeout)
    seen = OverviewReader(paths, costs=False, copies=False).read()
    ended = [(one, *_ended(one, seen)) for one in members]
    if everybody:
        paths.note_seen()
    if as_json:
        views = [(seen.find(one.name), how) for one, how, _ in ended]
        found = [{**view.to_json(), "state": how} for view, how in views if view is not None]
        output.print_json({"members": found})
    else:
        for one, how, why in ended:
            output.echo(f"{one.name} is {how}" + (f": {why}" if why else ""))
    idle = all(how == Status.IDLE for _, how, _ in ended)
    return ExitCode.DONE if idle else ExitCode.REFUSED


def _wait(paths: TeamPaths, choose: Choose, seconds: float) -> list[Member]:
    """Return the chosen members once they rest.

    Raises:
        DeadlinePassed: one of them is still at work after `seconds`.
    """
    watch = RestWatch(paths, choose)
    members = wait_for(
        paths.root,
        watch.look,
        timeout_seconds=seconds,
        also=[paths.inboxes, paths.transcripts],
        recheck_seconds=RECHECK_SECONDS,
    )
    if members is None:
        working = [one.name for one in choose(Roster(paths).read()) if watch.is_busy(one)]
        raise DeadlinePassed(f"{explain_late(working, seconds)}; `teamctl team` shows it")
    return members


def _ended(member: Member, seen: Overview) -> tuple[str, str | None]:
    """Return the state of a resting teammate, as in `teamctl team`, and the reason."""
    view = seen.find(member.name)
    if view is None or view.state != WAITING or view.request is None:
        return member.status, member.reason
    answers = f"`{view.request.approve}` or `{view.request.reject}`"
    return WAITING, member.reason or f"{view.request.sentence}; {answers}"
