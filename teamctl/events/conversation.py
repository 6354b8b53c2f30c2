"""The events of one conversation: turns, replies, calls of tools, and mail that arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from teamd.messages import Message, is_moment
from teamd.overview.events import Event, EventKind
from teamd.transcript import records
from teamd.transcript.file import decode_object


class TranscriptEvents:
    """Finds the events in one teammate's conversation, record by record."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tools: dict[str, str] = {}  # of calls without a result
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
        """Yield the beginning of a turn, unless one is under way. The person has no turns."""
        if not self._in_turn and self._name != "user":
            self._in_turn = True
            yield Event(moment, EventKind.TURN_BEGAN, self._name)

    def _reply(self, record: records.Replied) -> Event:
        self._tools |= {str(call["id"]): str(call["name"]) for call in record.calls}
        usage = {
            "input_tokens": record.usage.total_input_tokens,
            "output_tokens": record.usage.output_tokens,
        }
        stopped = {"model": record.model, "stop_reason": record.stop_reason}
        return self._event(record, EventKind.REPLIED, **stopped, **usage)

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
        yield sent(message, message.to or self._name)
        facts = facts_of(message, message.to or self._name)
        if record.taken is not None:
            yield Event(record.taken, EventKind.MAIL_TAKEN, self._name, facts)
        yield Event(record.time, EventKind.MAIL_DELIVERED, self._name, facts)


def sent(message: Message, to: str) -> Event:
    """Return the event that a message was sent; it is about the sender."""
    moment = float(message.timestamp) if is_moment(message.timestamp) else 0.0
    return Event(moment, EventKind.MAIL_SENT, message.sender, facts_of(message, to))


def facts_of(message: Message, to: str) -> dict[str, Any]:
    """Return the facts of a message for its events; the text is left out."""
    names = {"id": message.id, "from": message.sender, "to": to}
    return {**names, "type": message.type, "summary": message.summary}
