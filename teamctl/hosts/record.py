"""The configuration data of a broker: its addresses, and the hosts of each team."""

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
    """The configuration data of a broker.

    Attributes:
        id: distinguishes this broker from others on the machine.
        listen: the listening address, `HOST:PORT`.
        addresses: host names and IP addresses by which hosts reach it; its certificate is for
            these.
        teams: for each team its hosts, each with a serial that is never reused. Certificates
            contain name and serial, so a removed certificate stays invalid when another host gets
            the name.
        revision: a random value that changes with each change.
    """

    id: str
    listen: str
    addresses: tuple[str, ...]
    teams: Mapping[str, Mapping[str, str]]
    revision: str = ""

    @property
    def port(self) -> int:
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
        return self._with(team, {**self.teams.get(team, {}), host: _new_serial()})

    def without_host(self, team: str, host: str) -> Self:
        """Return the record without a host."""
        return self._with(team, {k: v for k, v in self.teams[team].items() if k != host})

    def with_addresses(self, more: Iterable[str], *, without: Collection[str] = ()) -> Self:
        """Return the record with more addresses, and without some of the existing ones."""
        every = dict.fromkeys((*(one for one in self.addresses if one not in without), *more))
        return replace(self, addresses=tuple(every), revision=_new_serial())

    def _with(self, team: str, hosts: Mapping[str, str]) -> Self:
        return replace(self, teams={**self.teams, team: hosts}, revision=_new_serial())

    def encode(self) -> bytes:
        known = {"format": FORMAT, "id": self.id, "listen": self.listen}
        document = {**known, "addresses": self.addresses, "teams": self.teams}
        document["revision"] = self.revision
        return json.dumps(document, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a record.

        Raises:
            ValueError: the data is invalid or from a later version.
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
    """Return whether the address means all addresses of the machine."""
    return host in ("0.0.0.0", "::")  # noqa: S104 -- compared, not bound


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_address(name: str, port: int) -> str:
    """Return a server's address for the settings."""
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"
