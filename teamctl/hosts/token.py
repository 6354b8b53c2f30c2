"""The file that is carried to another host: all it needs to belong to the team."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self
from urllib.parse import urlsplit

from teamd.errors import TeamError
from teamd.messages import NAME

_FORMAT: Final = 1
_KIND: Final = "teamd_hosts_token"
MAX_BYTES: Final = 1 << 16


class NotAToken(TeamError):
    """A file that no `hosts add` has written; `str()` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a host needs to belong to a team over several hosts.

    Attributes:
        team: the team's name.
        name: the host's.
        servers: addresses of the broker.
        cert: the host's certificate, in PEM.
        key: that belongs to it.
        ca: the certificate of who issued it.
    """

    team: str
    name: str
    servers: tuple[str, ...]
    cert: str
    key: str
    ca: str

    def encode(self) -> bytes:
        """Return it as it stands in its file."""
        return json.dumps({_KIND: _FORMAT, **asdict(self)}, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, *, place: str) -> Self:
        """Read it from a file, which may come from anybody.

        Args:
            data: of the file.
            place: its name, for the sentences.

        Raises:
            NotAToken: it is none, or one of a later version.
        """
        again = "`teamctl hosts add NAME` on the broker's host writes one"
        try:
            found = json.loads(data)
            version = found[_KIND]
            if version != _FORMAT:
                raise NotAToken(f"{place} is of another version of teamd; install the same on both")
            words = {key: _text(found[key]) for key in ("team", "name", "cert", "key", "ca")}
            token = cls(servers=tuple(map(_server, found["servers"])), **words)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise NotAToken(f"{place} is no token of a host, or damaged; {again}") from error
        if not (NAME.fullmatch(token.team) and NAME.fullmatch(token.name) and token.servers):
            raise NotAToken(f"{place} is no token of a host, or damaged; {again}")
        return token


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _server(value: Any) -> str:
    parts = urlsplit(_text(value))
    if parts.scheme != "tls" or not parts.hostname or not parts.port:
        raise ValueError("no address of a broker")
    return f"tls://{parts.netloc}"
