"""A team over several hosts: `teamctl hosts init`, `join`, `add`, `remove` and `forget`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from teamctl.mail.router import other_hosts
from teamctl.render import host_table, output, tables
from teamd.command_line import terminal
from teamd.command_line.documents import print_either
from teamd.command_line.installation import load_for_hosts
from teamd.command_line.options import SuggestingGroup, team_options
from teamd.command_line.run import TeamOptions
from teamd.command_line.terminal import plain
from teamd.hosts.view import postman_runs
from teamd.team.roster import Roster


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> None:
    """Show the other hosts of the team, or set a team up over several.

    SINCE is how long a host has been in that state, WAITING how many lines it has not confirmed,
    ROUND TRIP the time to its postman and back. `teamctl team --hosts` shows their members.

    `teamctl hosts init` sets up the broker on this host, and writes a file for each
    other host, where `teamctl hosts join FILE` does the rest. `teamctl help hosts` explains it.
    """
    if click.get_current_context().invoked_subcommand is None:
        _list(choice, as_json=as_json)


@command.command()
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option("--name", metavar="NAME", help="What this host is called  [default: its name].")
@click.option(
    "--listen", metavar="HOST:PORT", help="Where the broker listens  [default: 0.0.0.0:4222]."
)
@click.option(
    "--address", "addresses", multiple=True, metavar="NAME",
    help="A name or number that the others reach this host under; can be repeated.",
)  # fmt: skip
@click.option(
    "--drop-address", "without", multiple=True, metavar="NAME",
    help="With --renew: one that the others do not reach this host under.",
)  # fmt: skip
@click.option(
    "--renew", is_flag=True, help="Only make a new certificate for the broker that is there."
)
@output.json_option
@team_options
def init(
    choice: TeamOptions,
    *,
    hosts: tuple[str, ...],
    name: str | None,
    listen: str | None,
    addresses: tuple[str, ...],
    without: tuple[str, ...],
    renew: bool,
    as_json: bool,
) -> None:
    """Set up the broker on this host, and write a file for each other HOST to join with.

    It writes keys and certificates, the configuration of nats-server and a unit for it, and [hosts]
    in team.toml. It starts nothing, and prints the next steps.
    """
    if renew and (hosts or name or listen):
        raise click.UsageError("--renew can be combined only with --address and --drop-address")
    if without and not renew:
        raise click.UsageError("--drop-address can be used only with --renew")
    setup = load_for_hosts("teamctl.hosts.setup")
    if renew:
        report = setup.renew(choice, addresses=addresses, without=without)
    else:
        report = setup.init(choice, name=name, listen=listen, addresses=addresses, hosts=hosts)
    _print(report, as_json=as_json)


@command.command()
@click.argument("file")
@output.json_option
@team_options
def join(choice: TeamOptions, file: str, *, as_json: bool) -> None:
    """Join a team over several hosts with the FILE that `hosts init` or `add` wrote.

    It writes this host's keys, and [hosts] in team.toml. If there is no team, it creates one.
    """
    _print(load_for_hosts("teamctl.hosts.setup").join(choice, Path(file)), as_json=as_json)


@command.command()
@click.argument("name")
@output.json_option
@team_options
def add(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Write a file with which another host, called NAME, joins. Run it on the broker's host."""
    _print(load_for_hosts("teamctl.hosts.setup").add(choice, name), as_json=as_json)


@command.command()
@click.argument("name")
@output.json_option
@team_options
def remove(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Shut the host NAME out: from now on the broker refuses its certificate.

    Run it on the broker's host. A host of that name that is added again gets another certificate.
    """
    _print(load_for_hosts("teamctl.hosts.setup").remove(choice, name), as_json=as_json)


@command.command()
@click.argument("name")
@output.json_option
@team_options
def forget(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Forget host NAME, which will not come back: drop its waiting mail, and stop showing it.

    `teamctl hosts remove`, on the broker's host, shuts a host out; other hosts remember it until
    you run `teamctl hosts forget` there. A new host of that name starts fresh.
    """
    _print(load_for_hosts("teamctl.hosts.setup").forget(choice, name), as_json=as_json)


def _print(report: Any, *, as_json: bool) -> None:
    if not as_json:
        for line in report.facts.get("warnings", ()):
            terminal.echo(f"warning: {line}", err=True)
    print_either("\n".join(report.lines), report.facts, as_json=as_json)


def _list(choice: TeamOptions, *, as_json: bool) -> None:
    hosts = other_hosts(choice)
    rows = host_table.read_hosts(hosts, Roster(hosts.paths).read().name)
    if as_json:
        runs = postman_runs(hosts.paths)
        listed = [row.to_json() for row in rows]
        output.print_json({"hosts": listed, "name": hosts.name, "postman": runs})
        return
    if rows:
        headings, shape = host_table.HEADINGS, host_table.SHAPE
        tables.print_table(headings, map(host_table.host_cells, rows), host_table.NUMBERS, shape)
    else:
        terminal.echo(hosts.describe_solitude())
    for text, colour in host_table.note_lines(hosts, rows):
        click.echo(terminal.style(plain(text), fg=colour or None))
