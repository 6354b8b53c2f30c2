"""The records of a transcript: one class per kind, one JSON object per line.

A record says one thing that happened. Every field has a default, so that records of earlier
versions decode; keys that a later version adds are skipped.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, TypeAlias, get_args

from teamd.messages import Message
from teamd.model_server import Usage

# The notes of the bash tool below the output, see `teamd.tools.shell`.
_NOTED: Final = re.compile(
    r"^\[(exit status \d+|killed by [^\]]+|ended after [^,\]]+|all of it was ended)", re.MULTILINE
)
_END: Final = 1000  # characters; notes are the last lines


def find_trouble(answer: CallAnswered) -> str:
    """Return how a command failed, such as `exit status 1`; empty if it ended well.

    The call itself succeeded: the model was told. `member.js` does the same for the page.
    """
    found = _NOTED.search(answer.content[-_END:])
    return found[1] if found else ""


Block: TypeAlias = dict[str, Any]  # of content, just as the Messages API gives and takes it

FORMAT: Final = 1
# How a turn ended, besides the stop reasons of the model.
PAUSED: Final = "paused"
LIMIT: Final = "limit"
REPEATED: Final = "repeated"  # one call, again and again
INTERRUPTED: Final = "interrupted"
_NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The fields of all records.

    Attributes:
        kind: the value of the key `record`.
        optional: names of fields that are left out if they have their default.
        time: when it was written, in seconds since the epoch; 0 if unknown.
    """

    kind: ClassVar[str] = ""
    optional: ClassVar[frozenset[str]] = frozenset()
    time: float = 0.0

    def encode(self) -> bytes:
        """Return the line of the transcript, newline included."""
        written = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in self.optional or getattr(self, one.name) != one.default
        }
        written = {"record": self.kind, **written, "time": written.pop("time")}
        text = json.dumps(written, ensure_ascii=False, default=_plain)
        return text.encode(errors="replace") + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(_Record):
    """A record of a later version, or a damaged one; only its existence matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(_Record):
    """A new conversation began; the earlier one stays on disk only.

    Attributes:
        system: the system prompt.
        nonce: tells this conversation from others; it is a part of the ids of its mail.
        secret: known to this teammate only, for ids that cannot be guessed.
        name: the teammate's; empty for a subagent, like `role` and `team`.
        model: the model that the role asks for; `None` for the team's.
        effort: the effort that the role asks for; `None` for the team's.
        tools: the workspace tools that it may use; `None` for all.
        dropped: tools of any kind that it lacks.
        plan: whether it works by plan; `None` if the record does not say.
        spawned_by: the address of a lead in another team that it reports to.
    """

    kind: ClassVar[str] = "opened"
    optional: ClassVar[frozenset[str]] = frozenset(
        {"secret", "name", "role", "team", "effort", "dropped", "plan", "spawned_by"}
    )
    format: int = FORMAT
    nonce: str = ""
    secret: str = ""
    system: str = ""
    name: str = ""
    role: str = ""
    team: str = ""
    model: str | None = None
    effort: str | None = None
    tools: frozenset[str] | None = None
    dropped: frozenset[str] = frozenset()
    plan: bool | None = None
    spawned_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(_Record):
    """Mail was put into the conversation, or read by the person.

    Attributes:
        taken: when it was taken from the inbox, if that is known.
        new_task: whether it begins another task.
        idle_talk: whether all of it is from other teammates, and none of it from the board.
    """

    kind: ClassVar[str] = "mail"
    optional: ClassVar[frozenset[str]] = frozenset({"idle_talk"})
    messages: tuple[Message, ...] = ()
    taken: float | None = None
    new_task: bool = False
    idle_talk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteAdded(_Record):
    """A note for the model that is not mail.

    Attributes:
        task: whether it is a whole task, such as a subagent's.
        closes: ids of shutdown requests that it declares closed.
    """

    kind: ClassVar[str] = "note"
    optional: ClassVar[frozenset[str]] = frozenset({"task", "closes"})
    text: str = ""
    task: bool = False
    closes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsAdded(_Record):
    """An event outside the conversation was told to the model; `about` names the event.

    Attributes:
        instructions: whether the text has the instructions that apply from now on.
    """

    kind: ClassVar[str] = "news"
    optional: ClassVar[frozenset[str]] = frozenset({"instructions"})
    about: str = ""
    text: str = ""
    instructions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBegun(_Record):
    """Another task began."""

    kind: ClassVar[str] = "task"


@dataclass(frozen=True, slots=True, kw_only=True)
class _FromModel(_Record):
    """A reply of the model.

    Attributes:
        frame: the digest of its request without the messages, see `frame_of`.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"frame"})
    content: list[Block] = field(default_factory=list)
    stop_reason: str = ""
    model: str = ""
    usage: Usage = _NO_USAGE
    frame: str = ""

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def calls(self) -> list[Block]:
        """The tool calls."""
        return [block for block in self.content if block["type"] == "tool_use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied(_FromModel):
    """The model replied."""

    kind: ClassVar[str] = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(_Record):
    """A tool call began."""

    kind: ClassVar[str] = "started"
    tool_use_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswered(_Record):
    """A tool call got its result."""

    kind: ClassVar[str] = "result"
    tool_use_id: str = ""
    content: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsCleared(_Record):
    """Long results of calls, up to those of a given reply, were removed from the context."""

    kind: ClassVar[str] = "cleared"
    through: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRepaired(_Record):
    """A part of the context that the server refused was replaced.

    Attributes:
        reply: the number of the reply that the message is or precedes; 0 if none has followed.
        role: of the message.
        block: the index of the block in it; `None` for all of them.
        thinking: whether only thinking was removed.
        notice: a line that the lead is owed until `NoticeSent`.
    """

    kind: ClassVar[str] = "repaired"
    reply: int = 0
    role: str = "user"
    block: int | None = None
    thinking: bool = False
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarised(_Record):
    """A summary took the place of everything in the context.

    Attributes:
        text: the model's summary; empty if it wrote none.
        restated: the program's additions.
        skipped: how many exchanges the model did not see when it wrote it.
        usage: `None` if the summary did not come from a reply.
    """

    kind: ClassVar[str] = "summary"
    optional: ClassVar[frozenset[str]] = frozenset({"stop_reason", "model", "usage", "frame"})
    text: str = ""
    restated: str = ""
    skipped: int = 0
    stop_reason: str = ""
    model: str = ""
    usage: Usage | None = None
    frame: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFailed(_FromModel):
    """The model was asked for a summary, and replied without one."""

    kind: ClassVar[str] = "vain"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded(_Record):
    """A turn ended, or waits for a person.

    Attributes:
        outcome: in a word.
        text: its last words, or why it is paused.
        about: names the problem that paused it; `None` if `text` does.
        notice: a line that the lead is owed until `NoticeSent`.
    """

    kind: ClassVar[str] = "ended"
    optional: ClassVar[frozenset[str]] = frozenset({"about", "notice"})
    outcome: str = ""
    text: str = ""
    about: str | None = None
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailHeld(_Record):
    """Mail waits in the inbox, since the teammate only talks.

    Attributes:
        senders: the senders of that mail, who are owed a line about it until `NoticeSent`.
        notice: a line that the lead is owed as well; empty if it has been told.
    """

    kind: ClassVar[str] = "held"
    optional: ClassVar[frozenset[str]] = frozenset({"notice"})
    senders: tuple[str, ...] = ()
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSent(_Record):
    """A notice was sent; `id` names it."""

    kind: ClassVar[str] = "noticed"
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(_Record):
    """The fields of a conversation's state: a reader of this format can skip earlier records."""

    kind: ClassVar[str] = "checkpoint"
    format: int = 0
    state: dict[str, Any] = field(default_factory=dict)


Record: TypeAlias = (
    Opened | Delivered | NoteAdded | NewsAdded | TaskBegun | Replied | CallStarted | CallAnswered
    | ResultsCleared | MessageRepaired | Summarised | SummaryFailed | TurnEnded | MailHeld
    | NoticeSent | Checkpoint | Unknown
)  # fmt: skip
KINDS: Final[tuple[type[Record], ...]] = tuple(kind for kind in get_args(Record) if kind.kind)


def mail_in(record: Record | None) -> tuple[Message, ...]:
    """Return the messages that a record puts into the conversation."""
    return record.messages if isinstance(record, Delivered) else ()


def _plain(value: Any) -> Any:
    """Return a value that JSON can express in place of one that it cannot."""
    match value:
        case Message():
            return value.to_json()
        case set() | frozenset():
            return sorted(value, key=str)  # a hand in the file may have put in anything
        case _:
            return {one.name: getattr(value, one.name) for one in fields(value) if one.init}
