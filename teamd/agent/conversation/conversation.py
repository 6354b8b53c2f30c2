"""A teammate's conversation: the records of its transcript, and how they are written.

Every change is a record first: it is appended to the transcript, then applied. So a process that
reads the transcript comes to the same messages as the one that wrote it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from teamd.agent.conversation.state import ConversationState
from teamd.errors import NotAMessage, StoreError
from teamd.files.files import SyncAhead
from teamd.messages import Message
from teamd.models import Block, RefusedMessageError, Reply
from teamd.tools import Result
from teamd.transcript import records
from teamd.transcript.file import Transcript, decode, message_in
from teamd.transcript.records import Checkpoint

_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_LEAST_BYTES: Final = 1 << 17  # read in a few milliseconds
_TIMES: Final = 4  # what the checkpoint takes; a conversation that only grows needs none


class Conversation(ConversationState):
    """The one conversation of one teammate; its state is read from the transcript at first."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._checkpoint, facts = find_checkpoint(transcript)
        super().__init__(**facts)
        for record in transcript.records(self._checkpoint.stop):
            self.apply(record)
        transcript.make_durable()  # the process before may have been killed before it had

    def open(self, opened: records.Opened) -> None:
        """Begin anew; what was before stays on disk only. It is on disk with the next record."""
        nonce, secret = os.urandom(8).hex(), os.urandom(16).hex()
        self.record(replace(opened, nonce=nonce, secret=secret), durable=False)

    def deliver(
        self, messages: Iterable[Message], *, behind: SyncAhead | None = None, **facts: Any
    ) -> None:
        """Put mail into it, for `settle` to bring to the disk.

        Args:
            messages: the mail.
            behind: a sync that has to end before any of it is written.
            facts: see `Delivered`.
        """
        record = records.Delivered(messages=tuple(messages), **facts)
        self.record(record, durable=False, behind=behind)

    def add_reply(self, reply: Reply) -> None:
        """Put a whole reply of the model into it, for `settle` to bring to the disk."""
        content = _with_own_ids(reply.content, self.context.call_ids())
        self.record(records.Replied(content=content, **_facts(reply)), durable=False)

    def begin_call(self, call: Block, *, durable: bool = True) -> None:
        """Note that a tool call of the last reply is begun, see `record`."""
        if call["id"] not in self.begun:
            self.record(records.CallStarted(tool_use_id=call["id"]), durable=durable)
        elif durable:
            self.settle()

    def key_of(self, call: Block) -> str:
        """Return a name for this very call of the last reply.

        It is the same when the call is repeated after a crash, and no other call's: servers give
        the same call id twice.
        """
        index = [block["id"] for block in self.context.calls].index(call["id"])
        return f"{self.opened.nonce}-{self._reply_number}-{index}"

    def add_result(self, call: Block, result: Result) -> None:
        """Answer one tool call of the last reply, for `settle` to bring to the disk."""
        text, is_error = result.text, result.is_error
        answered = records.CallAnswered(tool_use_id=call["id"], content=text, is_error=is_error)
        self.record(answered, durable=False)

    def add_note(self, text: str, *, task: bool = False, closes: Sequence[str] = ()) -> None:
        """Tell the model something that is nobody's mail, see `NoteAdded`."""
        self.record(records.NoteAdded(text=text, task=task, closes=tuple(closes)))

    def end_turn(
        self, outcome: str, text: str, *, notice: str = "", about: str | None = None
    ) -> None:
        """Note how a turn ended, see `TurnEnded`."""
        self.record(records.TurnEnded(outcome=outcome, text=text, about=about, notice=notice))

    def clear(self, *, kept: int, least_bytes: int) -> bool:
        """Take old results of tools out of the model's sight, if that saves so many bytes.

        Args:
            kept: how many of the last replies keep the results of their calls.
            least_bytes: what is too little to be worth a prompt cache.
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
        """Put a summary in the place of all that the model has seen, see `Summarised`."""
        facts = {} if reply is None else _facts(reply)
        self.record(records.Summarised(text=text, restated=restated, skipped=skipped, **facts))

    def add_failed_summary(self, reply: Reply) -> None:
        """Note what a reply cost that was to be a summary and is of no use."""
        self.record(records.SummaryFailed(content=reply.content, **_facts(reply)))

    def record(
        self, record: records.Record, *, durable: bool = True, behind: SyncAhead | None = None
    ) -> None:
        """Write a record down, then apply it.

        Args:
            record: whatever has happened.
            durable: on disk when this returns, with all before it; otherwise with `settle`.
            behind: a sync that has to end before it is written, which is with the next record
                then, or with `settle`.
        """
        line = replace(record, time=time.time()).encode()
        if behind is None:
            there = self._transcript.append_lines(line, durable=durable)
        else:
            there = self._transcript.hold_lines(line, behind)
        # Applied as it will be read again, without the half surrogate pairs that UTF-8 cannot hold.
        self.apply(decode(line) or records.Unknown())
        costs = max(len(self._checkpoint), self.context.bytes)
        since = there.stop - self._checkpoint.stop
        if isinstance(record, records.Summarised) or since > _LEAST_BYTES + _TIMES * costs:
            self._checkpoint = there  # even if there will be none: the next try is not yet
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the state down, so that the next process need not read what stands above.

        It goes to the disk with the next record: whoever finds none reads more, and that is all.
        """
        with suppress(StoreError, NotAMessage):  # a disk is full, or odd mail cannot be encoded
            self._checkpoint = self._transcript.append(make_checkpoint(self), durable=False)
            self.apply(records.Checkpoint())

    def settle(self) -> None:
        """Bring all records to the disk.

        For whoever is about to do what others can see: what was asked and answered must be known
        then whatever happens. A sync takes as long for three records as for one.
        """
        self._transcript.settle()

    def settle_ahead(self) -> None:
        """Begin to settle, where there is something else to do before that has to have ended."""
        self._transcript.settle_ahead()


