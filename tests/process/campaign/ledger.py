"""Compares acknowledged messages with the conversations."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from teamd.messages import LEAD, TEAMD, USER
from tests.e2e.harness import Project

_PAUSE_SECONDS: Final = 0.001


class RosterReader:
    """Reads the roster during a `with` block.

    Attributes:
        reads: the number of reads so far.
        torn: contents that were not a valid roster.
    """

    def __init__(self, config: Path) -> None:
        self._config = config
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.reads = 0
        self.torn: list[bytes] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            content = b"(gone)"
            try:
                content = self._config.read_bytes()
                assert json.loads(content)["members"]
            except (OSError, ValueError, KeyError, AssertionError):
                self.torn.append(content)
            self.reads += 1


Sent = tuple[str, str]  # (receiver, content); every content is unique


class Ledger:
    """The acknowledged and delivered messages of one campaign.

    Args:
        project: the project of the team.
        names: the teammates.
    """

    def __init__(self, project: Project, names: tuple[str, ...]) -> None:
        self._project = project
        self._names = names
        self.files: list[Path] = []  # of senders: one line for each acknowledged message
        self.commands: list[Sent] = []  # by `teamctl send` with exit status 0

    def acknowledged(self) -> set[Sent]:
        """Return the messages that were reported as sent to their senders."""
        found = set(self.commands)
        for file in self.files:
            if file.exists():
                lines = file.read_text(encoding="utf-8").split("\n")[:-1]
                found.update((to, content) for to, content in map(str.split, lines))
        for name in self._names:
            found.update(self._sent_by(name))
        return found

    def delivered(self) -> Counter[Sent]:
        """Count how often each message occurs in its receiver's conversation."""
        return Counter(
            (name, content) for name in (*self._names, LEAD) for content in self.read_by(name)
        )

    def read_by(self, name: str) -> list[str]:
        """Return the messages in a conversation in order.

        The conversation of `lead` is the person's.
        """
        return [
            message["content"]
            for record in self._records(USER if name == LEAD else name)
            if record["record"] == "mail"
            for message in record["messages"]
        ]

    def lost(self) -> list[Sent]:
        """Return the acknowledged messages that were not delivered."""
        return sorted(self.acknowledged() - set(self.delivered()))

    def doubled(self) -> list[Sent]:
        """Return the messages that were delivered more than once."""
        return sorted(sent for sent, times in self.delivered().items() if times > 1)

    def unseen(self, printed: str) -> list[str]:
        """Return the messages that are recorded as read by the person but were never displayed."""
        shown = set(printed.split())
        kept = (content for to, content in self.delivered() if to == LEAD)
        return sorted(content for content in kept if content not in shown)

    def torn(self) -> bytes:
        """Return invalid lines of the inboxes: half a message, or two joined."""
        paths = self._project.paths
        boxes = (paths.rejected(name) for name in (*self._names, LEAD, TEAMD))
        return b"".join(box.read_bytes() for box in boxes if box.exists())

    def replies(self, name: str) -> int:
        """Count the replies in a teammate's transcript."""
        return sum(record["record"] == "reply" for record in self._records(name))

    def _sent_by(self, name: str) -> Iterator[Sent]:
        calls: dict[str, dict[str, Any]] = {}
        for record in self._records(name):
            if record["record"] == "reply":
                calls = {b["id"]: b for b in record["content"] if b["type"] == "tool_use"}
            elif record["record"] == "result" and record["content"].startswith("sent to"):
                given = calls[record["tool_use_id"]]["input"]
                yield given["to"], given["content"]

    def _records(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the complete records; a killed writer may have left a torn line."""
        path = self._project.paths.transcript(name)
        for line in path.read_bytes().split(b"\n") if path.exists() else []:
            try:
                yield json.loads(line)
            except ValueError:
                continue
