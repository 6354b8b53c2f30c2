"""`teamctl hosts join`: all that a further host needs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from teamctl.hosts.own import Keys, OwnChange, check_token
from teamctl.hosts.token import MAX_BYTES, NotAToken, Token
from teamd.errors import TeamError
from teamd.files import files
from teamd.postman.broker import find_trouble
from teamd.postman.certificates import Certificates

if TYPE_CHECKING:
    from teamd.command_line.run import TeamOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """How a host has joined.

    Attributes:
        token: that it was done with.
        trusted: whether its settings are in force at the next start or reload.
        troubles: why the broker does not answer now, for each of its addresses.
    """

    token: Token
    trusted: bool
    troubles: list[str]


def join(choice: TeamOptions, file: Path) -> Joined:
    """Make this machine the host that a token is for; to do it again changes nothing.

    Raises:
        TeamError: it is no token, of another team, or expired; or this is another host already.
    """
    token = _read(file)
    check_token(token, str(file))
    paths = choice.existing_or_here()
    servers = list(token.servers)
    change = OwnChange.plan(choice, paths, team=token.team, name=token.name, servers=servers)
    change.make(token)
    keys = Keys(paths)
    certificates = Certificates(keys.cert, keys.key, keys.ca)
    troubles = asyncio.run(find_trouble(change.servers, certificates))
    if change.servers != token.servers:
        kept, new = ", ".join(change.servers), ", ".join(token.servers)
        troubles.append(f"[hosts] servers stays {kept}; the token names {new}")
    return Joined(token=token, trusted=change.trusted, troubles=troubles)


def _read(file: Path) -> Token:
    with files.opened(file) as fd:
        if fd is None:
            raise TeamError(
                f"there is no file {file}; `teamctl hosts add NAME` on the broker's host writes it"
            )
        data = os.pread(fd, MAX_BYTES + 1, 0)
    if len(data) > MAX_BYTES:
        raise NotAToken(f"{file} is no token of a host: it is too large")
    return Token.decode(data, place=str(file))
