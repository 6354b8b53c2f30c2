"""The broker of a team on its host: nats-server's folder, configuration, units and reload.

Commands that change the folder hold its lock. The record is written before the files derived from
it, so that an interrupted change cannot restore a removed host. The next change writes the rest.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec

from teamctl.hosts import certificates
from teamctl.hosts.certificates import Pair
from teamctl.hosts.own_host import Token
from teamd import programs
from teamd.errors import StoreError, TeamError, translate_os_errors
from teamd.files import directories, files, locks
from teamd.postman.connection import find_trouble
from teamd.process_id import Identity
from teamd.settings.kinds import is_loopback
from teamd.settings.schema import HostSettings

PROGRAM: Final = "nats-server"
MAX_PAYLOAD: Final = 1 << 20
_LIMITS: Final = {
    "max_payload": MAX_PAYLOAD,
    "max_pending": 16 << 20,
    "max_connections": 1024,
    "max_subscriptions": 64,
    "write_deadline": "5s",
    "ping_interval": "2s",  # a host whose line is cut is dropped after some 6 s
    "ping_max": 2,
}
_STORE_LIMITS: Final = {"max_memory_store": 64 << 20, "max_file_store": 16 << 30}
_FORMAT: Final = 1
_PLACES: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")  # also the local end of a tunnel
_CHECK_SECONDS: Final = 20.0
_RELOAD_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1

_UNIT: Final = """\
# A user unit:
#   systemctl --user enable --now {unit}
# It ends with your last session, unless `loginctl enable-linger` was called once.

[Unit]
Description=Broker of the team {team} (nats-server)

[Service]
ExecStart={program} -c {configuration}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
NoNewPrivileges=yes
LimitNOFILE=65536
UMask=0077

