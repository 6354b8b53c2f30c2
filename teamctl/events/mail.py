"""The events of mail that was sent: seen in an inbox, at the latest in the conversation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from teamctl.events.conversation import sent
from teamctl.events.event import Event
from teamctl.tail import GrowingFile
from teamd.files.paths import TeamPaths
from teamd.messages import TEAMD
from teamd.transcript.file import message_in, parse

_MOST_REMEMBERED: Final = 100_000
_REJECTED: Final = ".rejected.jsonl"
_TAKEN: Final = ".taken.jsonl"


class MailEvents:
    """Tells of each message once that it was sent.

    It looks into the inboxes without a lock: what it may miss, since its reader was faster, is told
    by `unless_told` when it stands in the conversation.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self._folder = paths.inboxes
        self._files: dict[Path, GrowingFile] = {}
        self._told: dict[tuple[str, ...], None] = {}

    def events(self) -> Iterator[Event]:
        """Yield what has been sent since the last look."""
        for path in sorted(self._folder.glob("*.jsonl")):
            to = path.name.removesuffix(_TAKEN).removesuffix(".jsonl")
            if to == TEAMD or path.name.endswith(_REJECTED):  # requests and reports are no mail
                continue
            for line in self._files.setdefault(path, GrowingFile(path)).lines():
                message = message_in(parse(line))
                if message is not None and message.id:  # without an id it gets one when it is read
                    yield from self.unless_told(sent(message, to))

    def unless_told(self, event: Event) -> Iterator[Event]:
        """Yield the event that a message was sent, unless that was told already."""
        key = tuple(str(event.facts[fact]) for fact in ("id", "from", "to"))
        if key not in self._told:
            self._told[key] = None
            if len(self._told) > _MOST_REMEMBERED:
                del self._told[next(iter(self._told))]
            yield event
