"""The teams of this project: `teamctl teams`, `create` and `delete`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from teamctl import arguments
from teamctl.actions import MARGIN_SECONDS
from teamctl.arguments import grace_option
from teamctl.render import output, tables
from teamctl.render.tables import Shape
from teamd import control
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import ExitCode, TeamError, UnknownTeam
from teamd.files import pidfile
from teamd.files.find_team import project
from teamd.files.paths import TeamPaths
from teamd.messages import TEAM_FOLDER
from teamd.overview.overview import OverviewReader
from teamd.team import teams
from teamd.team.roster import Roster

_SHAPE = Shape(
    elastic={"STATUS": 12, "TEAM": 12, "FOLDER": 12},
    spare=("MEMBERS", "STATUS", "TEAMD"),
    dispensable=("FOLDER", "PATH"),  # a path is whole or missing
)


@click.command()
@click.option("--all", "everywhere", is_flag=True, help="List those of all projects.")
@output.json_option
@team_options
def command(choice: TeamOptions, *, everywhere: bool, as_json: bool) -> None:
    """List the teams of this project: .team/ and those in .teams/.

    REQUESTS and MAIL count those that wait for you. With --all, the command lists all of your
    teams on this machine that a teamd has ever served, with the folder of each.
    """
    found = teams.every_team() if everywhere else teams.teams(_project(choice))
    waiting = list(map(_count_waiting, found))
    if as_json:
        rows = [{**team.to_json(), **asks} for team, asks in zip(found, waiting, strict=True)]
        output.print_json({"teams": rows})
        return
    if not found:
        click.echo("no teams here; `teamd start` makes one, `teamctl create NAME` one by name")
        return
    columns = {
        "TEAM": [team.name for team in found],
        "FOLDER": [team.folder for team in found],
        "REQUESTS": [_figure(asks["requests"]) for asks in waiting],
        "MAIL": [_figure(asks["mail"]) for asks in waiting],
        "TEAMD": ["-" if team.pid is None else team.pid for team in found],
        "MEMBERS": [team.members for team in found],
        "STATUS": [
            ", ".join(f"{number} {status}" for status, number in team.statuses.items()) or "-"
            for team in found
        ],
        "PATH": [team.paths.root for team in found],
    }
    if not everywhere:
        del columns["FOLDER"], columns["PATH"]
    cells = [[str(cell) for cell in row] for row in zip(*columns.values(), strict=True)]
    tables.print_table(list(columns), cells, ("REQUESTS", "MAIL", "MEMBERS"), _SHAPE)


def _figure(number: int | None) -> str:
    return "?" if number is None else str(number or "-")


def _count_waiting(team: teams.TeamFacts) -> dict[str, int | None]:
    """Count what waits for the person: requests and mail; `None` if that cannot be read."""
    try:
        seen = OverviewReader(team.paths, costs=False, copies=False).read()
    except TeamError:
        return {"requests": None, "mail": None}
    return {"requests": len(seen.waiting), "mail": seen.unread}


@click.command()
@click.argument("name")
@output.json_option
@team_options
def create(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Create the team NAME in .teams/ of this project and start its teamd.

    The team uses the project's team.toml until it has one of its own. Its limits apply to it
    alone. `teamctl --team NAME …` reaches it.
    """
    home = _project(choice)
    paths = TeamPaths(home / TEAM_FOLDER)
    own = teams.name_of(paths, choice.settings(paths).team.name)
    if name.lower() == own.lower():  # even if it does not exist yet: mail is sent to names
        raise TeamError(f"the project's own team is called {own!r} already; choose another name")
    paths = teams.make(home, name)
    import asyncio  # noqa: PLC0415 -- 40 ms, only to start or stop a teamd

    asyncio.run(teams.start(paths))
    pid = pidfile.check(paths).pid
    if waiting := TeamOptions().waiting(paths)[1]:
        output.warn(waiting)
    said = f"team {name} is there, its teamd (pid {pid}) runs; use `teamctl --team {name} …`"
    facts = {"name": name, "pid": pid, "path": str(paths.root)}
    output.print_either(said, facts, as_json=as_json)


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Do not ask: end every teammate and delete the team.")
@click.option("--yes", is_flag=True, help="Do not ask you first.")
@grace_option(help="How many seconds the teammates have to answer.")
@output.json_option
@team_options
def delete(
    choice: TeamOptions, name: str, *, force: bool, yes: bool, timeout: float, as_json: bool
) -> None:
    """Ask everyone in the team NAME to shut down, then delete the team and all its files.

    On a terminal it first asks you, unless --yes or --force is given. If a teammate rejects the
    shutdown, the team stays. Only teams in .teams/ can be deleted. The command refuses while a
    working copy has unmerged work; --force keeps that work for 30 days.
    """
    from teamd.copies import discard  # noqa: PLC0415 -- 20 ms

    team = teams.deletable(_found(choice, name))
    if not force and (unmerged := discard.describe_unmerged(team.paths)):
        raise TeamError(
            f"these have unmerged work: {unmerged}; `teamctl --team {team.name} merge NAME`"
            " takes it, --force keeps it for 30 days and deletes the team"
        )
    if not (yes or force):
        arguments.confirm(f"delete the team {team.name} with all its mail and conversations?")
    if not force and teams.must_be_asked(team):
        said = _ask(team.paths, timeout)
        if not as_json:
            output.echo(said)
    import asyncio  # noqa: PLC0415 -- the same

    asyncio.run(teams.stop(team.paths))
    kept = discard.keep_work(team.paths)
    teams.remove(team.paths)
    lines = [f"team {team.name} is deleted"]
    lines += [f"what nobody merged is kept for 30 days as {ref}" for ref in kept]
    output.print_either("\n".join(lines), {"name": team.name, "kept": kept}, as_json=as_json)


def _found(choice: TeamOptions, name: str) -> teams.TeamFacts:
    """Return a team by its name.

    Raises:
        UnknownTeam: no team has this name.
        TeamError: it is the name of a teammate, which another command removes.
    """
    try:
        return teams.found(_project(choice), name)
    except UnknownTeam:
        member = None
        with suppress(TeamError):
            member = Roster(choice.existing()).read().find(name)
        if member is None:
            raise
        hint = f"`teamctl rm {member.name}` removes the teammate"
        raise TeamError(f"{member.name} is a teammate, not a team; {hint}") from None


def _project(choice: TeamOptions) -> Path:
    return choice.existing().home if choice.team_dir else project(Path.cwd())


def _ask(paths: TeamPaths, seconds: float) -> str:
    """Shut down the team's members and return the sentences about them."""
    asked = {"all": True, "seconds": seconds}
    reply = control.ask(paths, "shutdown", asked, timeout_seconds=seconds + MARGIN_SECONDS)
    if reply.exit_code == ExitCode.REFUSED:
        raise TeamError(f"{reply.text}; the team was not deleted; --force deletes it anyway")
    return reply.text