[Install]
WantedBy=default.target
"""


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration data of a broker.

    Attributes:
        id: distinguishes this broker from others on the machine.
        listen: the listening address, `HOST:PORT`.
        addresses: host names and IP addresses by which hosts reach it; its certificate is for
            these.
        teams: for each team its hosts, each with a serial that is never reused. Certificates
            contain name and serial, so a removed certificate stays invalid when another host gets
            the name.
        own: for each team the name of the broker's own host; a record of an earlier version lacks
            it.
        revision: a random value that changes with each change.
    """

    format: int = _FORMAT
    id: str
    listen: str
    addresses: tuple[str, ...]
    teams: dict[str, dict[str, str]]
    own: dict[str, str] = {}
    revision: str = ""

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses for `[hosts] servers` of other machines."""
        return tuple(_server_address(one, self.port) for one in self.addresses)

    @property
    def nearest(self) -> str:
        """The address for `[hosts] servers` of the broker's own host."""
        host = self.listen.rpartition(":")[0].strip("[]")
        near = "localhost" if is_any(host) or is_loopback(host) else host
        return _server_address(near, self.port)

    @property
    def witness(self) -> str:
        """A user without permissions; a broker that admits it uses this revision of the record."""
        return f"urn:teamd::{self.revision}"

    def user(self, team: str, host: str) -> str:
        """Return the user in a host's certificate, which the configuration admits."""
        return f"urn:teamd:{team}:{host}:{self.teams[team][host]}"

    def find(self, team: str, host: str) -> str | None:
        """Return a host's name in its recorded spelling, ignoring case, or `None`."""
        known = self.teams.get(team, {})
        return next((one for one in known if one.lower() == host.lower()), None)

    def with_host(self, team: str, host: str) -> Self:
        """Return the record with one more host."""
        hosts = {**self.teams.get(team, {}), host: _new_serial()}
        return self.changed(teams={**self.teams, team: hosts})

    def without_host(self, team: str, host: str) -> Self:
        """Return the record without a host."""
        left = {name: serial for name, serial in self.teams[team].items() if name != host}
        return self.changed(teams={**self.teams, team: left})

    def changed(self, **changes: object) -> Self:
        """Return the record with these fields, and with a new revision."""
        return msgspec.structs.replace(self, revision=_new_serial(), **changes)

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a record.

        Raises:
            ValueError: the data is invalid or from a later version.
        """
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ValueError("it is damaged") from error
        if found.format != _FORMAT:
            raise ValueError("it is of another version")
        return found


class Broker:
    """A broker's folder, which only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "broker.json"
        self.ca_cert, self.ca_key = folder / "ca.crt", folder / "ca.key"  # it can act as any host
        self.cert, self.key = folder / "server.crt", folder / "server.key"
        self.configuration = folder / "nats-server.conf"
        self.pid = folder / "nats-server.pid"
        self.store = folder / "jetstream"

    def unit(self, team: str, record: BrokerRecord) -> Path:
        """Return the path of the systemd user unit."""
        return self.folder / f"teamd-broker-{team}-{record.id}.service"

    def read(self) -> BrokerRecord:
        """Return the broker's record.

        Raises:
            TeamError: this host has no broker, or its record cannot be read.
        """
        data = files.read(self.record)
        if data is None:
            raise TeamError(
                "this host does not have the team's broker; run this where `teamctl hosts init` "
                "was run, or run that here first"
            )
        try:
            return BrokerRecord.decode(data)
        except ValueError as error:
            raise StoreError(f"{self.record}: {error}; restore it from a backup") from error

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Exclude other commands that change the same folder."""
        directories.make_safe_directory(self.folder)
        with locks.locked(self.folder / "broker.lock"):
            yield

    def create_authority(self, record: BrokerRecord) -> None:
        """Create a CA, unless there is one; it must precede everything that it signs."""
        if not files.exists(self.ca_cert):
            made = certificates.new_authority(f"teamd broker {record.id}")
            files.replace(self.ca_key, made.key)
            files.replace(self.ca_cert, made.cert)

    def certify_server(self, record: BrokerRecord) -> None:
        """Issue the broker's certificate for its current addresses."""
        names = dict.fromkeys((*record.addresses, *_LOCAL))
        pair = certificates.issue_server(self.authority(), f"teamd broker {record.id}", names)
        files.replace(self.key, pair.key)
        files.replace(self.cert, pair.cert)

    def issue(self, record: BrokerRecord, team: str, host: str) -> Token:
        """Issue a host's certificate, and return the host's token.

        Raises:
            StoreError: the CA is missing.
        """
        ca = self.authority()
        pair = certificates.issue_host(ca, host, record.user(team, host))
        cert, key, signer = pair.cert.decode(), pair.key.decode(), ca.cert.decode()
        return Token(team=team, name=host, servers=record.servers, cert=cert, key=key, ca=signer)

    def authority(self) -> Pair:
        """Return the CA.

        Raises:
            StoreError: it is missing.
        """
        cert, key = files.read(self.ca_cert), files.read(self.ca_key)
        if cert is None or key is None:
            where = self.folder
            raise StoreError(f"{where} has lost its CA; restore ca.crt and ca.key from a backup")
        return Pair(cert, key)

    def write(self, record: BrokerRecord) -> None:
        """Write the record, and the configuration and units derived from it.

        Raises:
            TeamError: nats-server rejects the configuration.
        """
        program = find_program()
        text = render_configuration(self, record).encode()
        directories.make_safe_directory(self.store)
        _check_configuration(program, self.configuration.with_suffix(".tried"), text)
        files.replace(self.record, record.encode())
        files.replace(self.configuration, text)
        for team in record.teams:
            unit = render_unit(self, record, team, program)
            files.replace(self.unit(team, record), unit.encode())

    def reload(self, record: BrokerRecord) -> bool:
        """Make a running broker reload its configuration and drop hosts that are not admitted.

        nats-server does not report whether it has reloaded. So each revision of the configuration
        admits a witness user that no other revision admits; a successful login shows that it is in
        force.

        Returns:
            Whether a broker runs.

        Raises:
            TeamError: it runs but has not reloaded.
        """
        process = self._find_process()
        signalled = process is not None and process.signal(signal.SIGHUP)
        if not signalled and not _listens(record):
            return False
        if not signalled or not asyncio.run(self._admits_witness(record)):
            raise TeamError(
                "the broker is running but has not loaded its new configuration; restart it: "
                f"{self.configuration}"
            )
        return True

    def _find_process(self) -> Identity | None:
        """Return the process of nats-server with this configuration, if it runs."""
        try:
            pid = int(files.read(self.pid) or b"")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (ValueError, OSError):
            return None
        ours = str(self.configuration).encode()
        return Identity.of(pid) if any(word.endswith(ours) for word in words) else None

    async def _admits_witness(self, record: BrokerRecord) -> bool:
        lifetime = timedelta(hours=1)
        pair = certificates.issue_host(self.authority(), "witness", record.witness, lifetime)
        cert, key, ca = self.folder / "witness.crt", self.folder / "witness.key", self.ca_cert
        servers = (record.nearest,)
        settings = HostSettings(name="witness", servers=servers, cert=cert, key=key, ca=ca)
        try:
            files.replace(cert, pair.cert, durable=False)
            files.replace(key, pair.key, durable=False)
            async with asyncio.timeout(_RELOAD_SECONDS):
                while await find_trouble(settings):  # noqa: ASYNC110 -- it is another process
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            return False
        finally:
            files.remove(cert)
            files.remove(key)
        return True


def _listens(record: BrokerRecord) -> bool:
    """Return whether a server listens there, such as a broker that was started in another way."""
    place = urlsplit(record.nearest)
    try:
        socket.create_connection((place.hostname, place.port), timeout=_RELOAD_SECONDS).close()
    except OSError as error:
        return isinstance(error, TimeoutError)
    return True


