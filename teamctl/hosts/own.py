"""A host's own keys and its section of `team.toml`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from teamctl.hosts import authority
from teamctl.hosts.authority import Pair
from teamctl.hosts.token import NotAToken, Token
from teamd.errors import TeamError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.settings.load import read_file
from teamd.settings.schema import HOSTS
from teamd.settings.trust import TrustStore
from teamd.settings.write import init_text, with_keys
from teamd.team.teams import name_of

if TYPE_CHECKING:
    from teamd.command_line.run import TeamOptions

_READABLE_FILE: Final = 0o644
_MODE_BITS: Final = 0o777


@dataclass(frozen=True, slots=True)
class Keys:
    """The paths of a host's certificate and keys, in a folder that only its owner can read."""

    paths: TeamPaths

    @property
    def folder(self) -> Path:
        return HostPlaces(self.paths).keys

    @property
    def cert(self) -> Path:
        return self.folder / "host.crt"

    @property
    def key(self) -> Path:
        return self.folder / "host.key"

    @property
    def ca(self) -> Path:
        """The certificate of the team's CA."""
        return self.folder / "ca.crt"

    @property
    def broker(self) -> Path:
        """The folder of the broker, on the broker's host."""
        return self.folder / "broker"

    def token(self, host: str) -> Path:
        """Return the path of the token file for a host."""
        return self.folder / "tokens" / f"{host}.token"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnChange:
    """A planned change of the settings file, computed before any write.

    Attributes:
        paths: the paths of the team.
        file: the settings file.
        old: its content; `None` if it does not exist.
        new: its new content.
        trusted: whether nothing else in the file waits for the person's trust.
        servers: the host's broker addresses: its former ones, if it had any.
    """

    paths: TeamPaths
    file: Path
    old: bytes | None
    new: bytes
    trusted: bool
    servers: tuple[str, ...]

    @classmethod
    def plan(
        cls, choice: TeamOptions, paths: TeamPaths, *, team: str, name: str, servers: Sequence[str]
    ) -> Self:
        """Compute the settings of the host `name`.

        Raises:
            TeamError: the settings here are those of another team, or of another host of the team.
        """
        file = paths.own_settings if choice.config is None else choice.settings_file(paths)
        old = read_file(file)
        reading = choice.read_settings(paths)
        begun = b"" if paths.own_name else init_text().encode()
        new = begun if old is None else old
        called = reading.settings.team.name
        if called or paths.own_name or paths.config.exists():
            _check_team(name_of(paths, called), team)
        if not called and not paths.own_name:  # its folder may have another name on each host
            new = with_keys(new, "team", {"name": team}, path=file)
        keys = Keys(paths)
        places = {"cert": keys.cert, "key": keys.key, "ca": keys.ca}
        relative = {name: os.path.relpath(place, file.parent) for name, place in places.items()}
        known = reading.settings.hosts
        if known.name == name and known.servers:  # for example the local end of a tunnel
            servers = known.servers
        told = {"name": name, "servers": list(servers), **relative}
        new = with_keys(new, HOSTS, told, path=file)
        return cls(
            paths=paths,
            file=file,
            old=old,
            new=new,
            trusted=not reading.waiting,
            servers=tuple(servers),
        )

    def make(self, token: Token) -> None:
        """Write the keys, then the settings; all files are on disk when this returns."""
        keys = Keys(self.paths)
        self.paths.create()
        directories.make_safe_directory(keys.folder)
        for place, text in ((keys.key, token.key), (keys.cert, token.cert), (keys.ca, token.ca)):
            files.replace(place, text.encode())
        if self.new == self.old:
            return
        if self.trusted:  # the person has just asked for the change
            TrustStore().confirm(self.file, self.new, earlier=self.old or b"")
        directories.remove_placeholder(self.file)
        mode = _READABLE_FILE if self.old is None else self.file.stat().st_mode & _MODE_BITS
        files.replace(self.file, self.new, mode=mode)


def _check_team(name: str, wanted: str) -> None:
    if name.lower() != wanted.lower():
        raise TeamError(
            f"the token is for the team {wanted}, and this one is called {name}; "
            f"join in the folder of {wanted}, or in an empty one"
        )


def check_token(token: Token, place: str) -> None:
    """Refuse a token with an unusable certificate.

    Raises:
        TeamError: the certificate has expired, or the token's parts do not match.
    """
    pair = Pair(token.cert.encode(), token.key.encode())
    try:
        valid = authority.validity(pair.cert)
        fits = authority.belong_together(pair, token.ca.encode())
    except (ValueError, TypeError) as error:
        raise _mixed(place) from error
    if not fits:
        raise _mixed(place)
    if not valid.covers(datetime.now(UTC)):
        raise TeamError(
            f"the certificate in {place} holds from {valid.begin:%Y-%m-%d} to "
            f"{valid.end:%Y-%m-%d}, but not now; check this machine's clock, or "
            f"`teamctl hosts remove {token.name}` and `hosts add {token.name}` on the broker's "
            "host make a new one"
        )


def _mixed(place: str) -> NotAToken:
    return NotAToken(
        f"{place} holds a certificate and a key that do not belong together; "
        "`teamctl hosts add NAME` on the broker's host writes a new token"
    )
