"""A host's own keys, its section of `team.toml`, and the token from which both are made."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from teamctl.hosts import certificates
from teamctl.hosts.certificates import Pair
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.messages import NAME
from teamd.settings.load import read_file
from teamd.settings.schema import HOSTS, HostSettings
from teamd.settings.trust import TrustStore
from teamd.settings.write import init_text, with_keys
from teamd.team.teams import name_of

_FORMAT: Final = 1
_MAX_TOKEN_BYTES: Final = 1 << 16
_READABLE_FILE: Final = 0o644
_MODE_BITS: Final = 0o777
_NEW_TOKEN: Final = "`teamctl hosts add NAME` on the broker's host writes"  # noqa: S105 -- no secret


class NotAToken(TeamError):
    """The file was not written by `hosts add`; `str()` names it."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a host needs to join a team on several hosts.

    Attributes:
        team: the team's name.
        name: the host's name.
        servers: addresses of the broker.
        cert: the host's certificate, in PEM.
        key: the key of that certificate.
        ca: the certificate of the issuing CA.
    """

    format: int = msgspec.field(default=0, name="teamd_hosts_token")
    team: str = ""
    name: str = ""
    servers: tuple[str, ...] = ()
    cert: str = ""
    key: str = ""
    ca: str = ""

    def encode(self) -> bytes:
        current = msgspec.structs.replace(self, format=_FORMAT)
        return msgspec.json.format(msgspec.json.encode(current), indent=2) + b"\n"

    @classmethod
    def decode(cls, data: bytes, *, place: str) -> Self:
        """Decode an untrusted token file.

        Args:
            data: the content of the file.
            place: its name, for error messages.

        Raises:
            NotAToken: the data is invalid or from a later version.
        """
        try:
            token = msgspec.json.decode(data, type=cls)
            servers_fit = bool(token.servers) and all(map(_is_broker, token.servers))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            token, servers_fit = cls(), False
        if token.format not in (0, _FORMAT):
            raise NotAToken(
                f"{place} is from another version of teamd; install the same version on both"
            )
        names_fit = NAME.fullmatch(token.team) and NAME.fullmatch(token.name)
        if not (token.format and names_fit and servers_fit):
            raise NotAToken(f"{place} is not a host token, or is damaged; {_NEW_TOKEN} one")
        return token

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a token file, and check that its certificate can be used now.

        Raises:
            TeamError: the file is missing or invalid, or the certificate has expired.
        """
        with files.opened(file) as fd:
            if fd is None:
                raise TeamError(f"there is no file {file}; {_NEW_TOKEN} it")
            data = os.pread(fd, _MAX_TOKEN_BYTES + 1, 0)
        if len(data) > _MAX_TOKEN_BYTES:
            raise NotAToken(f"{file} is not a host token: it is too large")
        token = cls.decode(data, place=str(file))
        _check_certificate(token, file)
        return token


def _is_broker(server: str) -> bool:
    parts = urlsplit(server)
    return bool(parts.hostname and parts.port) and server == f"tls://{parts.netloc}"


def _check_certificate(token: Token, file: Path) -> None:
    pair = Pair(token.cert.encode(), token.key.encode())
    try:
        begin, end = certificates.validity(pair.cert)
        fits = certificates.belong_together(pair, token.ca.encode())
    except (ValueError, TypeError):
        fits = False
    if not fits:
        raise NotAToken(
            f"{file} holds a certificate and a key that do not belong together; "
            f"{_NEW_TOKEN} a new token"
        )
    if not begin <= datetime.now(UTC) <= end:
        raise TeamError(
            f"the certificate in {file} holds from {begin:%Y-%m-%d} to "
            f"{end:%Y-%m-%d}, but not now; check this machine's clock, or "
            f"`teamctl hosts remove {token.name}` and `hosts add {token.name}` on the broker's "
            "host make a new one"
        )


class Keys:
    """The paths of a host's certificate and keys, in a folder that only its owner can read."""

    def __init__(self, paths: TeamPaths) -> None:
        self.folder = HostPlaces(paths).keys
        self.cert, self.key = self.folder / "host.crt", self.folder / "host.key"
        self.ca = self.folder / "ca.crt"
        self.broker = self.folder / "broker"  # on the broker's host

    def token(self, host: str) -> Path:
        """Return the path of the token file for a host."""
        return self.folder / "tokens" / f"{host}.token"


def join_with(choice: TeamOptions, paths: TeamPaths, token: Token) -> tuple[HostSettings, bool]:
    """Write the keys, then the settings; all files are on disk when this returns.

    Returns:
        [hosts] with the host's former `servers`, if it had any; and whether it takes effect at the
        next start or reload, since nothing else in the file waits for the person's trust.

    Raises:
        TeamError: the settings here are those of another team, or of another host of the team.
            Nothing has been written.
    """
    file = paths.own_settings if choice.config is None else choice.settings_file(paths)
    old, reading = read_file(file), choice.read_settings(paths)
    called, known = reading.settings.team.name, reading.settings.hosts
    if called or paths.own_name or paths.config.exists():
        _check_team(name_of(paths, called), token.team)
    new = old
    if new is None:
        new = b"" if paths.own_name else init_text().encode()
    if not called and not paths.own_name:  # its folder may have another name on each host
        new = with_keys(new, "team", {"name": token.team}, path=file)
    kept = known.name == token.name and known.servers  # for example the local end of a tunnel
    keys, servers = Keys(paths), known.servers if kept else token.servers
    pem: dict[str, Any] = {"cert": keys.cert, "key": keys.key, "ca": keys.ca}
    relative = {name: os.path.relpath(place, file.parent) for name, place in pem.items()}
    section = {"name": token.name, "servers": list(servers), **relative}
    new = with_keys(new, HOSTS, section, path=file)
    paths.create()
    directories.make_safe_directory(keys.folder)
    for name in ("key", "cert", "ca"):
        files.replace(pem[name], getattr(token, name).encode())
    if new != old:
        if not reading.waiting:  # the person has just asked for the change
            TrustStore().confirm(file, new, earlier=old or b"")
        directories.remove_placeholder(file)
        mode = _READABLE_FILE if old is None else file.stat().st_mode & _MODE_BITS
        files.replace(file, new, mode=mode)
    return HostSettings(name=token.name, servers=servers, **pem), not reading.waiting


def _check_team(name: str, wanted: str) -> None:
    if name.lower() != wanted.lower():
        raise TeamError(
            f"the token is for the team {wanted}, and this one is called {name}; "
            f"join in the folder of {wanted}, or in an empty one"
        )
