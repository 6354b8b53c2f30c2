"""Generate the configuration of nats-server, and a systemd unit for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamctl.hosts.record import BrokerRecord

MAX_PAYLOAD: Final = 1 << 20
_HEAD: Final = """\
# Written by `teamctl hosts`, which overwrites it. A plain router: it stores nothing.
"""
_LIMITS: Final = f"""\
max_payload: {MAX_PAYLOAD}
max_pending: {16 << 20}
max_connections: 1024
max_subscriptions: 16
write_deadline: "5s"
# A host whose line is cut is dropped after some 6 s.
ping_interval: "2s"
ping_max: 2
"""
_WITNESS: Final = "teamd:witness"  # not a valid team name
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

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """The files of a broker, in a folder that only its owner can read."""

    folder: Path

    @property
    def record(self) -> Path:
        """The broker's record."""
        return self.folder / "broker.json"

    @property
    def ca_cert(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """The key of the CA, whose holder can act as any host."""
        return self.folder / "ca.key"

    @property
    def cert(self) -> Path:
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def configuration(self) -> Path:
        """The configuration file of nats-server."""
        return self.folder / "nats-server.conf"

    @property
    def pid(self) -> Path:
        """The pid file of nats-server."""
        return self.folder / "nats-server.pid"

    def unit(self, team: str, record: BrokerRecord) -> Path:
        return self.folder / f"teamd-broker-{team}-{record.id}.service"


def configuration(files: BrokerFiles, record: BrokerRecord) -> str:
    """Return the configuration: mutual TLS, an account for each team, a user for each host.

    A user is identified by its certificate; clients without one are refused. A host may only
    publish in its own name and subscribe to its own mail.
    """
    tls = {
        "cert_file": str(files.cert),
        "key_file": str(files.key),
        "ca_file": str(files.ca_cert),
    }
    lines = [f"  {key}: {_quoted(value)}" for key, value in tls.items()]
    accounts = "".join(_account(record, team) for team in record.teams) + _witness(record)
    return (
        f"{_HEAD}"
        f"server_name: {_quoted(f'teamd-{record.id}')}\n"
        f"listen: {_quoted(record.listen)}\n"
        f"pid_file: {_quoted(str(files.pid))}\n"
        f"{_LIMITS}"
        f"tls {{\n{chr(10).join(lines)}\n  verify_and_map: true\n  timeout: 5\n}}\n"
        f"accounts {{\n{accounts}}}\n"
    )


def unit(files: BrokerFiles, record: BrokerRecord, team: str, program: str) -> str:
    """Return a systemd user unit for nats-server."""
    return _UNIT.format(
        unit=files.unit(team, record),
        team=team,
        program=_for_systemd(program),
        configuration=_for_systemd(str(files.configuration)),
    )


def _witness(record: BrokerRecord) -> str:
    """Return an account for the witness alone, whose user has no permissions."""
    nothing = 'publish: { deny: [">"] }, subscribe: { deny: [">"] }'
    user = f"{{ user: {_quoted(record.witness)}, permissions: {{ {nothing} }} }}"
    return f"  {_quoted(_WITNESS)} {{\n    users: [ {user} ]\n  }}\n"


def _account(record: BrokerRecord, team: str) -> str:
    users = "".join(_user(record.user(team, host), host) for host in record.teams[team])
    return f"  {_quoted(team)} {{\n    users: [\n{users}    ]\n  }}\n"


def _user(user: str, host: str) -> str:
    """Return a user's line. Subjects are in lower case, because host names ignore case."""
    host = host.lower()
    publish, subscribe = [f"mail.*.{host}", f"roster.{host}"], [f"mail.{host}.*", "roster.*"]
    allowed = f"publish: {{ allow: {json.dumps(publish)} }}"
    allowed += f", subscribe: {{ allow: {json.dumps(subscribe)} }}"
    return f"      {{ user: {_quoted(user)}, permissions: {{ {allowed} }} }}\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _for_systemd(text: str) -> str:
    """Quote a word of a command line in a unit, in which systemd expands `%` and `$`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("%", "%%").replace("$", "$$") + '"'
