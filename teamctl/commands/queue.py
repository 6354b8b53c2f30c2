"""The merge queue: `teamctl queue`, `queue add` and `queue remove`, whether or not teamd runs."""

from __future__ import annotations

from typing import Final

import click

from teamctl import arguments
from teamctl.mail.router import team_queue
from teamctl.render import output, tables
from teamctl.render.queue_table import (
    EMPTY_QUEUE,
    NOT_MERGING,
    SHORT_COMMIT,
    queue_notes,
    queue_table,
)
from teamd.command_line.options import SuggestingGroup, team_options
from teamd.command_line.run import TeamOptions
from teamd.files import pidfile
from teamd.merges.queue import read as read_queue
from teamd.overview.branch import read_ahead
from teamd.team.roster import Roster

_MEANT: Final = {
    **dict.fromkeys(("list", "ls", "show"), "`teamctl queue` shows it"),
    **dict.fromkeys(("delete", "rm"), "`teamctl queue remove ID` removes an entry"),
}


@click.group(cls=SuggestingGroup, meant=_MEANT, invoke_without_command=True)
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> None:
    """Show the merge queue, or add to it, or remove from it.

    teamd merges the commits of teammates into the branch `[merge] into`, one entry after the other,
    if the check passes. WHY says why an entry waits or was not merged. `teamctl help queue`
    explains it.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    paths = choice.existing()
    there = read_queue(paths).all
    ahead = read_ahead(paths, Roster(paths).read())
    if as_json:
        merge = None if ahead is None else ahead.to_json()
        output.print_json({"queue": [entry.to_json() for entry in there], "merge": merge})
        return
    if there:
        tables.console().print(queue_table(there))
        for line in queue_notes(there):
            output.echo(choice.add_team_option(line))
        if pidfile.supervisor(paths) is None and any(not one.state.finished for one in there):
            output.warn(NOT_MERGING)
    else:
        click.echo(choice.add_team_option(EMPTY_QUEUE))
    if ahead:
        output.echo(ahead.line)


@command.command()
@click.argument("name", shell_complete=arguments.teammates)
@output.json_option
@team_options
def add(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Queue NAME's commits in its working copy."""
    from teamd.merges import enqueue  # noqa: PLC0415 -- 20 ms

    queue = team_queue(choice)
    paths = queue.board.paths
    member = Roster(paths).read().get(name)
    entry = enqueue.add(queue, member.name, choice.settings(paths))
    text = f"{member.name}'s commit {entry.commit[:SHORT_COMMIT]} is in the queue: {entry.id}"
    if pidfile.is_teamd_down(paths):
        text += "; it waits there for teamd, which `teamd start` starts"
    choice.done = text
    output.print_either(text, entry.to_json(), as_json=as_json)


@command.command()
@click.argument("entry_id", metavar="ID")
@output.json_option
@team_options
def remove(choice: TeamOptions, entry_id: str, *, as_json: bool) -> None:
    """Remove the entry ID from the queue, even while it is being checked."""
    from teamd.copies.source import Source  # noqa: PLC0415 -- 20 ms
    from teamd.merges import enqueue  # noqa: PLC0415 -- the same

    queue = team_queue(choice)
    paths = queue.board.paths
    source = Source.of(choice.settings(paths).team.workspace, [paths.work])
    entry = enqueue.remove(queue, entry_id, source)
    commit = entry.commit[:SHORT_COMMIT]
    text = f"{entry.id}, {entry.teammate}'s commit {commit}, is not in the queue now"
    choice.done = text
    output.print_either(text, entry.to_json(), as_json=as_json)
