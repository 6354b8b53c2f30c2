"""The files of `.team/hosts/`: made only where `[hosts]` names this host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from teamd.errors import translate_os_errors
from teamd.files import directories
from teamd.files.paths import TeamPaths


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """The layout of one team's `hosts` folder. Hosts' names are in lower case."""

    paths: TeamPaths

    @property
    def root(self) -> Path:
        """The folder of all of it."""
        return self.paths.hosts

    @property
    def name(self) -> Path:
        """What this host was called when its postman began last."""
        return self.root / "name"

    @property
    def outboxes(self) -> Path:
        """The folder of what is on its way to others, one file a host."""
        return self.root / "outbox"

    @property
    def rosters(self) -> Path:
        """The folder of the last roster of each host."""
        return self.root / "rosters"

    @property
    def state(self) -> Path:
        """What the postman knows of the other hosts."""
        return self.root / "state.json"

    @property
    def postman(self) -> Path:
        """Locked by the postman for as long as it lives."""
        return self.root / "postman.lock"

    @property
    def log(self) -> Path:
        """The postman's log; no teammate's name has a dot."""
        return self.paths.log("teamd.postman")

    @property
    def keys(self) -> Path:
        """The folder of certificate and key."""
        return self.root / "keys"

    def outbox(self, host: str) -> Path:
        """What is on its way to a host, see `outbox`."""
        return self.outboxes / f"{host}.jsonl"

    def confirmed(self, host: str) -> Path:
        """How much of that the host has confirmed."""
        return self.root / "confirmed" / f"{host}.json"

    def received(self, host: str) -> Path:
        """How much of a host's outbox has arrived here."""
        return self.root / "received" / f"{host}.json"

    def roster(self, host: str) -> Path:
        """The last roster of a host."""
        return self.rosters / f"{host}.json"

    def answer(self, request: str) -> Path:
        """What a host answered to a command of this one."""
        return self.root / "answers" / f"{request}.json"

    def known(self) -> list[str]:
        """The hosts that this one has mail for, had mail from, or saw in a roster."""
        files = directories.list_files(self.root, "*/*.json*")
        kept = {self.outboxes, self.rosters, self.root / "confirmed", self.root / "received"}
        return sorted({path.name.partition(".")[0] for path in files if path.parent in kept})

    def create(self) -> None:
        """Make the folders; their names are safe then.

        Raises:
            StoreError: they cannot be made.
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
