"""What a broker is set up for: addresses, and the hosts of each team that it serves."""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

FORMAT: Final = 1
_SERIAL_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """A broker as it is set up.

    Attributes:
        id: tells this broker from others of the machine.
        listen: where it listens, `HOST:PORT`.
        addresses: names and numbers that hosts reach it under; its certificate is for these.
        teams: for each, its hosts, and for each of these a serial that is never used again: a
            certificate is for name and serial, so that one that was removed stays refused when
            another host gets the name.
        revision: another one at each change.
    """

    id: str
    listen: str
    addresses: tuple[str, ...]
    teams: Mapping[str, Mapping[str, str]]
    revision: str = ""

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.listen.rpartition(":")[2])

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses for `[hosts] servers` of other machines."""
        return tuple(server_address(one, self.port) for one in self.addresses)

    @property
    def nearest(self) -> str:
        """The address for `[hosts] servers` of the broker's own host."""
        host = self.listen.rpartition(":")[0].strip("[]")
        near = "localhost" if is_any(host) or is_loopback(host) else host
        return server_address(near, self.port)

    @property
    def witness(self) -> str:
        """The user that may nothing; a broker that admits it knows this very record."""
        return f"urn:teamd::{self.revision}"

    def user(self, team: str, host: str) -> str:
        """Return what a host's certificate says, and the configuration admits."""
        return f"urn:teamd:{team}:{host}:{self.teams[team][host]}"

    def find(self, team: str, host: str) -> str | None:
        """Return a host's name as it is written here; they are compared without case."""
        known = self.teams.get(team, {})
        return next((one for one in known if one.lower() == host.lower()), None)

    def with_host(self, team: str, host: str) -> Self:
        """Return it with one host more."""
        return self._with(team, {**self.teams.get(team, {}), host: _new_serial()})

    def without_host(self, team: str, host: str) -> Self:
        """Return it with one host less."""
        return self._with(team, {k: v for k, v in self.teams[team].items() if k != host})

    def with_addresses(self, more: Iterable[str], *, without: Collection[str] = ()) -> Self:
        """Return it with more addresses, and without some of those that it has."""
        every = dict.fromkeys((*(one for one in self.addresses if one not in without), *more))
        return replace(self, addresses=tuple(every), revision=_new_serial())

    def _with(self, team: str, hosts: Mapping[str, str]) -> Self:
        return replace(self, teams={**self.teams, team: hosts}, revision=_new_serial())

    def encode(self) -> bytes:
        """Return it as it stands in a file."""
        known = {"format": FORMAT, "id": self.id, "listen": self.listen}
        document = {**known, "addresses": self.addresses, "teams": self.teams}
        document["revision"] = self.revision
        return json.dumps(document, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read it from a file.

        Raises:
            ValueError: it is none, or one of a later version.
        """
        try:
            found = json.loads(data)
            if found["format"] != FORMAT:
                raise ValueError("it is of another version")
            teams = found["teams"].items()
            return cls(
                id=str(found["id"]),
                listen=str(found["listen"]),
                addresses=tuple(map(str, found["addresses"])),
                revision=str(found["revision"]),
                teams={str(team): dict(hosts) for team, hosts in teams},
            )
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError("it is damaged") from error


def _new_serial() -> str:
    return secrets.token_hex(_SERIAL_BYTES)


def is_any(host: str) -> bool:
    """Return whether to listen there is to listen on all addresses."""
    return host in ("0.0.0.0", "::")  # noqa: S104 -- compared, not bound


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_address(name: str, port: int) -> str:
    """Return a server's address for the settings."""
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"
