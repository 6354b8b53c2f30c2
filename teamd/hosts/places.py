"""Addresses on other hosts, and the files of `.team/hosts/` if `[hosts]` names this host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.messages import NAME

_PARTS = 3


@dataclass(frozen=True, slots=True)
class HostAddress:
    """The address of a teammate on another host: a name, its team and its host in lower case."""

    name: str
    team: str
    host: str

    def __str__(self) -> str:
        return f"{self.name}@{self.team}@{self.host}"


def parse_address(text: str) -> HostAddress | None:
    """Parse `name@team@host`; `None` for any other text, such as `name@team`."""
    parts = text.split("@")
    if len(parts) != _PARTS or not all(map(NAME.fullmatch, parts)):
        return None
    name, team, host = parts
    return HostAddress(name, team, host.lower())


def is_far(sender: str) -> bool:
    """Return whether the sender of mail or a request is on another host."""
    return sender.count("@") == _PARTS - 1


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """The layout of a team's `hosts` folder. Host names are in lower case."""

    paths: TeamPaths

    @property
    def root(self) -> Path:
        """The root of the layout."""
        return self.paths.hosts

    @property
    def name(self) -> Path:
        """The name that this host had at its postman's last start."""
        return self.root / "name"

    @property
    def folder_id(self) -> Path:
        """The random id of this folder, by which other hosts notice that it was lost."""
        return self.root / "folder"

    @property
    def outboxes(self) -> Path:
        """The folder of mail for other hosts, one file per host."""
        return self.root / "outbox"

    @property
    def rosters(self) -> Path:
        """The folder of each host's last roster."""
        return self.root / "rosters"

    @property
    def state(self) -> Path:
        """The postman's view of the other hosts."""
        return self.root / "state.json"

    @property
    def postman(self) -> Path:
        """The file that the postman keeps locked while it runs."""
        return self.root / "postman.lock"

    @property
    def log(self) -> Path:
        """The postman's log; the dot excludes a teammate's name."""
        return self.paths.log("teamd.postman")

    @property
    def keys(self) -> Path:
        """The folder of the certificate and key."""
        return self.root / "keys"

    def outbox(self, host: str) -> Path:
        """Return the path of mail to a host, see `outbox`."""
        return self.outboxes / f"{host}.jsonl"

    def confirmed(self, host: str) -> Path:
        """Return the path of the position up to which a host has confirmed this host's mail."""
        return self.root / "confirmed" / f"{host}.json"

    def received(self, host: str) -> Path:
        """Return the path of the number of messages that came from a host."""
        return self.root / "received" / f"{host}.json"

    def roster(self, host: str) -> Path:
        """Return the path of a host's last roster."""
        return self.rosters / f"{host}.json"

    def known(self) -> list[str]:
        """Return the hosts that occur in file names: mail, positions and rosters."""
        files = directories.list_files(self.root, "*/*.json*")
        kept = {self.outboxes, self.rosters, self.root / "confirmed", self.root / "received"}
        return sorted({path.name.partition(".")[0] for path in files if path.parent in kept})

    def remove_files(self, host: str) -> None:
        """Remove all files about a host, including mail for it."""
        for folder in ("confirmed", "received", "rosters", "outbox"):
            for path in directories.list_files(self.root / folder, f"{host}.*"):
                files.remove(path)

    def create(self) -> None:
        """Create the folders and make their names durable.

        Raises:
            StoreError: they cannot be created.
        """
        below = (self.confirmed(""), self.received(""), self.roster(""))
        folders = [self.root, *(path.parent for path in below), self.outboxes]
        if all(map(directories.is_directory, folders)):
            return
        for folder in folders:
            directories.make_private_directory(folder)
        for folder in (self.paths.root, self.root):
            with translate_os_errors(folder):
                directories.sync_directory(folder)


def needs_renewal(paths: TeamPaths) -> bool:
    """Return whether this host's broker has a configuration without JetStream.

    A version that kept no mail in the broker has written it.
    """
    try:
        found = files.read(HostPlaces(paths).keys / "broker" / "nats-server.conf")
    except StoreError:
        return False
    return found is not None and b"\njetstream" not in found


def explain_renewal(paths: TeamPaths) -> str | None:
    """Return a sentence with a remedy if this host's broker needs a renewal, or `None`."""
    if not needs_renewal(paths):
        return None
    return paths.add_team_option(
        "the broker's configuration is of an earlier version, so mail to other hosts waits; "
        "run `teamctl hosts init --renew`, then restart the broker"
    )
