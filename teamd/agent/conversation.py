"""A teammate's conversation: records of its transcript, and the messages that follow from them.

Every change is a record first: it is appended to the transcript, then applied. So a process that
reads the transcript comes to the same messages as the one that wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from teamd.agent import briefing, prompts
from teamd.agent.briefing import Owed
from teamd.agent.gauge import Gauge
from teamd.agent.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from teamd.models import Block, Reply
    from teamd.protocol import Message
    from teamd.store.transcript import Record, Transcript
    from teamd.tools import Result

FORMAT = 1
PAUSED = "paused"
LIMIT = "limit"
_THINKING = frozenset({"thinking", "redacted_thinking"})


class Conversation:
    """The one conversation of one teammate.

    Attributes:
        system: the system prompt, frozen when the conversation was opened; empty before.
        owes_reply: whether the model is to be asked: there is something it has not answered.
        unfollowed: whether what the last reply asks for has not been done to its end.
        stop_reason: why the last reply ended.
        said: the text of the last reply.
        unanswered: tool calls of the last reply that have no result yet.
        begun: the ids of those of its calls that were begun.
        turns: replies so far, those of earlier conversations of the name included, and those
            that are summaries.
        input_tokens: of all those replies, cached ones included.
        identity: a line that says whose conversation it is.
        owed: mail of the turn that has not ended, and notes that no reply followed yet.
        summary: the summary that stands at the beginning of what the model sees, if any.
        view: what the model sees; only looked at by others.
        gauge: how much of a context that takes.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._seen: set[tuple[str, str, str]] = set()
        self._length = 0
        self._nonce = ""
        self.turns = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self._begin("")
        for record in transcript.records():
            self._apply(record)

    def open(self, system: str, **facts: Any) -> None:
        """Begin anew with this system prompt; what was before stays on disk only."""
        nonce = os.urandom(8).hex()
        opened = {"record": "opened", "format": FORMAT, "nonce": nonce, "system": system}
        self._record({**opened, **facts})

    def is_new(self, message: Message) -> bool:
        """Whether this message has not been in the conversation yet.

        The same id from the same sender with the same words is the same message: the id alone
        may have been given twice by a foreign program, and nothing of it may be lost.
        """
        return _identity(message.to_json()) not in self._seen

    def deliver(self, messages: Iterable[Message], **facts: Any) -> None:
        """Put mail into the conversation."""
        mail = {"record": "mail", "messages": [message.to_json() for message in messages]}
        self._record({**mail, **facts})

    def add_reply(self, reply: Reply) -> None:
        """Put a whole reply of the model into it."""
        self._record({"record": "reply", "content": reply.content, **_cost(reply)})

    def begin_call(self, call: Block) -> str:
        """Note that a tool call of the last reply is begun.

        Returns:
            A name for this very call, the same when it is repeated after a crash and no other
            call's: servers give the same call id twice.
        """
        if call["id"] not in self.begun:
            self._record({"record": "started", "tool_use_id": call["id"]})
        index = [block["id"] for block in self.view.calls].index(call["id"])
        return f"{self._nonce}-{self._reply_number}-{index}"

    def add_result(self, call: Block, result: Result) -> None:
        """Answer one tool call of the last reply."""
        self._record(
            {
                "record": "result",
                "tool_use_id": call["id"],
                "content": result.text,
                "is_error": result.is_error,
            }
        )

    def add_note(self, text: str) -> None:
        """Tell the model something that is nobody's mail."""
        self._record({"record": "note", "text": text})

    def end_turn(self, outcome: str, text: str) -> None:
        """Note how a turn ended: its outcome and final text, or why it is paused."""
        self._record({"record": "ended", "outcome": outcome, "text": text})

    def clear(self, *, kept: int, least_bytes: int) -> bool:
        """Take old results of tools out of the model's sight, if that saves so many bytes.

        Args:
            kept: how many of the last replies keep the results of their calls.
            least_bytes: what is too little to be worth a prompt cache.
        """
        through, saved = self.view.clearable(kept=kept)
        if saved < max(1, least_bytes):
            return False
        self._record({"record": "cleared", "through": through})
        return True

    def summarise(self, restated: str, *, text: str, reply: Reply | None, skipped: int = 0) -> None:
        """Put a summary in the place of all that the model has seen.

        Args:
            restated: what holds besides it, as `briefing.restate` gives it.
            text: of the summary; empty for none.
            reply: the model's that brought it.
            skipped: how many exchanges the model had not in sight when it wrote it.
        """
        cost = {} if reply is None else _cost(reply)
        summary = {"record": "summary", "text": text, "restated": restated, "skipped": skipped}
        self._record({**summary, **cost})

    def add_vain_reply(self, reply: Reply) -> None:
        """Note what a reply cost that was to be a summary and is of no use."""
        self._record({"record": "vain", "content": reply.content, **_cost(reply)})

    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the Messages API takes it."""
        return self.view.messages()

    def _record(self, record: Record) -> None:
        # Applied as it will be read again, without the half surrogate pairs that UTF-8 cannot hold.
        text = json.dumps({**record, "time": time.time()}, ensure_ascii=False)
        written: Record = json.loads(text.encode(errors="replace"))
        self._transcript.append(written)
        self._apply(written)

    def _apply(self, record: Record) -> None:
        # A kind that a later version wrote is passed over: it is no part of the conversation here.
        self._length += 1
        apply = getattr(self, f"_apply_{record.get('record')}", None)
        if apply is not None:
            apply(record)

    def _begin(self, system: str) -> None:
        self.system = system
        self.owes_reply = False
        self.unfollowed = False
        self.stop_reason = ""
        self.said = ""
        self.unanswered: list[Block] = []
        self.begun: set[str] = set()
        self.identity = ""
        self.owed: list[Owed] = []
        self.summary = ""
        self.view = View()
        self.gauge = Gauge()
        self._reply_number = 0

    def _apply_opened(self, record: Record) -> None:
        self._begin(record["system"])
        self._nonce = record.get("nonce", "")
        self.identity = briefing.identity(record)

    def _apply_mail(self, record: Record) -> None:
        self._seen.update(map(_identity, record["messages"]))
        self.owed.append(Owed(messages=tuple(record["messages"])))
        self._tell(prompts.render_inbox(record["messages"]))

    def _apply_note(self, record: Record) -> None:
        self.unfollowed = False
        self.owed.append(Owed(note=record["text"]))
        self._tell(record["text"])

    def _apply_started(self, record: Record) -> None:
        self.begun.add(record["tool_use_id"])

    def _apply_reply(self, record: Record) -> None:
        self._count(record)
        self.stop_reason = record["stop_reason"]
        self.said = "".join(b["text"] for b in record["content"] if b["type"] == "text")
        self.owes_reply = self.stop_reason == "pause_turn"
        self.unfollowed = True
        self.owed = [one for one in self.owed if not one.note]
        content = _returnable(record["content"])
        if content and record["stop_reason"] != "refusal":
            self.view.reply(self.turns, content)
            self._reply_number = self._length
            self.unanswered = self.view.calls
            self.begun = set()
        # Else the API would not take it back: it takes no empty turn, and refuses a refused one.
        asked = _input(record)
        self.gauge.measure(asked and asked + record["usage"]["output_tokens"], self.view.bytes)

    def _apply_result(self, record: Record) -> None:
        call = record["tool_use_id"]
        self.unanswered = [block for block in self.unanswered if block["id"] != call]
        self.unfollowed = bool(self.unanswered)
        self.owes_reply = True
        self.view.answer(call, record["content"], is_error=record["is_error"])

    def _apply_cleared(self, record: Record) -> None:
        self.view.clear(record["through"])

    def _apply_summary(self, record: Record) -> None:
        if "usage" in record:
            self._count(record)
        self.stop_reason = ""
        self.unfollowed = False
        self.unanswered = []
        self.begun = set()
        self.summary = record["text"]
        self.view.restart(briefing.render(record["text"], record["restated"]))

    def _apply_vain(self, record: Record) -> None:
        self._count(record)

    def _apply_ended(self, record: Record) -> None:
        if record["outcome"] != PAUSED:  # who is paused goes on where it was
            self.owes_reply = False
            self.unfollowed = False
        if record["outcome"] not in (PAUSED, LIMIT):  # who was stopped has not done its work
            self.owed = []

    def _tell(self, text: str) -> None:
        self.view.tell(text)
        self.owes_reply = True

    def _count(self, record: Record) -> None:
        self.turns += 1
        self.output_tokens += record["usage"]["output_tokens"]
        self.input_tokens += _input(record)


def _cost(reply: Reply) -> Record:
    """What a reply's record holds besides its content."""
    usage = {
        "input_tokens": reply.usage.input_tokens,
        "cache_read_tokens": reply.usage.cache_read_tokens,
        "cache_write_tokens": reply.usage.cache_write_tokens,
        "output_tokens": reply.usage.output_tokens,
    }
    return {"stop_reason": reply.stop_reason, "model": reply.model, "usage": usage}


def _input(record: Record) -> int:
    keys = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
    return sum(int(record["usage"][key]) for key in keys)


def _identity(message: Mapping[str, Any]) -> tuple[str, str, str]:
    content = hashlib.sha256(message["content"].encode(errors="replace")).hexdigest()
    return message["id"], message["from"], content


def _returnable(content: list[Block]) -> list[Block]:
    """What the API takes back: no blank text, and no thinking that came to nothing."""
    kept = [block for block in content if not (block["type"] == "text" and _blank(block["text"]))]
    while kept and kept[-1]["type"] in _THINKING:
        kept.pop()
    return kept


def _blank(text: str) -> bool:
    return not text.strip()
