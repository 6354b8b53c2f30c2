"""A team over several hosts: `teamctl hosts init`, `join`, `add`, `remove` and `forget`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from teamctl.hosts.extra import load
from teamctl.hosts.forgetting import forget as forget_host
from teamctl.hosts.record import BrokerRecord
from teamctl.mail.router import other_hosts
from teamctl.render import host_table, output, tables
from teamd.command_line import terminal
from teamd.command_line.options import SuggestingGroup, team_options
from teamd.command_line.run import TeamOptions
from teamd.command_line.terminal import plain
from teamd.errors import TeamError
from teamd.hosts.view import postman_runs
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamctl.hosts.broker_folder import BrokerFolder
    from teamctl.hosts.founding import Founded


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
    "--address",
    "addresses",
    multiple=True,
    metavar="NAME",
    help="A name or number that the others reach this host under; can be repeated.",
)
@click.option(
    "--drop-address",
    "without",
    multiple=True,
    metavar="NAME",
    help="With --renew: one that the others do not reach this host under.",
)
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
    founding = load("founding")
    if renew:
        if hosts or name or listen:
            raise click.UsageError("--renew can be combined only with --address and --drop-address")
        broker, record = founding.renew(choice, addresses=addresses, without=without)
        said = f"the broker has a new certificate, for {', '.join(record.addresses)}"
        _tell_change(said, {"addresses": record.addresses}, broker, record, as_json=as_json)
        return
    if without:
        raise click.UsageError("--drop-address can be used only with --renew")
    listen = listen or founding.DEFAULT_LISTEN
    made = founding.found(choice, name=name, listen=listen, addresses=addresses, hosts=hosts)
    if as_json:
        tokens = {host: str(file) for host, file in made.tokens.items()}
        facts = {"name": made.name, "team": made.team, "servers": made.record.servers}
        facts["configuration"] = str(made.broker.files.configuration)
        output.print_json({**facts, "tokens": tokens, "trusted": made.trusted})
    else:
        _tell_steps(made)


@command.command()
@click.argument("file")
@output.json_option
@team_options
def join(choice: TeamOptions, file: str, *, as_json: bool) -> None:
    """Join a team over several hosts with the FILE that `hosts init` or `add` wrote.

    It writes this host's keys, and [hosts] in team.toml. If there is no team, it creates one.
    """
    joined = load("joining").join(choice, Path(file))
    if as_json:
        facts = {"name": joined.token.name, "team": joined.token.team, "trusted": joined.trusted}
        output.print_json({**facts, "warnings": list(joined.troubles)})
        return
    terminal.echo(f"this host is {joined.token.name} of the team {joined.token.team} now")
    for line in joined.troubles:
        terminal.echo(f"warning: {line}", err=True)
    if not joined.trusted:
        click.echo("next: `teamctl trust`, since more in team.toml waits for it")
    click.echo("next: `teamd start`, or `teamd reload` where it runs")
    terminal.echo(f"then delete {file}: who has it can act as {joined.token.name}")


@command.command()
@click.argument("name")
@output.json_option
@team_options
def add(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Write a file with which another host, called NAME, joins. Run it on the broker's host."""
    added = load("membership").add(choice, name)
    facts = {"host": added.host, "token": str(added.token)}
    _tell_change("", facts, added.broker, added.record, as_json=as_json)
    if not as_json:
        _tell_tokens({added.host: added.token})


@command.command()
@click.argument("name")
@output.json_option
@team_options
def remove(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Shut the host NAME out: from now on the broker refuses its certificate.

    Run it on the broker's host. A host of that name that is added again gets another certificate.
    """
    membership = load("membership")
    try:
        removed = membership.remove(choice, name)
    except membership.NoSuchHost as error:
        try:  # finish a removal that was interrupted
            _reload(error.broker, error.record)
        except TeamError as trouble:
            terminal.echo(f"warning: {trouble}", err=True)
        raise
    said = f"{removed.host} no longer belongs to the team"
    facts = {"host": removed.host}
    _tell_change(said, facts, removed.broker, removed.record, as_json=as_json)


@command.command()
@click.argument("name")
@output.json_option
@team_options
def forget(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Forget host NAME, which will not come back: drop its waiting mail, and stop showing it.

    `teamctl hosts remove`, on the broker's host, shuts a host out; other hosts remember it until
    you run `teamctl hosts forget` there. A new host of that name starts fresh.
    """
    forgotten = forget_host(choice, name)
    if as_json:
        output.print_json({"host": forgotten.host, "dropped": forgotten.dropped})
        return
    terminal.echo(f"{forgotten.host} is forgotten")
    if forgotten.dropped is None:
        click.echo("what waited for it could not be read, and is dropped")
    elif forgotten.dropped:
        lines = "a line" if forgotten.dropped == 1 else f"{forgotten.dropped} lines"
        click.echo(f"dropped: {lines} that waited for it")


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
        click.echo(f"this host is {hosts.name}; no other was heard of yet")
    for text, colour in host_table.note_lines(hosts, rows):
        click.echo(terminal.style(plain(text), fg=colour or None))


def _tell_steps(made: Founded) -> None:
    unit = shlex.quote(str(made.broker.files.unit(made.team, made.record)))
    program = load("broker_folder").find_program()
    configuration = shlex.quote(str(made.broker.files.configuration))
    lines = [
        f"this host is {made.name} of the team {made.team}, and has the broker",
        f"the others reach it at {', '.join(made.record.servers)}",
        "next, start the broker, by one of:",
        f"  systemctl --user enable --now {unit}",
        f"  {program} -c {configuration}",
    ]
    if not made.trusted:
        lines.append("then `teamctl trust`, since more in team.toml waits for it")
    lines.append("then `teamd start`, or `teamd reload` where it runs")
    terminal.echo("\n".join(lines))
    _tell_tokens(made.tokens)


def _tell_tokens(tokens: dict[str, Path]) -> None:
    """Print which file belongs on which host."""
    if not tokens:
        click.echo("`teamctl hosts add NAME` writes the file with which another host joins")
        return
    for host, file in tokens.items():
        terminal.echo(f"carry {file} to {host}, by scp or so")
    click.echo("there: `teamctl hosts join FILE`")
    click.echo("delete the file in both places then: who has it can act as that host")


def _reload(broker: BrokerFolder, record: BrokerRecord) -> bool:
    """Have the broker reload its configuration; return whether a broker runs.

    Raises:
        TeamError: the broker runs, but did not reload.
    """
    reloading = load("reload")
    how = reloading.reload(broker, record)
    if how is reloading.Reload.UNKNOWN:
        raise TeamError(
            "the broker is running but has not loaded its new configuration; restart it: "
            f"{broker.files.configuration}"
        )
    in_force: bool = how is reloading.Reload.IN_FORCE
    return in_force


def _tell_change(
    said: str,
    facts: Mapping[str, Any],
    broker: BrokerFolder,
    record: BrokerRecord,
    *,
    as_json: bool,
) -> None:
    """Print a change of the broker's configuration, have the broker reload it, and print that."""
    if said and not as_json:
        terminal.echo(said)
    runs = _reload(broker, record)
    if as_json:
        output.print_json({**facts, "broker_runs": runs})
        return
    click.echo(
        "the broker has taken it" if runs else "no broker runs here; it holds once one is started"
    )
