"""Set up a team on several hosts: `teamctl hosts init`, `join`, `add`, `remove` and `forget`."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from teamctl.hosts.broker import Broker, BrokerRecord, find_program, is_any
from teamctl.hosts.own_host import Keys, Token, join_with
from teamctl.mail.router import other_hosts
from teamd.command_line import terminal
from teamd.command_line.run import TeamOptions
from teamd.errors import StoreError, TeamError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import count_waiting
from teamd.hosts.places import HostPlaces, needs_renewal
from teamd.hosts.view import HostState, Views, postman_runs, read_views
from teamd.messages import NAME
from teamd.postman.connection import find_trouble
from teamd.settings.kinds import is_loopback
from teamd.team.teams import name_of

DEFAULT_LISTEN: Final = "0.0.0.0:4222"
_LISTEN: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_ADDRESS: Final = re.compile(
    r"(?!.{254})(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.(?!$)|$))+"
)
_LAST_PORT: Final = 65_535
_ELSEWHERE: Final = "192.0.2.1"  # reserved for documentation, so no packet gets there
_FORGET_SECONDS: Final = 5.0


class Report(NamedTuple):
    """The result of a command: lines for a person, facts for `--json`."""

    lines: Sequence[str]
    facts: Mapping[str, Any]


def init(
    choice: TeamOptions,
    *,
    name: str | None,
    listen: str | None,
    addresses: Sequence[str],
    hosts: Sequence[str],
) -> Report:
    """Set up this host as the broker's, with certificates for it and the other hosts.

    Raises:
        TeamError: nats-server is missing, a broker exists, or a name is taken or invalid.
    """
    program, paths = find_program(), choice.existing_or_here()
    team = name_of(paths, choice.settings(paths).team.name)
    own, *others = map(_check_host_name, (name or _name_of_machine(), *hosts))
    broker = Broker(Keys(paths).broker)
    if files.exists(broker.record):
        raise TeamError(
            "this host already has the broker; `teamctl hosts add NAME` adds a host, "
            "`teamctl hosts init --renew` makes a new certificate for the broker"
        )
    record = _new_record(listen or DEFAULT_LISTEN, addresses).with_host(team, own)
    record = record.changed(own={team: own})
    for host in others:
        if record.find(team, host) is not None:
            known = ", ".join(record.teams[team])
            raise TeamError(f"there is a host {host} already; the team's hosts are: {known}")
        record = record.with_host(team, host)
    with broker.changing():
        broker.create_authority(record)
        broker.certify_server(record)
        tokens = {host: _write_token(paths, broker, record, team, host) for host in others}
        token = msgspec.structs.replace(broker.issue(record, team, own), servers=(record.nearest,))
        _, trusted = join_with(choice, paths, token)
        broker.write(record)  # last: until then `init` can be repeated
    lines = [
        f"this host is {own} of the team {team}, and has the broker",
        f"the others reach it at {', '.join(record.servers)}",
        "next, start the broker, by one of:",
        f"  systemctl --user enable --now {shlex.quote(str(broker.unit(team, record)))}",
        f"  {program} -c {shlex.quote(str(broker.configuration))}",
        *_next_steps("then", trusted=trusted),
        *_explain_tokens(tokens),
    ]
    facts = {"name": own, "team": team, "servers": record.servers, "tokens": tokens}
    where = {"configuration": str(broker.configuration), "trusted": trusted}
    return Report(lines, {**facts, **where})


def renew(choice: TeamOptions, *, addresses: Sequence[str], without: Sequence[str]) -> Report:
    """Give the broker a new certificate, and write its configuration again.

    Args:
        choice: the team.
        addresses: additional addresses by which other hosts reach the broker.
        without: addresses to remove, such as a mistyped one.

    Raises:
        TeamError: this host has no broker, no address would be left, or the broker did not reload.
    """
    with _changing(choice) as (paths, team, broker, before):
        if unknown := [one for one in without if one not in before.addresses]:
            known = ", ".join(before.addresses)
            raise TeamError(f"{unknown[0]!r} is not one of its addresses: {known}")
        kept = [one for one in before.addresses if one not in without]
        every = tuple(dict.fromkeys((*kept, *map(_check_address, addresses))))
        if not every:
            raise TeamError("the broker needs at least one address; name another with --address")
        record, restart = before.changed(addresses=every), needs_renewal(paths)
        broker.certify_server(record)
        broker.write(record)
    said = f"the broker has a new certificate, for {', '.join(every)}"
    lines, facts = _reload(broker, record, {"addresses": every, "restart": restart}, said)
    unit, where = broker.unit(team, record).name, shlex.quote(str(broker.configuration))
    by_hand = f"end nats-server and start it again with -c {where}"
    restarting = f"restart the broker: `systemctl --user restart {unit}`, or {by_hand}"
    return Report([*lines, restarting] if restart else lines, facts)


def add(choice: TeamOptions, host: str) -> Report:
    """Add a host.

    Raises:
        TeamError: this host has no broker, the name is taken, or the broker did not reload.
    """
    with _changing(choice) as (paths, team, broker, before):
        if before.find(team, host) is not None:
            host = host.lower()
            raise TeamError(
                f"there is a host {host} already; "
                f"`teamctl hosts remove {host}` and `hosts add {host}` make another token for it"
            )
        host = _check_host_name(host)
        record = before.with_host(team, host)
        broker.write(record)
        token = _write_token(paths, broker, record, team, host)
    lines, facts = _reload(broker, record, {"host": host, "token": token})
    return Report([*lines, *_explain_tokens({host: token})], facts)


def remove(choice: TeamOptions, host: str) -> Report:
    """Remove a host.

    Raises:
        TeamError: this host has no broker, the host is unknown, or the broker did not reload.
    """
    with _changing(choice) as (paths, team, broker, before):
        found = before.find(team, host)
        if found is None:
            broker.write(before)  # completes an interrupted removal
            try:
                broker.reload(before)
            except TeamError as trouble:
                terminal.echo(f"warning: {trouble}", err=True)
            known = ", ".join(before.teams.get(team, {})) or "none"
            raise TeamError(f"no host named {host!r}; the team's hosts are: {known}")
        if found == before.own.get(team):
            raise TeamError(f"{found} is this host, which has the broker; it cannot be removed")
        record = before.without_host(team, found)
        broker.write(record)
        files.remove(Keys(paths).token(found))
    return _reload(broker, record, {"host": found}, f"{found} no longer belongs to the team")


def join(choice: TeamOptions, file: Path) -> Report:
    """Set up this machine as the token's host; repeating that changes nothing.

    Raises:
        TeamError: the file is not a valid token, or expired, or this host has another name or team.
    """
    token, paths = Token.read(file), choice.existing_or_here()
    team, name = token.team, token.name
    settings, trusted = join_with(choice, paths, token)
    troubles = asyncio.run(find_trouble(settings))
    if settings.servers != token.servers:
        kept, new = ", ".join(settings.servers), ", ".join(token.servers)
        troubles.append(f"[hosts] servers stays {kept}; the token names {new}")
    lines = [
        f"this host is {name} of the team {team} now",
        *_next_steps("next:", trusted=trusted),
        f"then delete {file}: who has it can act as {name}",
    ]
    facts = {"name": name, "team": team, "trusted": trusted, "warnings": troubles}
    return Report(lines, facts)


def forget(choice: TeamOptions, name: str) -> Report:
    """Remove all files about another host that will not come back, including mail for it.

    Raises:
        TeamError: the host is unknown, named in the settings, or reachable.
    """
    hosts = other_hosts(choice)
    host = hosts.check(name)
    if host in hosts.named:
        raise TeamError(f"[hosts] allow names {host}; remove it from team.toml first")
    runs = postman_runs(hosts.paths)
    if runs and hosts.view(host).state is HostState.REACHABLE:
        raise TeamError(
            f"{host} is reachable; `teamctl hosts remove {host}` on the broker's host shuts it out"
        )
    try:
        dropped = count_waiting(hosts.paths, host)
    except StoreError:  # damaged, and removed all the same
        dropped = None
    HostPlaces(hosts.paths).remove_files(host)
    if not runs:
        views = Views(hosts.paths)
        views.forget(host)
        views.write()
    elif not _postman_forgets(hosts, host):
        remedy = "`teamd reload` restarts it; then forget the host again"
        raise TeamError(f"the postman still knows {host}; {remedy}")
    said = [f"{host} is forgotten"]
    if dropped is None:
        said.append("what waited for it could not be read, and is dropped")
    elif dropped:
        lines = "a line" if dropped == 1 else f"{dropped} lines"
        said.append(f"dropped: {lines} that waited for it")
    return Report(said, {"host": host, "dropped": dropped})


def _postman_forgets(hosts: FarHosts, host: str) -> bool:
    """Wait until the running postman no longer shows the host."""

    def look() -> bool | None:
        return None if any(view.name == host for view in read_views(hosts.paths)) else True

    return wait_for(hosts.paths.hosts, look, timeout_seconds=_FORGET_SECONDS) is not None


@contextmanager
def _changing(choice: TeamOptions) -> Iterator[tuple[TeamPaths, str, Broker, BrokerRecord]]:
    """Lock this host's broker; yield the team, its name, the broker and its record.

    Raises:
        TeamError: this host has no broker.
    """
    paths = choice.existing()
    settings, broker = choice.settings(paths), Broker(Keys(paths).broker)
    team = name_of(paths, settings.team.name)
    broker.read()  # before its folder is created
    with broker.changing():
        record = broker.read()
        own = record.find(team, settings.hosts.name or "")
        if own is not None and team not in record.own:  # the record is of an earlier version
            record = record.changed(own={**record.own, team: own})
        yield paths, team, broker, record


def _reload(broker: Broker, record: BrokerRecord, facts: Mapping[str, Any], *said: str) -> Report:
    """Have the broker reload its configuration, and report that.

    Raises:
        TeamError: the broker runs, but did not reload.
    """
    runs, idle = broker.reload(record), "no broker runs here; it holds once one is started"
    applied = "the broker has taken it" if runs else idle
    return Report([*said, applied], {**facts, "broker_runs": runs})


def _next_steps(word: str, *, trusted: bool) -> list[str]:
    steps = [] if trusted else [f"{word} `teamctl trust`, since more in team.toml waits for it"]
    return [*steps, f"{word} `teamd start`, or `teamd reload` where it runs"]


def _explain_tokens(tokens: Mapping[str, str]) -> list[str]:
    """Return lines that say which file belongs on which host."""
    if not tokens:
        return ["`teamctl hosts add NAME` writes the file with which another host joins"]
    return [
        *(f"carry {file} to {host}, by scp or so" for host, file in tokens.items()),
        "there: `teamctl hosts join FILE`",
        "delete the file in both places then: who has it can act as that host",
    ]


def _write_token(
    paths: TeamPaths, broker: Broker, record: BrokerRecord, team: str, host: str
) -> str:
    """Issue a host's certificate, and write the token file for that host."""
    place = Keys(paths).token(host)
    directories.make_safe_directory(place.parent)
    files.replace(place, broker.issue(record, team, host).encode())
    return str(place)


