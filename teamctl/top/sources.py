"""The tabs of a teammate: each reads a bounded part of files, without a lock, into rows."""

from __future__ import annotations

import json
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final, Protocol

from rich.text import Text

from teamctl.render import output
from teamctl.render.layout import Layout
from teamctl.render.transcript_view import TranscriptView
from teamctl.tail import GrowingFile
from teamctl.top.widgets import MOST, Row
from teamd.board.files import TaskFiles
from teamd.board.task import Task
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


class Tab(Protocol):
    """The content of a tab, read in a thread.

    Attributes:
        live: whether changed files update it; otherwise it is read once, when opened.
    """

    live: bool

    def read(self) -> list[Row]:
        """Return the current rows.

        Raises:
            TeamError: the files cannot be read.
        """


class TranscriptTab:
    """The end of a teammate's conversation, updated live, with the reply in progress."""

    live = True

    def __init__(self, paths: TeamPaths, name: str) -> None:
        self._name = name
        self._partial = paths.partial(name)
        self._grown = _Grown(paths.transcript(name))
        self._view = TranscriptView(Layout(), full=False, live=True)

    def read(self) -> list[Row]:
        """Return the last lines, and the reply in progress."""
        for entry in decode_lines(self._grown.lines()):
            self._grown.add(self._view.show(self._name, entry))
        return [*self._grown.rows, *self._under_way()]

    def _under_way(self) -> Iterator[Row]:
        _, _, come = (files.read(self._partial) or b"").decode("utf-8", "replace").partition("\n")
        said = "".join(f"thinking: {part}\n" if thinks else part for part, thinks in split(come))
        for number, line in enumerate(output.plain(said).splitlines()):
            yield Row(f"partial {number}", Text(f"  {line}", style="dim"))


class LogTab:
    """The log of a teammate."""

    live = True

    def __init__(self, paths: TeamPaths, name: str) -> None:
        self._grown = _Grown(paths.log(name))

    def read(self) -> list[Row]:
        for line in self._grown.lines():
            self._grown.add([_entry(line)])
        return list(self._grown.rows)


class MailTab:
    """The recently delivered and the waiting mail of a teammate; it is not taken."""

    live = True

    def __init__(self, paths: TeamPaths, name: str) -> None:
        self._name = name
        self._waiting = (paths.taken(name), paths.inbox(name))
        self._grown = _Grown(paths.transcript(name))

    def read(self) -> list[Row]:
        """Return the delivered, then the waiting messages."""
        for entry in decode_lines(self._grown.lines()):
            for message in mail_in(entry):
                self._grown.add(_shown(message, "delivered"))
        return [*self._grown.rows, *self._undelivered()]

    def _undelivered(self) -> Iterator[Row]:
        numbers = count()
        for path in self._waiting:
            for message in self._messages(path):
                for line in _shown(message, "waits"):
                    yield Row(f"waits {next(numbers)}", line)

    def _messages(self, path: Path) -> Iterator[Message]:
        """Yield the messages in a file; an incomplete line is read the next time."""
        for line in islice(lines.read_lines(path), MOST):
            try:
                yield Message.decode(line, to=self._name)
            except NotAMessage:
                continue


class TasksTab:
    """The tasks of a teammate, and those without an owner."""

    live = True

    def __init__(self, paths: TeamPaths, name: str) -> None:
        self._name = name
        self._files = TaskFiles(paths)

    def read(self) -> list[Row]:
        """Return the teammate's tasks, then those without an owner."""
        tasks = self._files.read().by_id.values()
        own = [task for task in tasks if task.is_of(self._name)]
        free = [task for task in tasks if not task.owner]
        return [_task(task) for task in (*own, *free)] or [_said("no tasks for it")]


class DiffTab:
    """The difference between a teammate's working copy and its base."""

    live = False

    def __init__(self, paths: TeamPaths, name: str) -> None:
        self._paths = paths
        self._name = name

    def read(self) -> list[Row]:
        from teamd.copies.copy_status import opened_diff  # noqa: PLC0415 -- only for this tab

        try:
            copy = record.get(self._paths, self._name)
        except TeamError as error:
            return [_said(str(error))]
        with opened_diff(self._paths, copy) as file:
            found = [line.decode("utf-8", "replace").rstrip("\n") for line in islice(file, MOST)]
        return [_change(n, line) for n, line in enumerate(found)] or [_said("nothing was changed")]


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
            weakref.finalize(self, self._file.close)  # when the tab is closed
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
    head = f"{output.clock(message.timestamp)} {output.plain(message.sender)} [{message.type}]"
    yield Text.assemble((output.plain(head), "bold cyan"), f" {state}")
    for line in output.plain(message.content).splitlines():
        yield Text(f"  {line}")


def _task(task: Task) -> Row:
    owner = task.owner or "nobody"
    text = output.plain(f"{task.id:>4}  {task.status:12} {owner:12} {task.subject}")
    return Row(task.id, Text(" ".join(text.split("\n"))))


def _change(number: int, line: str) -> Row:
    return Row(str(number), Text(output.plain(line), style=_SIGNS.get(line[:1], "")))


def _said(text: str) -> Row:
    return Row("said", Text(output.plain(text)))


TABS: Final[dict[str, Callable[[TeamPaths, str], Tab]]] = {
    "Transcript": TranscriptTab, "Mail": MailTab, "Log": LogTab, "Tasks": TasksTab, "Diff": DiffTab,
}  # fmt: skip