def _with_own_ids(content: list[Block], known: set[str]) -> list[Block]:
    """Return the blocks of a reply in which each call has an id that the API takes back.

    Gateways send calls with an empty id, or with one that an earlier call had: each gets a new one.
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
    """Return what a reply's record holds besides its content."""
    return {key: getattr(reply, key) for key in ("stop_reason", "model", "usage", "frame")}


# Another one with each change of what follows from records, or of what stands in the state: then
# all records are read. A field that is more or less is found without it.
FORMAT: Final = 3
_NAMES: Final = {"Message": Message, "Block": Block, "ChatMessage": Any}  # imported for types only


def make_checkpoint(state: ConversationState) -> Checkpoint:
    """Return the checkpoint of a state as it is now, and will be behind it."""
    facts = {one.name: getattr(state, one.name) for one in fields(ConversationState)}
    facts["_length"] += 1  # the checkpoint itself
    return Checkpoint(format=FORMAT, state=facts, time=time.time())


def find_checkpoint(transcript: Transcript) -> tuple[range, dict[str, Any]]:
    """Return where the last checkpoint stands that can be used, and the fields of its state.

    Where there is none, that is the beginning of the transcript, and no fields.
    """
    for there, checkpoint in transcript.checkpoints():
        with suppress(ValueError):  # damaged, or of a version whose state has other fields
            if checkpoint.format == FORMAT:
                return there, _decode_fields(ConversationState, checkpoint.state)
    return range(0), {}


def _decode_fields(kind: Any, found: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, by name."""
    hints = _hints(kind)
    if not isinstance(found, dict) or found.keys() != hints.keys():
        raise ValueError(kind)
    return {name: _decode(hint, found[name]) for name, hint in hints.items()}


def _decode(kind: Any, found: Any) -> Any:
    """Return the value of a type that stands there as JSON."""
    if get_origin(kind) is UnionType:  # with `None`
        return None if found is None else _decode(get_args(kind)[0], found)
    if kind is Message:
        return _decode_message(found)
    if is_dataclass(kind):
        return cast("type", kind)(**_decode_fields(kind, found))
    return _decode_plain(kind, found)


def _decode_plain(kind: Any, found: Any) -> Any:
    origin, items = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(found, dict):
        if items[1] is Any:  # of blocks there may be thousands
            return found
        return {key: _decode(items[1], value) for key, value in found.items()}
    if origin in (list, set, frozenset, tuple) and isinstance(found, list):
        return origin(_decode(items[0], value) for value in found)
    if kind is Any or (
        origin is None and isinstance(found, (int, float) if kind is float else kind)
    ):
        return found
    raise ValueError(kind)


def _decode_message(found: Any) -> Message:
    message = message_in(found)
    if message is None:
        raise ValueError(found)
    return message


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, by name."""
    hints = get_type_hints(kind, localns=_NAMES)
    return {one.name: hints[one.name] for one in fields(kind) if one.init}
