"""All events of a team by time: what has happened since a moment, and what goes on to happen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from teamctl.events.boards import Boards
from teamctl.events.conversation import TranscriptEvents
from teamctl.events.event import Event
from teamctl.events.journal import LogEvents
from teamctl.events.mail import MailEvents
from teamctl.tail import GrowingFile, end_of, lines_back
from teamctl.transcripts import logged_at, moment_of
from teamd.files.paths import TeamPaths
from teamd.messages import TEAMD, USER
from teamd.transcript.file import is_checkpoint, parse
from teamd.transcript.records import TurnEnded

_FARTHEST_BACK: Final = 1 << 24  # bytes: for what belongs to a call or turn that has begun before


class Stream:
    """Finds events in the files of a team.

    Args:
        paths: the team.
        since: of what is there at the first look, only what is not older.
    """

    def __init__(self, paths: TeamPaths, since: float) -> None:
        self._paths = paths
        self._since = since
        self._first = True
        self._mail = MailEvents(paths)
        self._log_events = LogEvents()
        self._boards = Boards(paths)
        self._conversations: dict[Path, tuple[TranscriptEvents, GrowingFile]] = {}
        self._logs: dict[Path, GrowingFile] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders in which something changes whenever anything happens."""
        paths = self._paths
        inner = (paths.inboxes, paths.transcripts, paths.logs, paths.tasks, paths.requests)
        return (paths.root, *inner)

    def look(self) -> list[Event]:
        """Return what has happened since the last look, by time."""
        found = [
            *self._mail.events(),
            *self._logged(),
            *self._said(),
            *self._boards.events(),
        ]
        if self._first:
            found = [event for event in found if event.time >= self._since]
        self._first = False
        return sorted(found, key=lambda event: event.time)

    def _said(self) -> Iterator[Event]:
        for path in sorted(self._paths.transcripts.glob("*.jsonl")):
            if path not in self._conversations:
                growing = GrowingFile(path, self._start(path))
                self._conversations[path] = TranscriptEvents(path.stem), growing
            conversation, growing = self._conversations[path]
            for line in growing.lines():
                found = None if is_checkpoint(line) else parse(line)
                for event in conversation.events(found) if found else ():
                    sent = event.kind == "mail_sent"
                    yield from self._mail.unless_told(event) if sent else (event,)

    def _start(self, path: Path) -> int:
        """Return where to begin in a conversation: with the turn in which the moment lies."""
        if not self._first:
            return 0
        start = end = end_of(path)
        for place, line in lines_back(path):
            found = {} if is_checkpoint(line) else parse(line) or {}
            before = 0 < moment_of(found) < self._since
            ended = found.get("record") == TurnEnded.kind or path.stem == USER
            if before and (ended or end - place > _FARTHEST_BACK):
                break
            start = place
        return start

    def _logged(self) -> Iterator[Event]:
        """Yield what stands in logs; by time over all of them, since one may explain another."""
        entries = []
        for path in (*sorted(self._paths.logs.glob("*.log")), self._paths.log(TEAMD)):
            if path not in self._logs:
                self._logs[path] = GrowingFile(path, self._log_start(path))
            entries += [one for one in map(parse, self._logs[path].lines()) if one]
        for entry in sorted(entries, key=logged_at):
            yield from self._log_events.events(entry)

    def _log_start(self, path: Path) -> int:
        """Return where to begin in a log."""
        start = end_of(path) if self._first else 0
        for place, line in lines_back(path) if self._first else ():
            if 0 < logged_at(parse(line) or {}) < self._since:
                break
            start = place
        return start
