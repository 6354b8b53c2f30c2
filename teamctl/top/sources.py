"""The tabs of a teammate: each reads a bounded part of files, without a lock, into rows."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final

from rich.text import Text

from teamctl.render import output
from teamctl.render.layout import Layout
from teamctl.render.transcript_view import TranscriptView
from teamctl.tail import GrowingFile
from teamctl.top.team_tabs import Listing
from teamctl.top.widgets import MOST, Row
from teamd.board.files import read_all
from teamd.board.task import TaskStatus
from teamd.copies import record
from teamd.errors import NotAMessage, TeamError
from teamd.files import files, lines
from teamd.files.paths import TeamPaths
from teamd.messages import Message
from teamd.transcript.file import decode_lines
from teamd.transcript.live import split
from teamd.transcript.records import mail_in

_MOST_BYTES: Final = 1 << 21  # read from the end of a file
_OWN: Final = ("time", "event", "level", "who")
_SIGNS: Final = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(eq=False, slots=True)
class Tab:
    """The content of a tab, read in a thread.

    Attributes:
        read: returns the current rows; raises a `TeamError` if the files cannot be read.
        empty: the sentence that an empty tab shows: why it is empty, and what fills it.
        live: whether changed files update it; otherwise it is read once, when opened.
    """

    read: Callable[[], list[Row] | Listing]
    empty: str
    live: bool = True


def transcript_tab(paths: TeamPaths, name: str) -> Tab:
    """Return the end of a teammate's conversation, with the reply in progress."""
    grown = _Grown(paths.transcript(name))
    view = TranscriptView(Layout(), full=False, live=True)

    def under_way() -> Iterator[Row]:
        _, _, come = (files.read(paths.partial(name)) or b"").partition(b"\n")
        parts = split(come.decode("utf-8", "replace"))
        said = "".join(f"thinking: {part}\n" if thinks else part for part, thinks in parts)
        for number, line in enumerate(output.plain(said).splitlines()):
            yield Row(f"partial {number}", Text(f"  {line}", style="dim"))

    def read() -> list[Row]:
        for entry in decode_lines(grown.lines()):
            grown.add(view.show(name, entry))
        return [*grown.rows, *under_way()]

    return Tab(read, f"{name} has no conversation yet; mail begins it: s sends some")


def log_tab(paths: TeamPaths, name: str) -> Tab:
    grown = _Grown(paths.log(name))

    def read() -> list[Row]:
        grown.add(map(_entry, grown.lines()))
        return list(grown.rows)

    return Tab(read, f"{name} has no log yet; its process writes one once it runs")


def mail_tab(paths: TeamPaths, name: str) -> Tab:
    """Return the recently delivered, then the waiting mail of a teammate; it is not taken."""
    grown = _Grown(paths.transcript(name))

    def waiting() -> Iterator[Text]:
        for path in (paths.taken(name), paths.inbox(name)):
            for line in islice(lines.read_lines(path), MOST):
                with suppress(NotAMessage):  # an incomplete line is read the next time
                    yield from _shown(Message.decode(line, to=name), "waits")

    def read() -> list[Row]:
        for entry in decode_lines(grown.lines()):
            for message in mail_in(entry):
                grown.add(_shown(message, "delivered"))
        return [*grown.rows, *(Row(f"waits {n}", line) for n, line in enumerate(waiting()))]

    return Tab(read, f"{name} has got no mail yet; s sends some")


def tasks_tab(paths: TeamPaths, name: str) -> Tab:
    """Return the tasks of a teammate, then those without an owner."""

    def read() -> Listing:
        tasks = read_all(paths)
        shown = [one for one in tasks.by_id.values() if one.status is not TaskStatus.DELETED]
        own = [task for task in shown if task.is_of(name)]
        free = [task for task in shown if not task.owner]
        return Listing.of_tasks([*own, *free], tasks)

    hint = f'`teamctl task add "…" --owner {name}` makes one'
    return Tab(read, paths.add_team_option(f"no tasks for {name}; {hint}"))


def diff_tab(paths: TeamPaths, name: str) -> Tab:
    """Return the difference between a teammate's working copy and its base."""

    def read() -> list[Row]:
        from teamd.copies.copy_status import opened_diff  # noqa: PLC0415 -- only for this tab

        try:
            copy = record.get(paths, name)
        except TeamError as error:
            return [_said(str(error))]
        with opened_diff(paths, copy) as file:
            found = [line.decode("utf-8", "replace").rstrip("\n") for line in islice(file, MOST)]
        return [_change(n, line) for n, line in enumerate(found)]

    return Tab(read, f"{name} has changed nothing in its working copy", live=False)


class _Grown:
    """The last `MOST` rows of a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: GrowingFile | None = None
        self._numbers = count()
        self.rows: deque[Row] = deque(maxlen=MOST)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines added since the last call."""
        if self._file is None:  # opened here, in the reading thread
            self._file = GrowingFile(self._path, _start_of_last(self._path))
        return self._file.lines()

    def add(self, shown: Iterable[str | Text]) -> None:
        """Add rows; a string may contain ANSI styles, but no other control codes."""
        for line in shown:
            text = line if isinstance(line, Text) else Text.from_ansi(line)
            self.rows.append(Row(str(next(self._numbers)), text))


def _start_of_last(path: Path) -> int:
    """Return the offset of the last `MOST` lines of a file."""
    size, start = files.size(path), 0
    for number, start in enumerate(lines.find_lines(path, b"")):
        if number >= MOST or size - start > _MOST_BYTES:
            return start
    return 0


def _entry(line: bytes) -> Text:
    """Return a log entry as a line."""
    try:
        entry = json.loads(line)
        when, event = str(entry["time"]), str(entry["event"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return Text(output.plain(line.decode("utf-8", "replace")))
    facts = " ".join(f"{key}={value}" for key, value in entry.items() if key not in _OWN)
    said = " ".join(output.plain(f"{event}  {facts}").split("\n"))
    return Text.assemble((f"{output.plain(when)[:19]} ", "dim"), said)


def _shown(message: Message, state: str) -> Iterator[Text]:
    about = f" — {message.summary}" if message.summary else ""
    kind = output.kind_of(message)
    head = f"{output.clock(message.timestamp)} ✉ {message.sender} → {message.to}{kind}{about}"
    yield Text.assemble((" ".join(output.plain(head).split()), "bold cyan"), f" {state}")
    for line in output.plain(message.content).splitlines():
        yield Text(f"  {line}")


def _change(number: int, line: str) -> Row:
    return Row(str(number), Text(output.plain(line), style=_SIGNS.get(line[:1], "")))


def _said(text: str) -> Row:
    return Row("said", Text(output.plain(text)))


TABS: Final[dict[str, Callable[[TeamPaths, str], Tab]]] = {
    "Transcript": transcript_tab,
    "Mail": mail_tab,
    "Log": log_tab,
    "Tasks": tasks_tab,
    "Diff": diff_tab,
}
