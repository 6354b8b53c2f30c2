"""The files of `.team/hosts/`, which are only created if `[hosts]` names this host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from teamd.errors import translate_os_errors
from teamd.files import directories
from teamd.files.paths import TeamPaths


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
        """Return the path of a host's confirmed position in its outbox."""
        return self.root / "confirmed" / f"{host}.json"

    def received(self, host: str) -> Path:
        """Return the path of the position up to which a host's outbox was received."""
        return self.root / "received" / f"{host}.json"

    def roster(self, host: str) -> Path:
        """Return the path of a host's last roster."""
        return self.rosters / f"{host}.json"

    def answer(self, request: str) -> Path:
        """Return the path of a host's answer to a command."""
        return self.root / "answers" / f"{request}.json"

    def known(self) -> list[str]:
        """Return the hosts that occur in file names: mail, cursors and rosters."""
        files = directories.list_files(self.root, "*/*.json*")
        kept = {self.outboxes, self.rosters, self.root / "confirmed", self.root / "received"}
        return sorted({path.name.partition(".")[0] for path in files if path.parent in kept})

    def create(self) -> None:
        """Create the folders and make their names durable.

        Raises:
            StoreError: they cannot be created.
        """
        below = (self.confirmed(""), self.received(""), self.roster(""), self.answer(""))
        folders = [self.root, *(path.parent for path in below), self.outboxes]
        if all(map(directories.is_directory, folders)):
            return
        for folder in folders:
            directories.make_private_directory(folder)
        for folder in (self.paths.root, self.root):
            with translate_os_errors(folder):
                directories.sync_directory(folder)
