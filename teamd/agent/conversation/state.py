"""The state of a conversation, computed from its records in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from teamd.agent.conversation import prompts
from teamd.agent.conversation.context import THINKING, Context
from teamd.agent.conversation.prompts import OpenItem, render_summary
from teamd.messages import PLAN_ANSWER_TYPE, SHUTDOWN_TYPE, Message
from teamd.models import CONTEXT_FULL, Block
from teamd.tools.mail import MAIL_TOOLS, SendMessage
from teamd.transcript import records

SAME_TEXT_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Sent:
    """A sent text: its receiver, its digest, and the time."""

    to: str
    digest: str
    moment: float


@dataclass(slots=True)
class Talk:
    """The wakes in which a teammate has only talked.

    Attributes:
        wakes: how many wakes in a row were talk.
        told: senders who have been told that their mail waits.
    """

    wakes: int = 0
    told: set[str] = field(default_factory=set)
    _is_talk: bool = True  # of the wake at hand: as far as it has come
    _sent: list[_Sent] = field(default_factory=list)

    def end(self) -> None:
        """Reset: the teammate has done work other than talk."""
        self.wakes = 0
        self.told = set()
        self._is_talk = False

    def hear(self, *, idle_talk: bool) -> None:
        """Take mail into account; `idle_talk` is whether all of it is from other teammates."""
        if not idle_talk:
            self.end()

    def act(self, tools: Iterable[str]) -> None:
        """Take into account the tools that a reply calls."""
        if not MAIL_TOOLS.issuperset(tools):
            self.end()

    def rest(self) -> None:
        """Count the wake that ends here, if it was talk."""
        self.wakes += self._is_talk
        self._is_talk = True

    def note_success(self, call: Block, moment: float) -> None:
        """Remember the mail that a successful call has sent."""
        match call:
            case {"name": SendMessage.name, "input": {"to": str(to), "content": str(content)}}:
                late = moment - SAME_TEXT_SECONDS
                self._sent = [sent for sent in self._sent if sent.moment > late]
                self._sent.append(_Sent(to, _digest(content), moment))

    def receivers(self, content: str, now: float) -> Iterator[str]:
        """Yield the receivers of this text in the last ten minutes, as the sender spelt them."""
        wanted = _digest(content)
        for sent in self._sent:
            if sent.digest == wanted and abs(now - sent.moment) < SAME_TEXT_SECONDS:
                yield sent.to


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()


# What another conversation does not end.
_LASTING: Final = (
    "turns", "input_tokens", "output_tokens", "unsent", "told", "talk", "_seen", "_length"
)  # fmt: skip
_UNOPENED: Final = records.Opened()
_gist_encoder: Final = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class OwedLine:
    """A line that is owed to a person or teammate; an empty `to` means the teammate's superior."""

    text: str
    to: str = ""