def find_program(others: Sequence[str] = _PLACES) -> str:
    """Return the path of nats-server; Debian installs it outside a user's PATH.

    Raises:
        TeamError: it is not installed.
    """
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=os.pathsep.join(others))
    if found is None:
        raise TeamError(
            "nats-server, which carries the mail between hosts, is not installed here; "
            "`apt-get install nats-server` installs it (others: nats.io)"
        )
    return found


def _check_configuration(program: str, configuration: Path, text: bytes) -> None:
    """Let nats-server validate a configuration in a temporary file."""
    files.replace(configuration, text, durable=False)
    argv = [program, "-t", "-c", str(configuration)]
    try:
        with translate_os_errors(Path(program)):
            ended = asyncio.run(programs.capture(argv, timeout_seconds=_CHECK_SECONDS))
    finally:
        files.remove(configuration)
    if ended.status != 0:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip().splitlines()
        why = said[-1] if said else f"exit status {ended.status}"
        raise TeamError(f"{program} does not accept {configuration}: {why}")


def render_configuration(broker: Broker, record: BrokerRecord) -> str:
    """Return nats-server's configuration: an account for each team, a user for each host.

    A user is identified by its certificate; clients without one are refused.
    """
    nothing = {"publish": {"deny": [">"]}, "subscribe": {"deny": [">"]}}
    witness = {"users": [{"user": record.witness, "permissions": nothing}]}
    teams = {team: _render_team(record, team) for team in record.teams}
    files_of_tls = {"cert_file": broker.cert, "key_file": broker.key, "ca_file": broker.ca_cert}
    facts: dict[str, object] = {
        "server_name": f"teamd-{record.id}",
        "listen": record.listen,
        "pid_file": broker.pid,
        **_LIMITS,
        "jetstream": {"store_dir": broker.store, **_STORE_LIMITS},
        "tls": {**files_of_tls, "verify_and_map": True, "timeout": 5},
        "accounts": {**teams, "teamd:witness": witness},  # not a valid team name
    }
    as_json = partial(json.dumps, default=str, ensure_ascii=False, indent=2)
    lines = (f"{key}: {as_json(value)}\n" for key, value in facts.items())
    return "# Written by `teamctl hosts`, which overwrites it.\n" + "".join(lines)


def _render_team(record: BrokerRecord, team: str) -> dict[str, object]:
    users = []
    for host in record.teams[team]:
        publish, subscribe = _permissions(host.lower())
        if record.own.get(team) == host:
            publish.append("$JS.API.>")  # it creates the stream and the buckets
        permissions = {
            "publish": {"allow": publish},
            "subscribe": {"allow": subscribe},
            "allow_responses": {"max": 1, "expires": "2h"},  # the answer to a command
        }
        users.append({"user": record.user(team, host), "permissions": permissions})
    return {"jetstream": "enabled", "users": users}


def _permissions(host: str) -> tuple[list[str], list[str]]:
    """Return the subjects to which a host may publish, and to which it may subscribe.

    The sending host is last in a subject. A host reads both buckets, but only its own mail.
    """
    api, mail = "$JS.API", f"mail.{host}"
    publish = [f"{kind}.*.{host}" for kind in ("mail", "command", "$KV.hosts", "$KV.confirmed")]
    publish += [f"{api}.INFO", f"{api}.STREAM.INFO.mail", f"{api}.CONSUMER.CREATE.{mail}.{mail}.*"]
    publish += [f"{api}.CONSUMER.{call}.{mail}" for call in ("INFO", "MSG.NEXT")]
    for bucket in ("KV_hosts", "KV_confirmed"):
        publish += [f"{api}.STREAM.INFO.{bucket}", f"{api}.CONSUMER.CREATE.{bucket}"]
        publish += [f"{api}.CONSUMER.{call}.{bucket}.*" for call in ("INFO", "DELETE")]
    publish += [f"$JS.ACK.{mail}.>", "$JS.FC.>"]
    return publish, [f"_INBOX.{host}.>", f"command.{host}.*"]


def render_unit(broker: Broker, record: BrokerRecord, team: str, program: str) -> str:
    """Return a systemd user unit for nats-server."""
    program, configuration = map(_for_systemd, (program, str(broker.configuration)))
    unit = broker.unit(team, record)
    return _UNIT.format(unit=unit, team=team, program=program, configuration=configuration)


def _for_systemd(text: str) -> str:
    """Quote a word of a command line in a unit, in which systemd expands `%` and `$`."""
    for special, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        text = text.replace(special, escaped)
    return f'"{text}"'


def _new_serial() -> str:
    return secrets.token_hex(8)


def is_any(host: str) -> bool:
    """Return whether the address means all addresses of the machine."""
    return host in ("0.0.0.0", "::")  # noqa: S104 -- compared, not bound


def _server_address(name: str, port: int) -> str:
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"
