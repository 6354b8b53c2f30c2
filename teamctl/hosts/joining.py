"""`teamctl hosts join`: set up another host of a team."""

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
    """The result of `join`.

    Attributes:
        token: the token that was used.
        trusted: whether the settings take effect at the next start or reload.
        troubles: why the broker is unreachable now, for each of its addresses.
    """

    token: Token
    trusted: bool
    troubles: list[str]


def join(choice: TeamOptions, file: Path) -> Joined:
    """Set up this machine as the token's host; repeating that changes nothing.

    Raises:
        TeamError: the file is not a valid token, or expired, or this host has another name or team.
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
        raise NotAToken(f"{file} is not a host token: it is too large")
    return Token.decode(data, place=str(file))