@dataclass
class ConversationState:
    """The sum of the records so far: all of it, as a checkpoint holds it.

    Attributes:
        opened: the record that began it.
        owes_reply: whether the model must be asked, since it has not answered some input.
        unfollowed: whether the last reply has calls, or was cut off, and is not handled yet.
        stop_reason: why the last reply ended.
        said: the text of the last reply.
        paused_about: the reason of the last pause, if no reply came since; the lead knows it.
        unanswered: tool calls of the last reply that have no result yet.
        begun: the ids of its calls that were begun.
        unsent: notices for the lead and others, by their ids, that may not have been sent.
        told: the news that the model was given, in this conversation or an earlier one.
        turns: replies so far, including earlier conversations and summaries.
        input_tokens: of all those replies, including cached ones.
        output_tokens: of all those replies.
        open_items: mail and tasks of the current turn, and notes without a reply yet.
        summary: the text of the last summary, if any.
        context: the input of the model; others only read it.
        task: names the current task; another task has another name.
        resting: whether no reply has come since the last turn ended, or none at all.
        paused: whether that turn is not over but waits for a person.
        new_mail: the mail since then.
        shutdown_requests: the ids of those that it has read, whether they are real or forged.
        closed_requests: those that the model knows to be closed.
        finished_plans: the ids of answered plans after whose answer a turn has ended.
        talk: how long it has done nothing but talk to other teammates.
        instructions: the note with the instructions that replaced those of the system prompt.
    """

    opened: records.Opened = _UNOPENED
    owes_reply: bool = False
    unfollowed: bool = False
    stop_reason: str = ""
    said: str = ""
    paused_about: str | None = None
    unanswered: list[Block] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    unsent: dict[str, OwedLine] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    open_items: list[OpenItem] = field(default_factory=list)
    summary: str = ""
    context: Context = field(default_factory=Context)
    task: str = ""
    resting: bool = True
    paused: bool = False
    new_mail: list[Message] = field(default_factory=list)
    shutdown_requests: list[str] = field(default_factory=list)
    closed_requests: set[str] = field(default_factory=set)
    finished_plans: set[str] = field(default_factory=set)
    talk: Talk = field(default_factory=Talk)
    instructions: str = ""
    _answered_plans: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)
    _length: int = 0  # includes unknown records: calls and tasks are named by it
    _reply_number: int = 0

    def __post_init__(self) -> None:
        if not self.task:
            self._begin_task()

    @property
    def identity(self) -> str:
        """A line that says whose conversation it is."""
        return prompts.introduce(self.opened)

    def apply(self, record: records.Record) -> None:  # noqa: C901, PLR0912, PLR0915 -- a case a kind
        """Take the next record into account."""
        self._length += 1
        match record:
            case records.Opened():
                self._open(record)
            case records.Delivered():
                self._deliver(record)
            case records.NoteAdded():
                self.unfollowed = False
                self.closed_requests.update(record.closes)
                self._tell(OpenItem(note=record.text, passing=not record.task))
            case records.NewsAdded():
                self.told.add(record.about)
                self.talk.end()
                if record.instructions:
                    self.instructions = record.text
                self._tell(OpenItem(note=record.text, passing=True))
            case records.TaskBegun():
                self._begin_task()
            case records.Replied():
                self._reply(record)
            case records.CallStarted():
                self.begun.add(record.tool_use_id)
            case records.CallAnswered():
                self._answer(record)
            case records.ResultsCleared():
                self.context.clear(record.through)
            case records.MessageRepaired():
                self.context.repair(
                    record.reply, record.role, record.block, thinking=record.thinking
                )
                self._owe(record.notice)
            case records.Summarised():
                self._summarise(record)
            case records.SummaryFailed():
                self._count(record)
            case records.TurnEnded():
                self._end_turn(record)
            case records.MailHeld():
                self._hold(record)
            case records.NoticeSent():
                self.unsent.pop(record.id, None)

    def has_seen(self, message: Message) -> bool:
        """Return whether this message was in one of the records.

        The same id from the same sender with the same words is the same message: the id alone
        may have been used twice by a foreign program, and neither message may be lost.
        """
        return _gist(message) in self._seen

    def _open(self, opened: records.Opened) -> None:
        self.talk.end()
        self.talk.rest()
        kept = {name: getattr(self, name) for name in _LASTING}
        ConversationState.__init__(self, opened=opened, **kept)

    def _begin_task(self) -> None:
        self.task = f"{self.opened.nonce}-{self._length}"

    def _drop_calls(self) -> None:
        self.unfollowed = False
        self.unanswered = []
        self.begun = set()

    def _deliver(self, delivered: records.Delivered) -> None:
        self._seen.update(map(_gist, delivered.messages))
        self.talk.hear(idle_talk=delivered.idle_talk)
        told = tuple(one for one in delivered.messages if not one.wordless)
        if told:
            self._tell(OpenItem(messages=told))
        self.new_mail += told
        for message in delivered.messages:
            request = message.extra.get("request_id")
            if not isinstance(request, str):
                continue
            if message.type == SHUTDOWN_TYPE and request not in self.shutdown_requests:
                self.shutdown_requests.append(request)
            if message.type == PLAN_ANSWER_TYPE:
                self._answered_plans.add(request)
        if delivered.new_task:
            self._begin_task()

    def _tell(self, item: OpenItem) -> None:
        self.open_items.append(item)
        text = item.note or prompts.render_inbox(item.messages)
        self.context.add_text(text, note=bool(item.note) and item.passing)
        self.owes_reply = True

    def _reply(self, reply: records.Replied) -> None:
        self._count(reply)
        self.resting = self.paused = False
        self.new_mail = []
        self.talk.act(call["name"] for call in reply.calls)
        self.stop_reason = reply.stop_reason
        self.said = reply.text
        if reply.stop_reason != CONTEXT_FULL:  # such a reply failed, like the one before it
            self.paused_about = None
        self.owes_reply = reply.stop_reason == "pause_turn"
        self.unfollowed = True
        self.open_items = [item for item in self.open_items if not item.passing]
        content = _returnable(reply.content)
        if content and reply.stop_reason != "refusal":
            self.context.add_reply(self.turns, content, reply.frame)
            self._reply_number = self._length
            self.unanswered = self.context.calls
            self.begun = set()
        # Else the API would not take it back: it takes no empty turn, and refuses a refused one.
        counted = reply.usage.total_input_tokens and reply.usage.total_tokens
        self.context.measure(counted, reply.frame)

    def _answer(self, answered: records.CallAnswered) -> None:
        call = answered.tool_use_id
        for block in self.unanswered:
            if block["id"] == call and not answered.is_error:
                self.talk.note_success(block, answered.time)
        self.unanswered = [block for block in self.unanswered if block["id"] != call]
        self.unfollowed = bool(self.unanswered)
        self.owes_reply = True
        self.context.add_result(call, answered.content, is_error=answered.is_error)

    def _summarise(self, made: records.Summarised) -> None:
        self._count(made)
        self.stop_reason = ""
        self._drop_calls()
        self.summary = made.text
        self.context.restart(render_summary(made.text, made.restated))

    def _end_turn(self, ended: records.TurnEnded) -> None:
        self._owe(ended.notice)
        self.resting = True
        self.new_mail = []
        self.paused = ended.outcome == records.PAUSED
        if self.paused:  # it continues at the same step
            self.paused_about = ended.text if ended.about is None else ended.about
        else:
            self.owes_reply = False
            self.unfollowed = False
            if ended.outcome == records.INTERRUPTED:  # a person is there
                self.talk.end()
            self.talk.rest()
        # None of these is an end of the work.
        if ended.outcome not in (records.PAUSED, records.LIMIT, records.REPEATED):
            self.open_items = []
            self.finished_plans |= self._answered_plans

    def _hold(self, held: records.MailHeld) -> None:
        self.talk.told.update(held.senders)
        self._owe(held.notice)
        for sender in held.senders:
            self._owe(prompts.MAIL_HELD, to=sender)

    def _owe(self, text: str, *, to: str = "") -> None:
        """Remember a line that is to be sent, under a unique id."""
        if text:
            key = "-".join((self.opened.nonce, str(self._length), "notice", *filter(None, [to])))
            self.unsent[key] = OwedLine(text, to)

    def _count(self, made: records.Replied | records.Summarised | records.SummaryFailed) -> None:
        if made.usage is None:  # a summary that no reply brought
            return
        self.turns += 1
        self.output_tokens += made.usage.output_tokens
        self.input_tokens += made.usage.total_input_tokens


def _gist(message: Message) -> str:
    """Return a short digest that identifies a message, since years of a transcript hold many."""
    told = _gist_encoder.encode([message.id, message.sender, message.content])
    return hashlib.sha256(told.encode(errors="replace")).hexdigest()[:16]


def _returnable(content: list[Block]) -> list[Block]:
    """Return the blocks that the API accepts back.

    Blank text, thinking without a signature and blocks of unknown types are shown, and not sent
    back. Thinking after such a block in the same reply is bound to it, and not sent back either.
    """
    kept: list[Block] = []
    whole = True
    for block in content:
        if _is_returnable(block) and (whole or block["type"] not in THINKING):
            kept.append(block)
        else:
            whole = False
    while kept and kept[-1]["type"] in THINKING:
        kept.pop()
    return kept


def _is_returnable(block: Block) -> bool:
    match block["type"]:
        case "text":
            return bool(block["text"].strip())
        case "thinking":
            return _is_filled(block.get("signature"))
        case "redacted_thinking":
            return _is_filled(block.get("data"))
    return bool(block["type"] == "tool_use")


def _is_filled(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
