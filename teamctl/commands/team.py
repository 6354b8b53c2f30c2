"""`teamctl team`: the members of the team, and how they are."""

from __future__ import annotations

from typing import Any

import click

from teamctl import output, roster_table
from teamctl.watch import watch_team
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.overview.overview import Overview, OverviewReader


@click.command()
@click.option("--watch", "watched", is_flag=True, help="Keep showing it as it changes; q ends.")
@click.option("--hosts", "everywhere", is_flag=True, help="Also show other hosts' members.")
@output.json_option
@team_options
def command(choice: TeamOptions, *, watched: bool, everywhere: bool, as_json: bool) -> None:
    """Show who needs you, the members of the team and what they do.

    FOR is how long that has lasted, CONTEXT the used share of the model's window, UP how long the
    process has run, CPU its computing time, MEM its memory, MAIL the number of messages in the
    inbox. IN and OUT are tokens, COST is in USD; `teamctl usage` shows more. RESTARTS is how often
    a crashed process was started again. A narrow terminal shows fewer columns. With --hosts, those
    of other hosts come last: as each host told, or as unreachable since it was heard last.
    """
    if watched and as_json:
        raise click.UsageError("--watch never ends and --json is one document: take one of them")
    if watched and everywhere:
        raise click.UsageError("--watch shows this host; `teamctl team --hosts` shows all of them")
    paths = choice.existing()
    if watched:
        watch_team(choice, paths)
        return
    seen = OverviewReader(paths).read(choice.waiting(paths))
    if everywhere:
        _show_everywhere(choice, seen, as_json=as_json)
    elif as_json:
        _print_json(seen, {})
    else:
        roster_table.show(seen)


def _show_everywhere(choice: TeamOptions, seen: Overview, *, as_json: bool) -> None:
    """Show those of other hosts as well."""
    from teamctl import host_table  # noqa: PLC0415 -- only where there are other hosts
    from teamctl.post import other_hosts  # noqa: PLC0415 -- the same

    hosts = other_hosts(choice)
    if as_json:
        far = host_table.read_hosts(hosts, seen.team.name)
        _print_json(seen, {"hosts": [host.with_members() for host in far]})
    else:
        roster_table.show_everywhere(seen, hosts)


def _print_json(seen: Overview, more: dict[str, Any]) -> None:
    if seen.trouble:
        output.warn(seen.trouble)
    output.print_json({**seen.to_json(), **more})
