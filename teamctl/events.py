"""All events of a team by time: past events since a moment, and new ones as they happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, Final

from teamctl.mail.router import all_approvals
from teamctl.tail import GrowingFile, end_of, start_after
from teamctl.transcripts import logged_at, moment_of
from teamd.board import files as board
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.journal import LoggedEvent
from teamd.merges import queue
from teamd.messages import TEAMD, USER, Message, is_moment
from teamd.team.roster import Roster
from teamd.transcript import records
from teamd.transcript.file import decode_object, is_checkpoint, message_in, parse
from teamd.transcript.records import TurnEnded


class EventKind(StrEnum):
    """The kinds of events; `teamctl help files` lists the facts of each."""

    # From conversations and inboxes:
    MAIL_SENT = auto()
    MAIL_TAKEN = auto()
    MAIL_DELIVERED = auto()
    MAIL_HELD = auto()
    TURN_BEGAN = auto()
    TURN_ENDED = auto()
    REPLIED = auto()
    TOOL_BEGAN = auto()
    TOOL_ENDED = auto()
    CONVERSATION_OPENED = auto()
    SUMMARISED = auto()
    # From the roster, the board, the merge queue and the approvals:
    STATE = auto()
    TASK = auto()
    MERGE = auto()
    APPROVAL_ASKED = auto()
    APPROVAL_ANSWERED = auto()
    # From logs; all but the last have the names of `LoggedEvent`:
    SPAWNED = auto()
    PROCESS_BEGAN = auto()
    PROCESS_ENDED = auto()
    CRASHED = auto()
    FAILED = auto()
    STUCK = auto()
    RESUMED = auto()
    SHUTDOWN_ASKED = auto()
    SHUTDOWN_REJECTED = auto()
    SHUTTING_DOWN = auto()
    LIMIT_RAISED = auto()
    RETRY = auto()
    MODEL_CALLS_SLOWED = auto()
    MAIL_REJECTED = auto()
    PERMISSION = auto()
    PUSH = auto()
    CHECK_BEGAN = auto()
    CHECK_ENDED = auto()
    RELOADED = auto()
    TEAMD_STARTED = auto()
    TEAMD_STOPPED = auto()
    RESTARTED = auto()  # a process that begins after a crash


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a team.

    Attributes:
        time: seconds since the epoch.
        name: its subject: a teammate, `user` or `teamd`.
        facts: further keys of `--json`, which depend on the kind alone.
    """

    time: float
    kind: EventKind
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the event as `--json` shows it."""
        return {"time": self.time, "kind": self.kind, "name": self.name, **self.facts}


class TranscriptEvents:
    """Finds the events in one teammate's conversation, record by record."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tools: dict[str, str] = {}  # the calls without a result
        self._begun: dict[str, float] = {}
        self._in_turn = False

    def events(self, found: dict[str, Any]) -> Iterator[Event]:  # noqa: C901 -- a case a kind
        """Yield the events of a record."""
        record = decode_object(found)
        match record:
            case records.Delivered():
                yield from self._begin(record.time)
                for message in record.messages:
                    yield from self._mail(message, record)
            case records.Replied():
                yield from self._begin(record.time)
                yield self._reply(record)
            case records.CallStarted():
                self._begun[record.tool_use_id] = record.time
                yield self._event(record, EventKind.TOOL_BEGAN, **self._call(record.tool_use_id))
            case records.CallAnswered():
                yield self._answer(record)
            case records.MailHeld():
                yield self._event(record, EventKind.MAIL_HELD, senders=list(record.senders))
            case records.TurnEnded():
                self._in_turn = False
                facts = {"outcome": record.outcome, "about": record.about, "text": record.text}
                yield self._event(record, EventKind.TURN_ENDED, **facts)
            case records.Opened():
                yield self._event(record, EventKind.CONVERSATION_OPENED)
            case records.Summarised():
                yield self._event(record, EventKind.SUMMARISED)

    def _event(self, record: records.Record, kind: EventKind, **facts: Any) -> Event:
        return Event(record.time, kind, self._name, facts)

    def _begin(self, moment: float) -> Iterator[Event]:
        """Yield the start of a turn, unless one is under way; the person has no turns."""
        if not self._in_turn and self._name != "user":
            self._in_turn = True
            yield Event(moment, EventKind.TURN_BEGAN, self._name)

    def _reply(self, record: records.Replied) -> Event:
        self._tools |= {str(call["id"]): str(call["name"]) for call in record.calls}
        return self._event(
            record,
            EventKind.REPLIED,
            model=record.model,
            stop_reason=record.stop_reason,
            input_tokens=record.usage.total_input_tokens,
            output_tokens=record.usage.output_tokens,
        )

    def _call(self, call_id: str) -> dict[str, Any]:
        return {"id": call_id, "tool": self._tools.get(call_id)}

    def _answer(self, record: records.CallAnswered) -> Event:
        call = self._call(record.tool_use_id)
        self._tools.pop(record.tool_use_id, None)
        begun = self._begun.pop(record.tool_use_id, None)
        seconds = None if begun is None else round(record.time - begun, 3)
        return self._event(
            record, EventKind.TOOL_ENDED, **call, seconds=seconds, failed=record.is_error
        )

    def _mail(self, message: Message, record: records.Delivered) -> Iterator[Event]:
        yield mail_sent_event(message, message.to or self._name)
        facts = mail_facts(message, message.to or self._name)
        if record.taken is not None:
            yield Event(record.taken, EventKind.MAIL_TAKEN, self._name, facts)
        yield Event(record.time, EventKind.MAIL_DELIVERED, self._name, facts)


