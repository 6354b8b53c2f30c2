"""Acknowledged messages, compared with the conversations."""

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
    """Reads from `with` to its end.

    Attributes:
        reads: how many so far.
        torn: contents that were not a whole roster.
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


Sent = tuple[str, str]  # receiver, content; every content is unique


class Ledger:
    """The books of one campaign.

    Args:
        project: the team's.
        names: the teammates.
    """

    def __init__(self, project: Project, names: tuple[str, ...]) -> None:
        self._project = project
        self._names = names
        self.files: list[Path] = []  # of senders: a line for each acknowledged message
        self.commands: list[Sent] = []  # by `teamctl send` with exit status 0

    def acknowledged(self) -> set[Sent]:
        """All messages whose sending was acknowledged."""
        found = set(self.commands)
        for file in self.files:
            if file.exists():
                lines = file.read_text(encoding="utf-8").split("\n")[:-1]
                found.update((to, content) for to, content in map(str.split, lines))
        for name in self._names:
            found.update(self._sent_by(name))
        return found

    def delivered(self) -> Counter[Sent]:
        """How often each message is in its receiver's conversation."""
        return Counter(
            (name, content) for name in (*self._names, LEAD) for content in self.read_by(name)
        )

    def read_by(self, name: str) -> list[str]:
        """All messages in a conversation, in its order; that of `lead` is the person's."""
        return [
            message["content"]
            for record in self._records(USER if name == LEAD else name)
            if record["record"] == "mail"
            for message in record["messages"]
        ]

    def lost(self) -> list[Sent]:
        """Acknowledged, and not there."""
        return sorted(self.acknowledged() - set(self.delivered()))

    def doubled(self) -> list[Sent]:
        """There more than once."""
        return sorted(sent for sent, times in self.delivered().items() if times > 1)

    def unseen(self, printed: str) -> list[str]:
        """Kept as read by the person, and never shown."""
        shown = set(printed.split())
        kept = (content for to, content in self.delivered() if to == LEAD)
        return sorted(content for content in kept if content not in shown)

    def torn(self) -> bytes:
        """Lines of inboxes that were no message: half of one, or two glued together."""
        paths = self._project.paths
        boxes = (paths.rejected(name) for name in (*self._names, LEAD, TEAMD))
        return b"".join(box.read_bytes() for box in boxes if box.exists())

    def replies(self, name: str) -> int:
        """How many replies a teammate's transcript holds."""
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
        """The whole lines; a killed writer may have torn one."""
        path = self._project.paths.transcript(name)
        for line in path.read_bytes().split(b"\n") if path.exists() else []:
            try:
                yield json.loads(line)
            except ValueError:
                continue
