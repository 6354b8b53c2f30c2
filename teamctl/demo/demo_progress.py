"""Follows a team at work through its files, and prints a line for each event."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import click

from teamctl.mail.receipts import GONE
from teamctl.render import output
from teamctl.tail import GrowingFile
from teamd.board.board import Board
from teamd.board.task import Task, TaskStatus
from teamd.command_line import terminal
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, TEAMD, Message
from teamd.settings.known_tools import TOOLS, UNKNOWN
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import decode_lines
from teamd.transcript.records import (
    CallAnswered,
    NoticeSent,
    Record,
    Replied,
    TurnEnded,
    find_trouble,
)

REST_SECONDS: Final = 60.0  # a quiet machine takes 6
AGREE_SECONDS: Final = 10.0
_LONGEST_NAME: Final = 5


@dataclass(frozen=True, slots=True)
class TeamEvent:
    """An event of the demo.

    Attributes:
        moment: in seconds since the epoch.
        who: the teammate that acted.
        colour: the colour of `what`.
    """

    moment: float
    who: str
    what: str
    colour: str | None = None


class ProgressPrinter:
    """Prints events, one per line, aligned, and cut to the width of the terminal.

    Attributes:
        begun: the start of the demo, in seconds since the epoch.
        colours: the colours of the names.
    """

    def __init__(self) -> None:
        self.colours: dict[str, str] = {}
        self.begun = time.time()
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def tell(self, event: TeamEvent) -> None:
        when = f"{max(0.0, event.moment - self.begun):4.1f}s "
        who = f"{event.who:<{_LONGEST_NAME}} "
        what = _cut(event.what, self._width and self._width - len(when) - len(who))
        name = terminal.style(who, fg=self.colours.get(event.who), bold=True)
        click.echo(terminal.style(when, dim=True) + name + terminal.style(what, fg=event.colour))

    def lead(self, what: str) -> None:
        """Print an action of the lead, who is the person, as happening now."""
        self.tell(TeamEvent(time.time(), LEAD, what))


class Proof:
    """Turns the runs of a task's check into events."""

    def __init__(self, board: Board, task_id: str, name: str) -> None:
        self._board, self._id, self._name = board, task_id, name
        self._told = 0  # attempts

    @property
    def task(self) -> Task:
        """The present state of the task."""
        return self._board.read().get(self._id)

    def rest(self) -> object | None:
        """Return the task; `None` while a check runs or its mail is under way."""
        task = self.task
        return None if task.status is TaskStatus.CHECKING or task.untold else task

    def news(self) -> Iterator[TeamEvent]:
        """Yield an event for each new run."""
        for attempt in self.task.attempts[self._told :]:
            self._told += 1
            failed = attempt.why or f"failed with exit status {attempt.status}"
            came, colour = ("passed", "green") if attempt.passed else (failed, "red")
            what = f"checks a clean clone of {self._name}'s commit: {came}"
            yield TeamEvent(time.time(), TEAMD, what, colour)