def mail_sent_event(message: Message, to: str) -> Event:
    """Return the event for a sent message; its `name` is the sender."""
    moment = float(message.timestamp) if is_moment(message.timestamp) else 0.0
    return Event(moment, EventKind.MAIL_SENT, message.sender, mail_facts(message, to))


def mail_facts(message: Message, to: str) -> dict[str, Any]:
    """Return the facts of a message for its events; the text is left out."""
    names = {"id": message.id, "from": message.sender, "to": to}
    return {**names, "type": message.type, "summary": message.summary}


_MOST_REMEMBERED: Final = 100_000
_REJECTED: Final = ".rejected.jsonl"
_TAKEN: Final = ".taken.jsonl"


class MailEvents:
    """Finds sent messages and reports each once.

    It reads the inboxes without a lock, and may miss a message that its receiver took first. Such a
    message is reported by `unless_told` when it is in the conversation.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self._folder = paths.inboxes
        self._files: dict[Path, GrowingFile] = {}
        self._told: dict[tuple[str, ...], None] = {}

    def events(self) -> Iterator[Event]:
        """Yield an event for each message since the last look."""
        for path in sorted(self._folder.glob("*.jsonl")):
            to = path.name.removesuffix(_TAKEN).removesuffix(".jsonl")
            if to == TEAMD or path.name.endswith(_REJECTED):  # requests and reports are not mail
                continue
            for line in self._files.setdefault(path, GrowingFile(path)).lines():
                message = message_in(parse(line))
                if message is not None and message.id:  # otherwise its reader adds one
                    yield from self.unless_told(mail_sent_event(message, to))

    def close(self) -> None:
        """Close the inboxes."""
        for growing in self._files.values():
            growing.close()

    def unless_told(self, event: Event) -> Iterator[Event]:
        """Yield the event that a message was sent, unless it was reported before."""
        key = tuple(str(event.facts[fact]) for fact in ("id", "from", "to"))
        if key not in self._told:
            self._told[key] = None
            if len(self._told) > _MOST_REMEMBERED:
                del self._told[next(iter(self._told))]
            yield event


# Yields an event for each object on a board, with the id of the object.
Shown = Iterable[tuple[str, Event]]


class _Look:
    """Compares one board with its state at the last look.

    Args:
        places: files and folders that change whenever the board does.
        find: returns the present events.
        dated: whether the events have a time; otherwise the first look yields no events.
    """

    def __init__(
        self, places: tuple[Path, ...], find: Callable[[], Shown], *, dated: bool = True
    ) -> None:
        self._places = places
        self._find = find
        self._tells = dated
        self._state: list[Any] = []
        self._known: dict[str, Event] = {}

    def events(self) -> Iterator[Event]:
        state = [_state(place) for place in self._places]
        if state == self._state:
            return
        try:
            found = dict(self._find())
        except (TeamError, OSError):  # damaged; it may be repaired before the next look
            return
        self._state = state
        before, self._known = self._known, found
        changed = (
            key for key in found if key not in before or before[key].facts != found[key].facts
        )
        if self._tells:
            yield from (found[key] for key in changed)
        self._tells = True


def _state(place: Path) -> tuple[int, ...]:
    try:
        found = place.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _states(paths: TeamPaths) -> Shown:
    changed = paths.config.stat().st_mtime
    for member in Roster(paths).read().members:
        facts = {"status": str(member.status), "role": member.role, "reason": member.reason}
        yield member.name, Event(changed, EventKind.STATE, member.name, facts)


def _tasks(paths: TeamPaths) -> Shown:
    for task in board.read_all(paths).by_id.values():
        facts = {"id": task.id, "subject": task.subject, "status": str(task.status)}
        more = {"blocked_by": list(task.blocked_by), "proven": task.proven}
        who = task.owner or task.created_by
        event = Event(task.updated, EventKind.TASK, who, {**facts, "owner": task.owner, **more})
        yield task.id, event


def _merges(paths: TeamPaths) -> Shown:
    for entry in queue.read(paths).all:
        facts = entry.to_json()
        event = Event(facts.pop("when"), EventKind.MERGE, facts.pop("teammate"), facts)
        yield entry.id, event


def _approvals(paths: TeamPaths) -> Shown:
    for one in all_approvals(paths).all():
        facts = {"id": one.id, "type": str(one.type), "to": one.to}
        yield one.id, Event(one.asked, EventKind.APPROVAL_ASKED, one.asker, facts)
        if not one.is_open:
            said = {"status": str(one.status), "by": one.answered_by, "reason": one.reason}
            moment = one.answered or one.asked
            yield (
                f"{one.id}!",
                Event(moment, EventKind.APPROVAL_ANSWERED, one.asker, {**facts, **said}),
            )


_OWN: Final = frozenset({"time", "level", "event", "who", "name", "traceback"})
_FARTHEST_BACK: Final = 1 << 24  # bytes: for calls and turns that started before the moment


class EventStream:
    """Finds events in the files of a team.

    Args:
        paths: the team.
        since: the first look leaves out older events.
    """

    def __init__(self, paths: TeamPaths, since: float) -> None:
        self._paths = paths
        self._since = since
        self._first = True
        self._mail = MailEvents(paths)
        self._crashed: set[str] = set()
        self._looks = (
            _Look((paths.config,), lambda: _states(paths), dated=False),
            _Look((paths.tasks, paths.queue), lambda: _tasks(paths)),
            _Look((paths.tasks, paths.queue), lambda: _merges(paths)),
            _Look((paths.requests,), lambda: _approvals(paths)),
        )
        self._conversations: dict[Path, tuple[TranscriptEvents, GrowingFile]] = {}
        self._logs: dict[Path, GrowingFile] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that change with each event."""
        paths = self._paths
        inner = (paths.inboxes, paths.transcripts, paths.logs, paths.tasks, paths.requests)
        return (paths.root, *inner)

    def look(self) -> list[Event]:
        """Return the events since the last look, by time."""
        changes = (event for look in self._looks for event in look.events())
        found = [*self._mail.events(), *self._logged(), *self._said(), *changes]
        if self._first:
            found = [event for event in found if event.time >= self._since]
        self._first = False
        return sorted(found, key=lambda event: event.time)

    def close(self) -> None:
        """Close all files."""
        self._mail.close()
        conversations = [growing for _, growing in self._conversations.values()]
        for growing in (*conversations, *self._logs.values()):
            growing.close()

    def _said(self) -> Iterator[Event]:
        for path in sorted(self._paths.transcripts.glob("*.jsonl")):
            if path not in self._conversations:
                growing = GrowingFile(path, self._start(path))
                self._conversations[path] = TranscriptEvents(path.stem), growing
            conversation, growing = self._conversations[path]
            for line in growing.lines():
                found = None if is_checkpoint(line) else parse(line)
                for event in conversation.events(found) if found else ():
                    sent = event.kind is EventKind.MAIL_SENT
                    yield from self._mail.unless_told(event) if sent else (event,)

    def _start(self, path: Path) -> int:
        """Return the offset in a conversation of the turn that contains the moment."""
        if not self._first:
            return 0
        farthest = end_of(path) - _FARTHEST_BACK

        def before(place: int, line: bytes) -> bool:
            found = {} if is_checkpoint(line) else parse(line) or {}
            ended = found.get("record") == TurnEnded.kind or path.stem == USER
            return 0 < moment_of(found) < self._since and (ended or place < farthest)

        return start_after(path, before)

    def _logged(self) -> Iterator[Event]:
        """Yield the events of all logs, merged by time, since one may explain another."""
        entries = []
        for path in (*sorted(self._paths.logs.glob("*.log")), self._paths.log(TEAMD)):
            if path not in self._logs:
                self._logs[path] = GrowingFile(path, self._log_start(path) if self._first else 0)
            entries += [one for one in map(parse, self._logs[path].lines()) if one]
        found = map(self._log_event, sorted(entries, key=logged_at))
        yield from filter(None, found)

    def _log_start(self, path: Path) -> int:
        """Return the offset of the first wanted line of a log."""
        return start_after(path, lambda _, line: 0 < logged_at(parse(line) or {}) < self._since)

    def _log_event(self, entry: dict[str, Any]) -> Event | None:
        """Return the event of a log's entry; other entries concern only the program."""
        try:
            kind = EventKind[LoggedEvent(str(entry.get("event"))).name]
        except ValueError:
            return None
        name = str(entry.get("name") or entry.get("who"))
        facts = {key: value for key, value in entry.items() if key not in _OWN}
        if kind is EventKind.CRASHED:
            self._crashed.add(name)
        elif kind is EventKind.PROCESS_BEGAN and name in self._crashed:
            self._crashed.discard(name)
            kind = EventKind.RESTARTED
        return Event(logged_at(entry), kind, name, facts)
