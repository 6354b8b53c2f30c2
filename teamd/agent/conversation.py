"""A teammate's conversation: records of its transcript, and the messages that follow from them.

Every change is a record first: it is appended to the transcript, then applied. So a process that
reads the transcript comes to the same messages as the one that wrote it.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from teamd.agent.course import Course

if TYPE_CHECKING:
    from collections.abc import Iterable

    from teamd.agent.counts import Known
    from teamd.models import Block, Reply
    from teamd.protocol import Message
    from teamd.store.transcript import Record, Transcript
    from teamd.tools import Result

FORMAT = 1


class Conversation(Course):
    """The one conversation of one teammate; its course is read from the transcript at first."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self._transcript = transcript
        for record in transcript.records():
            self.apply(record)
        transcript.make_durable()  # the process before may have been killed before it had

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
        return not self.has_seen(message.to_json())

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

    def add_note(self, text: str, **facts: Any) -> None:
        """Tell the model something that is nobody's mail."""
        self._record({"record": "note", "text": text, **facts})

    def begin_task(self) -> None:
        """Note that what follows is another task."""
        self._record({"record": "task"})

    def add_news(self, about: str, text: str) -> None:
        """Tell the model what happened beside the conversation.

        Args:
            about: names what happened; `told` holds it from now on, through every restart.
            text: what the model reads.
        """
        self._record({"record": "news", "about": about, "text": text})

    def end_turn(self, outcome: str, text: str, *, notice: str = "", **facts: Any) -> None:
        """Note how a turn ended.

        Args:
            outcome: in a word.
            text: its final text, or why it is paused.
            notice: what the lead is to be told of that; it is owed until `note_told`.
            facts: more for the record.
        """
        ended = {"record": "ended", "outcome": outcome, "text": text, **facts}
        self._record({**ended, "notice": notice} if notice else ended)

    def note_told(self, notice: str) -> None:
        """Note that a notice was sent, by its id in `untold`."""
        self._record({"record": "noticed", "id": notice})

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

    @property
    def known(self) -> list[Known]:
        """What its records tell of the tokens of its last requests, the newest first."""
        return self.counts.known(self.view)

    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the Messages API takes it."""
        return self.view.messages()

    def _record(self, record: Record) -> None:
        # Applied as it will be read again, without the half surrogate pairs that UTF-8 cannot hold.
        text = json.dumps({**record, "time": time.time()}, ensure_ascii=False)
        written: Record = json.loads(text.encode(errors="replace"))
        self._transcript.append(written)
        self.apply(written)


def _cost(reply: Reply) -> Record:
    """What a reply's record holds besides its content."""
    usage = {
        "input_tokens": reply.usage.input_tokens,
        "cache_read_tokens": reply.usage.cache_read_tokens,
        "cache_write_tokens": reply.usage.cache_write_tokens,
        "output_tokens": reply.usage.output_tokens,
    }
    cost = {"stop_reason": reply.stop_reason, "model": reply.model, "usage": usage}
    return {**cost, "frame": reply.frame} if reply.frame else cost
