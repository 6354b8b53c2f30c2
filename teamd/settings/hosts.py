"""`[hosts]`: one team over several hosts, and what the others may ask of this one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from teamd.messages import NAME
from teamd.settings import kinds
from teamd.settings.kinds import ValueKind, Wrong, bare, higher, if_set, setting

OUTBOX_BYTES: Final = 67_108_864
ASKED: Final = ("spawn", "shutdown", "interrupt")  # what one host may ask of another
_SERVER: Final = re.compile(r"(?:nats|tls)://[^\s/?#@]+")
_SERVER_WORDS: Final = (
    'a list of addresses, such as ["tls://10.0.0.1:4222"] or ["tls://[fd00::1]:4222"]'
)
_ALLOW_WORDS: Final = 'a table of lists of hosts, such as { spawn = ["h1"] }'


def _are_servers(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    for one in value:
        if not (isinstance(one, str) and _is_server(one)):
            raise Wrong(f"must be {_SERVER_WORDS}; {json.dumps(one, default=str)} is none")
    return True


def _is_server(value: str) -> bool:
    """Return whether it is an address that a connection can be tried to."""
    try:
        parts = urlsplit(value)
        return bool(_SERVER.fullmatch(value) and parts.hostname and parts.port != 0)
    except ValueError:  # no port, or a number of IPv6 without its brackets
        return False


def _are_hosts(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(one, str) and NAME.fullmatch(one) for one in value)


def _is_allowance(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for what, hosts in value.items():
        if what not in ASKED:
            known = ", ".join(ASKED)
            raise Wrong(f"must be {_ALLOW_WORDS}; {bare(what)} is none of: {known}")
        if not _are_hosts(hosts):
            raise Wrong(f"must be {_ALLOW_WORDS}; {bare(what)} is no list of hosts' names")
    return True


HOST: Final = ValueKind(kinds.TEAM_NAME.words, kinds.TEAM_NAME.fits, lambda name, _: name.lower())
SERVERS: Final = ValueKind(
    _SERVER_WORDS,
    _are_servers,
    lambda value, _: tuple(value),
)
ALLOWANCE: Final = ValueKind(
    _ALLOW_WORDS,
    _is_allowance,
    lambda value, _: MappingProxyType(
        {what: tuple(host.lower() for host in hosts) for what, hosts in value.items()}
    ),
)

# It need not be there: without it mail to other hosts waits, and all else goes on.
PEM: Final = ValueKind(
    "the path of a file",
    lambda value: isinstance(value, str | Path) and bool(str(value).strip("\0 ")),
    lambda value, folder: Path(os.path.normpath(folder / Path(value))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """`[hosts]`: nothing of it is used until this host has a name. Names are in lower case."""

    name: str | None = setting(
        None, HOST, "this host's in the team; no two have the same", "h1", loosens=if_set
    )
    servers: tuple[str, ...] = setting(
        (), SERVERS, 'the broker: ["tls://10.0.0.1:4222"], or several', loosens=if_set
    )
    cert: Path | None = setting(
        None, PEM, "this host's certificate", ".team/hosts/keys/host.crt", loosens=if_set
    )
    key: Path | None = setting(
        None, PEM, "its key, which nobody else may read", ".team/hosts/keys/host.key",
        loosens=if_set,
    )  # fmt: skip
    ca: Path | None = setting(
        None, PEM, "what the broker's certificate is signed by", ".team/hosts/keys/ca.crt",
        loosens=if_set,
    )  # fmt: skip
    outbox_bytes: int = setting(
        OUTBOX_BYTES, kinds.WHOLE, "the most mail that waits for one host", loosens=higher
    )
    allow: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({}),
        metadata=kinds.key(
            ALLOWANCE,
            'what others may ask for: { spawn = ["h1"] }',
            loosens=if_set,
        ),
    )

    def allows(self, host: str, what: str) -> bool:
        """Return whether a host may ask for something here: one of `ASKED`."""
        return host.lower() in self.allow.get(what, ())
