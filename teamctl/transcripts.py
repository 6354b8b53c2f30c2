"""Reads the conversations of teammates, one or several merged by time, even as they grow."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from teamctl.tail import GrowingFile, end_of, lines_back
from teamd.files.paths import TeamPaths
from teamd.journal import LoggedEvent
from teamd.messages import is_moment
from teamd.transcript import records
from teamd.transcript.file import is_checkpoint, parse

NamedRecord = tuple[str, dict[str, Any]]  # the teammate's name, and the record as a JSON object

# Records that start an entry; calls and their results belong to the reply before them.
_BEGINNINGS: Final = frozenset(
    kind.kind
    for kind in (
        records.Opened, records.Delivered, records.Replied, records.NoteAdded,
        records.ResultsCleared, records.Summarised, records.MailHeld, records.TurnEnded,
    )
)  # fmt: skip


class Transcripts:
    """Reads conversations, each record once.

    Args:
        paths: the team.
        names: returns the teammates; called before every read.
        last: how many existing entries to read; `None` for all.
        since: the moment of the first record to read; `None` for all.
    """

    def __init__(
        self,
        paths: TeamPaths,
        names: Callable[[], Sequence[str]],
        last: int | None,
        since: float | None,
    ) -> None:
        self._paths = paths
        self._names = names
        self._last = last
        self._since = since
        self._growing: dict[str, GrowingFile] = {}
        self.cut = False

    def open(self) -> bool:
        """Find the wanted part; return whether any conversation exists.

        Afterwards `cut` says whether there are earlier records.
        """
        there = False
        for name in self._names():
            path = self._paths.transcript(name)
            start = self._start(path)
            self._growing[name] = GrowingFile(path, start)
            self.cut = self.cut or start > 0
            there = there or path.exists()
        return there

    def names(self) -> list[str]:
        """Return the teammates whose conversations are read."""
        return list(self._growing)

    def first(self) -> Iterable[NamedRecord]:
        """Return the wanted part of the present records, by time."""
        each = [self._read(one) for one in self._growing.items()]
        if len(each) == 1:
            return each[0]
        merged = heapq.merge(*each, key=_by_time)
        if self._last is None:
            return merged
        found = list(merged)
        starts = [n for n, (_, one) in enumerate(found) if one.get("record") in _BEGINNINGS]
        return found[starts[-self._last] :] if 0 < self._last < len(starts) else found

    def more(self) -> list[NamedRecord]:
        """Return the records since the last look, by time."""
        for name in self._names():
            self._growing.setdefault(name, GrowingFile(self._paths.transcript(name)))
        return sorted(self._read(*self._growing.items()), key=_by_time)

    def _start(self, path: Path) -> int:
        """Return the offset of the first wanted record in a transcript."""
        if self._last is None and self._since is None:
            return 0
        start, left = end_of(path), self._last
        for place, line in lines_back(path):
            if left == 0:
                break
            found = {} if is_checkpoint(line) else parse(line) or {}
            if self._since is not None and 0 < moment_of(found) < self._since:
                break
            if left is None:
                start = place
            elif found.get("record") in _BEGINNINGS:
                start, left = place, left - 1
        return start

    def _read(self, *growing: tuple[str, GrowingFile]) -> Iterator[NamedRecord]:
        for name, file in growing:
            for line in file.lines():
                found = None if is_checkpoint(line) else parse(line)
                if found and found.get("record") != records.Checkpoint.kind:
                    yield name, found


class Retries:
    """Reports failed model calls of a teammate that it tries again."""

    def __init__(self, log: Path) -> None:
        self._growing = GrowingFile(log, end_of(log))

    def more(self) -> Iterator[tuple[float, str]]:
        """Yield the time and a sentence for each failed call since the last look."""
        for line in self._growing.lines():
            if _RETRY not in line:
                continue
            entry = parse(line) or {}
            if entry.get("event") == LoggedEvent.RETRY:
                yield logged_at(entry), explain_retry(entry)


_RETRY: Final = json.dumps(LoggedEvent.RETRY).encode()


def explain_retry(entry: dict[str, Any]) -> str:
    """Return a sentence about a retried model call, from a line of a log."""
    attempt, attempts = entry.get("attempt"), entry.get("attempts")
    which = f" {attempt}/{attempts}" if attempt and attempts else ""
    return f"retrying{which}: {entry.get('reason')}, next in {entry.get('seconds')} s"


def logged_at(entry: dict[str, Any]) -> float:
    """Return the time of a log line in seconds since the epoch; 0 if unknown."""
    try:
        return datetime.fromisoformat(str(entry.get("time"))).timestamp()
    except ValueError:
        return 0.0


def moment_of(found: dict[str, Any]) -> float:
    """Return the time of a record in seconds since the epoch; 0 if unknown."""
    said = found.get("time")
    return float(said) if is_moment(said) else 0.0


def _by_time(found: NamedRecord) -> float:
    return moment_of(found[1])