class ProgressFollower:
    """Prints the events of some teammates until they are done.

    Args:
        check: called at each look; raises to end the wait.
        proof: the proof of one of their tasks, if any.

    Attributes:
        records: the records of each teammate's transcript so far.
        mail: the messages to the lead so far.
        trouble: a sentence on why the work stopped; empty if it did not.
    """

    def __init__(
        self,
        paths: TeamPaths,
        names: Iterable[str],
        teller: ProgressPrinter,
        check: Callable[[], None],
        proof: Proof | None = None,
    ) -> None:
        self._paths = paths
        self._teller = teller
        self._check = check
        self._proof = proof
        self._roster = Roster(paths)
        self._growing = {name: GrowingFile(paths.transcript(name)) for name in names}
        self._commands: set[str] = set()  # the ids of calls of bash
        self.records: dict[str, list[Record]] = {name: [] for name in self._growing}
        self.mail: dict[str, Message] = {}
        self.trouble = ""

    def follow(self) -> None:
        """Return once all teammates are done and no mail is under way, or on trouble."""
        conversations, board = self._paths.transcripts, self._paths.tasks
        if not wait_for(conversations, self.look, timeout_seconds=REST_SECONDS, also=[board]):
            self.trouble = f"the team was not done within {REST_SECONDS:g} s"
        self.close()
        if not self.trouble:
            # Reports pass through the supervisor, so the roster lags behind a little.
            wait_for(self._paths.root, self._agrees, timeout_seconds=AGREE_SECONDS)

    def close(self) -> None:
        """Close the transcripts."""
        for growing in self._growing.values():
            growing.close()

    def look(self) -> bool | None:
        """Print the new events; return `True` if all teammates are done, or on trouble.

        Raises:
            Interrupted: the demo was interrupted.
        """
        self._check()
        gone = self._who_is_gone()  # before the transcripts, which they may still write to
        rest = self._rest()
        self._tell_news()
        if gone:
            self.trouble = self.trouble or gone
            return True
        if rest is None or not all(map(_has_ended, self.records.values())):
            return None
        # Only working teammates and checks send mail. So if no mail was under way, and no teammate
        # worked and no check ran meanwhile, the work is done.
        waiting = any(Mailbox(self._paths, name).waiting() for name in self.records)
        return None if self._tell_news() or waiting or self._rest() != rest else True

    def _rest(self) -> object | None:
        return "" if self._proof is None else self._proof.rest()

    def _tell_news(self) -> bool:
        """Print the new events; return whether any teammate worked."""
        events = list(self._mail_events())
        events += self._proof.news() if self._proof else ()
        worked = False
        for name, growing in self._growing.items():
            for record in decode_lines(growing.lines()):
                worked = True
                self.records[name].append(record)
                events += self._events(name, record)
                if isinstance(record, TurnEnded) and record.outcome != "end_turn":
                    self.trouble = f"{name} is {record.outcome}: {record.text}"
        for event in sorted(events, key=lambda event: event.moment):
            self._teller.tell(event)
        return worked

    def _events(self, name: str, record: Record) -> Iterator[TeamEvent]:
        """Yield the events of a record of a teammate's transcript."""
        match record:
            case Replied():
                for what in map(self._part, record.content):
                    yield TeamEvent(record.time, name, what)
            case CallAnswered() if record.is_error or record.tool_use_id in self._commands:
                bad = record.is_error or find_trouble(record)
                what = f"sees {_excerpt(record.content)}"
                yield TeamEvent(record.time, name, what, "red" if bad else "green")
            case TurnEnded() if record.outcome != "end_turn":
                yield TeamEvent(record.time, name, f"{record.outcome}: {record.text}", "red")

    def _part(self, block: dict[str, Any]) -> str:
        if block["type"] == "text":
            return f"“{block['text']}”"
        given = block["input"]
        if block["name"] == "send_message":
            return f"→ {given.get('to')}: {given.get('summary') or given.get('content')}"
        if block["name"] == "task_update":
            return f"says that task {given.get('task_id')} is {given.get('status')}"
        if block["name"] == "bash":
            self._commands.add(block["id"])
        known = TOOLS.get(block["name"], UNKNOWN)
        return f"{known.verb or 'uses ' + block['name']} {given.get(known.about, '')}"

    def _mail_events(self) -> Iterator[TeamEvent]:
        for message in Mailbox(self._paths, LEAD).peek():
            if message.id not in self.mail:
                self.mail[message.id] = message
                what = f"← {message.sender}: {message.summary or message.content}"
                yield TeamEvent(message.timestamp, LEAD, what)

    def _who_is_gone(self) -> str:
        if pidfile.supervisor(self._paths) is None:
            return "teamd has ended"
        gone = (member for member in self._roster.read().members if member.status in GONE)
        named = ((one, f": {one.reason}" if one.reason else "") for one in gone)
        return next((f"{one.name} is {one.status}{why}" for one, why in named), "")

    def _agrees(self) -> bool | None:
        """Return whether the roster agrees with the transcripts."""
        self._check()
        followed = (self._roster.read().get(name) for name in self.records)
        for member in followed:
            replies = sum(isinstance(one, Replied) for one in self.records[member.name])
            if member.status is not Status.IDLE or member.turns != replies:
                return None
        return True


def _has_ended(records: list[Record]) -> bool:
    return bool(records) and isinstance(records[-1], TurnEnded | NoticeSent)


def _excerpt(text: str) -> str:
    """Return the last line of an output, and its first line with an error, if any."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("[")]
    error = next((line for line in lines if "Error: " in line), "")
    last = lines[-1] if lines else text
    return f"{last}: {error}" if error and error != last else last


def _cut(text: str, room: int | None) -> str:
    """Return the text in one line, cut to the width."""
    line = " ".join(output.plain(text).split())
    return line if room is None or len(line) <= room else line[: max(0, room - 1)] + "…"
