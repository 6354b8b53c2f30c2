"""The token file for another host, with all that it needs to join the team."""

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
    """The file was not written by `hosts add`; `str()` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The data that a host needs to join a team on several hosts.

    Attributes:
        team: the team's name.
        name: the host's name.
        servers: addresses of the broker.
        cert: the host's certificate, in PEM.
        key: the key of that certificate.
        ca: the certificate of the issuing CA.
    """

    team: str
    name: str
    servers: tuple[str, ...]
    cert: str
    key: str
    ca: str

    def encode(self) -> bytes:
        return json.dumps({_KIND: _FORMAT, **asdict(self)}, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, *, place: str) -> Self:
        """Decode an untrusted token file.

        Args:
            data: the content of the file.
            place: its name, for error messages.

        Raises:
            NotAToken: the data is invalid or from a later version.
        """
        again = "`teamctl hosts add NAME` on the broker's host writes one"
        try:
            found = json.loads(data)
            version = found[_KIND]
            if version != _FORMAT:
                raise NotAToken(
                    f"{place} is from another version of teamd; install the same version on both"
                )
            words = {key: _text(found[key]) for key in ("team", "name", "cert", "key", "ca")}
            token = cls(servers=tuple(map(_server, found["servers"])), **words)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise NotAToken(f"{place} is not a host token, or is damaged; {again}") from error
        if not (NAME.fullmatch(token.team) and NAME.fullmatch(token.name) and token.servers):
            raise NotAToken(f"{place} is not a host token, or is damaged; {again}")
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
