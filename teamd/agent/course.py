"""The course of a conversation: what follows from its records, one after the other."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from teamd.agent import briefing, prompts
from teamd.agent.briefing import Owed
from teamd.agent.counts import Counts, input_tokens
from teamd.agent.gauge import Gauge
from teamd.agent.standing import LIMIT, PAUSED, Standing
from teamd.agent.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from teamd.models import Block
    from teamd.store.transcript import Record

CONTEXT_FULL = "model_context_window_exceeded"
CUT_OFF_REASONS: Final = frozenset({"max_tokens", CONTEXT_FULL})
_THINKING = frozenset({"thinking", "redacted_thinking"})


class Course:
    """Where a conversation has come to.

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
        untold: lines for the lead, by their ids, that are not known to have been sent.
        told: what the model has been told of as news, whichever conversation it was in.
        turns: replies so far, those of earlier conversations of the name included, and those
            that are summaries.
        input_tokens: of all those replies, cached ones included.
        identity: a line that says whose conversation it is.
        owed: mail and tasks of the turn that has not ended, and notes that no reply followed yet.
        summary: the summary that stands at the beginning of what the model sees, if any.
        view: what the model sees; only looked at by others.
        gauge: how much of a context that takes.
        counts: what servers have told of the requests so far, for the bound of the next.
        standing: at which task it is, and whether it rests or is asked to leave.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, str]] = set()
        self._length = 0
        self._nonce = ""
        self.told: set[str] = set()
        self.standing = Standing()
        self.tools: frozenset[str] | None = None
        self.model: str | None = None
        self.turns = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.counts = Counts()
        self.untold: dict[str, str] = {}
        self._begin("")

    def apply(self, record: Record) -> None:
        """Take the next record into account."""
        # A kind that a later version wrote is passed over: it is no part of the conversation here.
        self._length += 1
        self.standing.apply(record)
        apply = getattr(self, f"_apply_{record.get('record')}", None)
        if apply is not None:
            apply(record)

    def has_seen(self, message: Mapping[str, Any]) -> bool:
        """Whether this message, as `Message.to_json` gives it, was in one of the records."""
        return _gist(message) in self._seen

    def _begin(self, system: str) -> None:
        self.system = system
        self.owes_reply = False
        self.unfollowed = False
        self.stop_reason = ""
        self.said = ""
        self.paused_about: str | None = None
        self.unanswered: list[Block] = []
        self.begun: set[str] = set()
        self.identity = ""
        self.owed: list[Owed] = []
        self.summary = ""
        self.view = View()
        self.counts.restart()
        self.gauge = Gauge()
        self._reply_number = 0

    def _apply_opened(self, record: Record) -> None:
        self._begin(record["system"])
        tools = record.get("tools")
        self.tools = None if tools is None else frozenset(tools)
        self.model = record.get("model")
        self._nonce = record.get("nonce", "")
        self.identity = briefing.identity(record)

    def _apply_mail(self, record: Record) -> None:
        self._seen.update(map(_gist, record["messages"]))
        self.owed.append(Owed(messages=tuple(record["messages"])))
        self._tell(prompts.render_inbox(record["messages"]))

    def _apply_note(self, record: Record) -> None:
        self.unfollowed = False
        self.owed.append(Owed(note=record["text"], passing=not record.get("task", False)))
        self._tell(record["text"])

    def _apply_news(self, record: Record) -> None:
        self.told.add(record["about"])
        self.owed.append(Owed(note=record["text"], passing=True))
        self._tell(record["text"])

    def _apply_started(self, record: Record) -> None:
        self.begun.add(record["tool_use_id"])

    def _apply_reply(self, record: Record) -> None:
        self._count(record)
        self.stop_reason = record["stop_reason"]
        self.said = "".join(b["text"] for b in record["content"] if b["type"] == "text")
        if self.stop_reason != CONTEXT_FULL:  # such a reply came to nothing, as the one before
            self.paused_about = None
        self.owes_reply = self.stop_reason == "pause_turn"
        self.unfollowed = True
        self.owed = [one for one in self.owed if not one.passing]
        self.counts.add_reply(record, self.view)
        content = _returnable(record["content"])
        if content and record["stop_reason"] != "refusal":
            self.view.reply(self.turns, content)
            self._reply_number = self._length
            self.unanswered = self.view.calls
            self.begun = set()
        # Else the API would not take it back: it takes no empty turn, and refuses a refused one.
        asked = input_tokens(record)
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
            self.counts.add(record)
        self.counts.restart()
        self.stop_reason = ""
        self.unfollowed = False
        self.unanswered = []
        self.begun = set()
        self.summary = record["text"]
        self.view.restart(briefing.render(record["text"], record["restated"]))

    def _apply_vain(self, record: Record) -> None:
        self._count(record)
        self.counts.add(record)

    def _apply_ended(self, record: Record) -> None:
        if notice := record.get("notice"):
            self.untold[f"{self._nonce}-{self._length}-notice"] = notice
        if record["outcome"] == PAUSED:  # who is paused goes on where it was
            self.paused_about = record.get("about", record.get("text"))
        else:
            self.owes_reply = False
            self.unfollowed = False
        if record["outcome"] not in (PAUSED, LIMIT):  # who was stopped has not done its work
            self.owed = []

    def _apply_noticed(self, record: Record) -> None:
        self.untold.pop(record["id"], None)

    def _tell(self, text: str) -> None:
        self.view.tell(text)
        self.owes_reply = True

    def _count(self, record: Record) -> None:
        self.turns += 1
        self.output_tokens += record["usage"]["output_tokens"]
        self.input_tokens += input_tokens(record)


def _gist(message: Mapping[str, Any]) -> tuple[str, str, str]:
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
