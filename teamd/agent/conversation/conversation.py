"""A teammate's conversation: the records of its transcript, and how they are written.

Every change is written first: the record is appended to the transcript, then applied. So a process
that reads the transcript arrives at the same messages as the process that wrote it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, Final

import msgspec

from teamd.agent.conversation.state import ConversationState
from teamd.errors import NotAMessage, StoreError
from teamd.messages import Message
from teamd.models import Block, RefusedMessageError, Reply
from teamd.tools import Result
from teamd.transcript import records
from teamd.transcript.file import Transcript, decode
from teamd.transcript.records import Checkpoint

_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_LEAST_BYTES: Final = 1 << 17  # read in a few milliseconds
_TIMES: Final = (
    4  # times the checkpoint's own size; a conversation that only grows needs no checkpoint
)


class Conversation(ConversationState):
    """The one conversation of one teammate; its state is initially read from the transcript."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._checkpoint, state = find_checkpoint(transcript)
        super().__init__(**vars(state))
        for record in transcript.records(self._checkpoint.stop):
            self.apply(record)
        transcript.make_durable()  # the process before may have been killed before it had

    def open(self, opened: records.Opened) -> None:
        """Begin a new conversation; the old records stay on disk. Synced with the next record."""
        nonce, secret = os.urandom(8).hex(), os.urandom(16).hex()
        self.record(replace(opened, nonce=nonce, secret=secret), durable=False)

    def deliver(self, messages: Iterable[Message], **facts: Any) -> None:
        """Put mail into it; `settle` syncs it to disk.

        Args:
            messages: the mail.
            facts: see `Delivered`.
        """
        record = records.Delivered(messages=tuple(messages), **facts)
        self.record(record, durable=False)

    def add_reply(self, reply: Reply) -> None:
        """Put a whole reply of the model into it; `settle` syncs it to disk."""
        content = _with_own_ids(reply.content, self.context.call_ids())
        self.record(records.Replied(content=content, **_facts(reply)), durable=False)

    def begin_call(self, call: Block, *, durable: bool = True) -> None:
        """Record that a tool call of the last reply has begun, see `record`."""
        if call["id"] not in self.begun:
            self.record(records.CallStarted(tool_use_id=call["id"]), durable=durable)
        elif durable:
            self.settle()

    def key_of(self, call: Block) -> str:
        """Return a name for this very call of the last reply.

        It is the same when the call is repeated after a crash, but otherwise unique: servers give
        the same call id twice.
        """
        index = [block["id"] for block in self.context.calls].index(call["id"])
        return f"{self.opened.nonce}-{self._reply_number}-{index}"

    def add_result(self, call: Block, result: Result) -> None:
        """Answer one tool call of the last reply; `settle` syncs it to disk."""
        text, is_error = result.text, result.is_error
        answered = records.CallAnswered(tool_use_id=call["id"], content=text, is_error=is_error)
        self.record(answered, durable=False)

    def add_note(self, text: str, *, task: bool = False, closes: Sequence[str] = ()) -> None:
        """Add a note for the model that is not mail, see `NoteAdded`."""
        self.record(records.NoteAdded(text=text, task=task, closes=tuple(closes)))

    def end_turn(
        self, outcome: str, text: str, *, notice: str = "", about: str | None = None
    ) -> None:
        """Record how a turn ended, see `TurnEnded`."""
        self.record(records.TurnEnded(outcome=outcome, text=text, about=about, notice=notice))

    def clear(self, *, kept: int, least_bytes: int) -> bool:
        """Hide old tool results from the model, if that saves enough bytes.

        Args:
            kept: how many of the last replies keep the results of their calls.
            least_bytes: the least saving that is worth losing the prompt cache.
        """
        through, saved = self.context.find_clearable(kept=kept)
        if saved < max(1, least_bytes):
            return False
        self.record(records.ResultsCleared(through=through))
        return True

    def repair(self, refused: RefusedMessageError, *, system: bool) -> None:
        """Replace a part of the context that the server has refused, and tell the lead.

        Args:
            refused: names the part.
            system: whether the request had notes under the role `system`.
        """
        reply, role = self.context.locate(refused.message, system=system)
        name = self.opened.name or "a subagent"
        notice = f"{name}: a part of the conversation was refused and removed, the work goes on"
        self.record(
            records.MessageRepaired(
                reply=reply,
                role=role,
                block=refused.block,
                thinking=refused.thinking,
                notice=f"{notice} ({refused})",
            )
        )

    def summarise(self, restated: str, *, text: str, reply: Reply | None, skipped: int = 0) -> None:
        """Replace all that the model has seen by a summary, see `Summarised`."""
        facts = {} if reply is None else _facts(reply)
        self.record(records.Summarised(text=text, restated=restated, skipped=skipped, **facts))

    def add_failed_summary(self, reply: Reply) -> None:
        """Record the cost of a reply that was unusable as a summary."""
        self.record(records.SummaryFailed(content=reply.content, **_facts(reply)))

    def record(self, record: records.Record, *, durable: bool = True) -> None:
        """Write a record, then apply it.

        Args:
            record: the event to record.
            durable: whether all records so far are on disk when this returns; else see `settle`.
        """
        line = replace(record, time=time.time()).encode()
        there = self._transcript.append_lines(line, durable=durable)
        # Applied as it will be read again, without the half surrogate pairs that UTF-8 cannot hold.
        self.apply(decode(line) or records.Unknown())
        costs = max(len(self._checkpoint), self.context.bytes)
        since = there.stop - self._checkpoint.stop
        if isinstance(record, records.Summarised) or since > _LEAST_BYTES + _TIMES * costs:
            self._checkpoint = there  # even if there will be none: the next try is not yet
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the state, so that the next process need not read the earlier records.

        It is synced with the next record. A process that does not find it reads more records.
        """
        with suppress(StoreError, NotAMessage):  # a disk is full, or odd mail cannot be encoded
            self._checkpoint = self._transcript.append(make_checkpoint(self), durable=False)
            self.apply(records.Checkpoint())

    def settle(self) -> None:
        """Sync all records to disk.

        Call it before an action that others can see: the records of its cause must survive a power
        cut. A sync takes as long for three records as for one.
        """
        self._transcript.settle()


def _with_own_ids(content: list[Block], known: set[str]) -> list[Block]:
    """Return the blocks of a reply, each call with an id that the API accepts.

    Gateways send calls with an empty id or with the id of an earlier call: each gets a new id.
    """
    blocks = []
    for block in content:
        if block["type"] == "tool_use":
            if not _CALL_ID.fullmatch(block["id"]) or block["id"] in known:
                block = {**block, "id": f"call_{os.urandom(12).hex()}"}  # noqa: PLW2901
            known.add(block["id"])
        blocks.append(block)
    return blocks


def _facts(reply: Reply) -> dict[str, Any]:
    """Return the fields of a reply's record besides its content."""
    return {key: getattr(reply, key) for key in ("stop_reason", "model", "usage", "frame")}


# Another one with each change of what follows from records, or of what stands in the state: then
# all records are read.
FORMAT: Final = 4
_FIELDS: Final = tuple(one.name for one in fields(ConversationState))


def make_checkpoint(state: ConversationState) -> Checkpoint:
    """Return the checkpoint of a state; the checkpoint counts itself as a record."""
    facts = {name: msgspec.to_builtins(getattr(state, name)) for name in _FIELDS}
    facts["_length"] += 1  # the checkpoint itself
    return Checkpoint(format=FORMAT, state=facts, time=time.time())


def find_checkpoint(transcript: Transcript) -> tuple[range, ConversationState]:
    """Return the place of the last usable checkpoint, and its state.

    Without a checkpoint, return the beginning of the transcript and an empty state.
    """
    for there, checkpoint in transcript.checkpoints():
        with suppress(msgspec.ValidationError, TypeError):  # damaged
            if checkpoint.format == FORMAT and set(checkpoint.state) == set(_FIELDS):
                return there, msgspec.convert(checkpoint.state, ConversationState)
    return range(0), ConversationState()
