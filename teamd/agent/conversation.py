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

from teamd.agent import prompts
from teamd.agent.standing import PAUSED, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from teamd.models import Block, Reply
    from teamd.protocol import Message
    from teamd.store.transcript import Record, Transcript
    from teamd.tools import Result

FORMAT = 1
CONTEXT_FULL = "model_context_window_exceeded"
_THINKING = frozenset({"thinking", "redacted_thinking"})


class Conversation:
    """The one conversation of one teammate.

    Attributes:
        system: the system prompt, frozen when the conversation was opened; empty before.
        tools: those of the workspace that it may use, frozen likewise; `None` for all.
        model: the one that its role asks for, frozen likewise; `None` for that of the team.
        owes_reply: whether the model is to be asked: there is something it has not answered.
        unfollowed: whether what the last reply asks for has not been done to its end.
        stop_reason: why the last reply ended.
        said: the text of the last reply.
        paused_about: what it was paused about last, without a reply since; the lead knows it.
        unanswered: tool calls of the last reply that have no result yet.
        begun: the ids of those of its calls that were begun.
        told: what the model has been told of by `add_news`, whichever conversation it was in.
        turns: replies so far, those of earlier conversations of the name included.
        input_tokens: of all those replies, cached ones included.
        standing: at which task it is, and whether it rests or is asked to leave.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._seen: set[tuple[str, str, str]] = set()
        self.told: set[str] = set()
        self._length = 0
        self._nonce = ""
        self.standing = Standing()
        self.turns = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.tools: frozenset[str] | None = None
        self.model: str | None = None
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
        usage = {
            "input_tokens": reply.usage.input_tokens,
            "cache_read_tokens": reply.usage.cache_read_tokens,
            "cache_write_tokens": reply.usage.cache_write_tokens,
            "output_tokens": reply.usage.output_tokens,
        }
        self._record(
            {
                "record": "reply",
                "content": reply.content,
                "stop_reason": reply.stop_reason,
                "model": reply.model,
                "usage": usage,
            }
        )

    def begin_call(self, call: Block) -> str:
        """Note that a tool call of the last reply is begun.

        Returns:
            A name for this very call, the same when it is repeated after a crash and no other
            call's: servers give the same call id twice.
        """
        if call["id"] not in self.begun:
            self._record({"record": "started", "tool_use_id": call["id"]})
        index = [block["id"] for block in self._calls].index(call["id"])
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

    def end_turn(self, outcome: str, text: str, **facts: Any) -> None:
        """Note how a turn ended: its outcome and final text, or why it is paused."""
        self._record({"record": "ended", "outcome": outcome, "text": text, **facts})

    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the Messages API takes it."""
        ahead = self._user_content()
        return [*self._messages, {"role": "user", "content": ahead}] if ahead else self._messages

    def _record(self, record: Record) -> None:
        # Applied as it will be read again, without the half surrogate pairs that UTF-8 cannot hold.
        text = json.dumps({**record, "time": time.time()}, ensure_ascii=False)
        written: Record = json.loads(text.encode(errors="replace"))
        self._transcript.append(written)
        self._apply(written)

    def _apply(self, record: Record) -> None:
        # A kind that a later version wrote is passed over: it is no part of the conversation here.
        self._length += 1
        self.standing.apply(record)
        apply = getattr(self, f"_apply_{record.get('record')}", None)
        if apply is not None:
            apply(record)

    def _begin(self, system: str) -> None:
        self.system = system
        self.owes_reply = False
        self.unfollowed = False
        self.stop_reason = ""
        self.said = ""
        self.paused_about: str | None = None
        self.unanswered: list[Block] = []
        self.begun: set[str] = set()
        self._calls: list[Block] = []
        self._reply_number = 0
        self._messages: list[dict[str, Any]] = []
        self._results: dict[str, Block] = {}
        self._texts: list[Block] = []

    def _apply_opened(self, record: Record) -> None:
        self._begin(record["system"])
        tools = record.get("tools")
        self.tools = None if tools is None else frozenset(tools)
        self.model = record.get("model")
        self._nonce = record.get("nonce", "")

    def _apply_mail(self, record: Record) -> None:
        self._seen.update(map(_identity, record["messages"]))
        self._tell(prompts.render_inbox(record["messages"]))

    def _apply_note(self, record: Record) -> None:
        self.unfollowed = False
        self._tell(record["text"])

    def _apply_news(self, record: Record) -> None:
        self.told.add(record["about"])
        self._tell(record["text"])

    def _apply_started(self, record: Record) -> None:
        self.begun.add(record["tool_use_id"])

    def _apply_reply(self, record: Record) -> None:
        usage = record["usage"]
        self.turns += 1
        self.output_tokens += usage["output_tokens"]
        self.input_tokens += sum(
            usage[key] for key in ("input_tokens", "cache_read_tokens", "cache_write_tokens")
        )
        self.stop_reason = record["stop_reason"]
        self.said = "".join(b["text"] for b in record["content"] if b["type"] == "text")
        if self.stop_reason != CONTEXT_FULL:  # such a reply came to nothing, as the one before
            self.paused_about = None
        self.owes_reply = self.stop_reason == "pause_turn"
        self.unfollowed = True
        content = _returnable(record["content"])
        if not content or record["stop_reason"] == "refusal":
            return  # the API takes no empty turn, and a refused one is refused again
        self._messages = self.messages()
        self._messages.append({"role": "assistant", "content": content})
        self._results = {}
        self._texts = []
        self._calls = [block for block in content if block["type"] == "tool_use"]
        self._reply_number = self._length
        self.unanswered = self._calls
        self.begun = set()

    def _apply_result(self, record: Record) -> None:
        call = record["tool_use_id"]
        self.unanswered = [block for block in self.unanswered if block["id"] != call]
        self.unfollowed = bool(self.unanswered)
        self.owes_reply = True
        self._results[call] = {
            "type": "tool_result",
            "tool_use_id": call,
            "content": [{"type": "text", "text": record["content"]}],
            "is_error": record["is_error"],
        }

    def _apply_ended(self, record: Record) -> None:
        if record["outcome"] == PAUSED:  # who is paused goes on where it was
            self.paused_about = record.get("about", record["text"])
            return
        self.owes_reply = False
        self.unfollowed = False

    def _tell(self, text: str) -> None:
        self._texts.append({"type": "text", "text": text})
        self.owes_reply = True

    def _user_content(self) -> list[Block]:
        """What stands behind the last reply: results first, as the API wants them."""
        return [*self._results.values(), *self._texts]


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
