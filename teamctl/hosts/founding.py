"""`teamctl hosts init`: create a broker, a CA, and certificates for the first hosts."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamctl.hosts.broker_folder import BrokerFolder, find_program
from teamctl.hosts.own import Keys, OwnChange
from teamctl.hosts.record import BrokerRecord, is_any, is_loopback
from teamd.errors import TeamError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.messages import NAME
from teamd.team.teams import name_of

if TYPE_CHECKING:
    from teamd.command_line.run import TeamOptions

DEFAULT_LISTEN: Final = "0.0.0.0:4222"
_LISTEN: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_ADDRESS: Final = re.compile(
    r"(?!.{254})(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.(?!$)|$))+"
)
_ID_BYTES: Final = 3
_LAST_PORT: Final = 65_535
_ELSEWHERE: Final = "192.0.2.1"  # reserved for documentation, so no packet gets there


class NameTaken(TeamError):
    """Another host of the team has the name."""

    def __init__(self, name: str, hosts: Iterable[str]) -> None:
        known = ", ".join(hosts)
        super().__init__(f"there is a host {name} already; the team's hosts are: {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Founded:
    """The result of `init`.

    Attributes:
        broker: the broker's folder.
        record: the broker's record.
        team: the team's name.
        name: the name of this host.
        tokens: the files to take to the other hosts, by host.
        trusted: whether the changed settings take effect at the next start or reload.
    """

    broker: BrokerFolder
    record: BrokerRecord
    team: str
    name: str
    tokens: dict[str, Path]
    trusted: bool


def found(
    choice: TeamOptions,
    *,
    name: str | None,
    listen: str,
    addresses: Sequence[str],
    hosts: Sequence[str],
) -> Founded:
    """Set up this host as the broker's, with certificates for it and the other hosts.

    Raises:
        TeamError: nats-server is missing, a broker exists, or a name is taken or invalid.
    """
    find_program()
    paths = choice.existing_or_here()
    settings = choice.settings(paths)
    team = name_of(paths, settings.team.name)
    own, hosts = check_host_name(name or _name_of_machine()), list(map(check_host_name, hosts))
    broker = BrokerFolder(Keys(paths).broker)
    if broker.read() is not None:
        raise TeamError(
            "this host already has the broker; `teamctl hosts add NAME` adds a host, "
            "`teamctl hosts init --renew` makes a new certificate for the broker"
        )
    record = _new_record(listen, addresses)
    for host in (own, *hosts):
        record = with_new_host(record, team, host)
    change = OwnChange.plan(choice, paths, team=team, name=own, servers=[record.nearest])
    paths.create()
    with broker.changing():
        broker.found(record)
        broker.certify_server(record)
        tokens = {host: write_token(paths, broker, record, team, host) for host in hosts}
        change.make(broker.issue(record, team, own))
        broker.write(record)  # last: until then `init` can be repeated
    return Founded(
        broker=broker, record=record, team=team, name=own, tokens=tokens, trusted=change.trusted
    )


def renew(
    choice: TeamOptions, *, addresses: Sequence[str], without: Sequence[str] = ()
) -> tuple[BrokerFolder, BrokerRecord]:
    """Give the broker a new certificate.

    Args:
        choice: the team.
        addresses: additional addresses by which other hosts reach the broker.
        without: addresses to remove, such as a mistyped one.

    Raises:
        TeamError: this host has no broker, or no address would be left.
    """
    paths = choice.existing()
    broker, _ = broker_of(paths)
    with broker.changing():
        _, record = broker_of(paths)
        unknown = next((one for one in without if one not in record.addresses), None)
        if unknown is not None:
            raise TeamError(
                f"{unknown!r} is not one of its addresses: {', '.join(record.addresses)}"
            )
        record = record.with_addresses(map(_check_address, addresses), without=without)
        if not record.addresses:
            raise TeamError("the broker needs at least one address; name another with --address")
        broker.certify_server(record)
        broker.write(record)
    return broker, record


def broker_of(paths: TeamPaths) -> tuple[BrokerFolder, BrokerRecord]:
    """Return this host's broker.

    Raises:
        TeamError: it has none.
    """
    broker = BrokerFolder(Keys(paths).broker)
    record = broker.read()
    if record is None:
        raise TeamError(
            "this host does not have the team's broker; run this where `teamctl hosts init` was "
            "run, "
            "or run that here first"
        )
    return broker, record


def with_new_host(record: BrokerRecord, team: str, host: str) -> BrokerRecord:
    """Return the record with one more host.

    Raises:
        NameTaken: a host has that name.
    """
    host = check_host_name(host)
    if record.find(team, host) is not None:
        raise NameTaken(host, record.teams[team])
    return record.with_host(team, host)


def write_token(
    paths: TeamPaths, broker: BrokerFolder, record: BrokerRecord, team: str, host: str
) -> Path:
    """Issue a host's certificate, and write the token file for that host."""
    place = Keys(paths).token(host)
    directories.make_safe_directory(place.parent)
    files.replace(place, broker.issue(record, team, host).encode())
    return place


def check_host_name(name: str) -> str:
    """Return `name`, in lower case, if it is valid for a host.

    Raises:
        TeamError: it is not 1 to 64 of `A-Z a-z 0-9 _ -` with a letter or digit first.
    """
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
    identity = secrets.token_hex(_ID_BYTES)
    return BrokerRecord(id=identity, listen=listen, addresses=reached, teams={})


def _is_address(text: str) -> bool:
    """Return whether the text is an IP address or may be a host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        last = text.rpartition(".")[2]
        return _ADDRESS.fullmatch(text) is not None and not last.isdigit()
    return True


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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((_ELSEWHERE, 9))
        except OSError:
            return ""
        return str(asked.getsockname()[0])


def _name_of_machine() -> str:
    """Return a recognizable name for this host."""
    first = socket.gethostname().partition(".")[0]
    return first if NAME.fullmatch(first) else "h1"