def _check_host_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise TeamError(
            f"{name!r} cannot be a host's name; "
            "use up to 64 of A-Z a-z 0-9 _ - with a letter or digit first"
        )
    return name.lower()


def _new_record(listen: str, addresses: Sequence[str]) -> BrokerRecord:
    found = _LISTEN.fullmatch(listen)
    if found is None or not 0 < int(found[2]) <= _LAST_PORT:
        raise TeamError(
            f"{listen!r} is not an address to listen on; give HOST:PORT, such as {DEFAULT_LISTEN}"
        )
    host = found[1].strip("[]")
    if not _is_address(host):
        raise TeamError(f"{host!r} is not a name or IP address of this machine; give HOST:PORT")
    reached = tuple(map(_check_address, addresses)) or _reached_under(host)
    return BrokerRecord(id=secrets.token_hex(3), listen=listen, addresses=reached, teams={})


def _is_address(text: str) -> bool:
    """Return whether the text is an IP address or may be a host name."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return _ADDRESS.fullmatch(text) is not None and not text.rpartition(".")[2].isdigit()


def _check_address(address: str) -> str:
    if not _is_address(address):
        raise TeamError(f"{address!r} is not a name or IP address of a machine; leave out the port")
    return address


def _reached_under(host: str) -> tuple[str, ...]:
    """Return the addresses for other machines: the listening address, or name and IP address."""
    if not is_any(host):
        return ("localhost",) if is_loopback(host) else (host,)
    names = [one for one in (socket.gethostname(), _outward_number()) if _is_address(one)]
    return tuple(dict.fromkeys(names)) or ("localhost",)


def _outward_number() -> str:
    """Return the IP address of outgoing packets; empty if the machine has no network."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((_ELSEWHERE, 9))
        return str(asked.getsockname()[0])
    return ""


def _name_of_machine() -> str:
    """Return a recognizable name for this host."""
    first = socket.gethostname().partition(".")[0]
    return first if NAME.fullmatch(first) else "h1"
