"""The names, ids and messages that processes exchange. Raw message JSON exists only here.

It also holds, by name, the commands that sentences suggest.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeGuard

from teamd.errors import BadName, BadTeamName, NotAMessage

_END_OF_TIME: Final = 253_402_128_000.0  # year 9999, the last that calendar functions support
_MAX_DEPTH: Final = 100  # so that decoded messages can be encoded even on a deep stack
_TAG: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z _-]{0,39}")


def is_moment(value: object) -> TypeGuard[float]:
    """Return whether an untrusted value is a time in seconds since the epoch, before year 9999."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < _END_OF_TIME


def is_tag(value: object) -> TypeGuard[str]:
    """Return whether an untrusted value is a short plain name that may be repeated as it is.

    An unbounded name could make a message longer than a broker accepts.
    """
    return isinstance(value, str) and _TAG.fullmatch(value) is not None


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line.

    Raises:
        NotAMessage: the line is not an object, or contains values that other programs cannot read.
    """
    _refuse_bytes(line)
    try:
        value = _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotAMessage("it is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise NotAMessage("it is not JSON") from error
    if isinstance(value, list):
        raise NotAMessage("it is a JSON array; write one object per line")
    if not isinstance(value, dict):
        raise NotAMessage("it is not a JSON object")
    if _may_be_deep(line) and any(_deeper(found, _MAX_DEPTH) for found in value.values()):
        raise NotAMessage(f"it is nested deeper than {_MAX_DEPTH}")
    return value


def _refuse_bytes(line: bytes) -> None:
    if line.startswith(BOM_UTF8):
        raise NotAMessage("it begins with a byte order mark (BOM)")
    if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise NotAMessage("it is UTF-16; write UTF-8")
    if b"\0" in line:
        raise NotAMessage("it holds a NUL byte")


def _may_be_deep(line: bytes) -> bool:
    """Return whether a line has enough brackets to be nested too deeply; few have."""
    return line.count(b"[") + line.count(b"{") > _MAX_DEPTH


def _deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper(found, levels - 1) for found in value)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return number


# Python's own decoder accepts `NaN`, and reads `1e999` as infinity; other programs cannot read such
# values when they are written back.
_STRICT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
LEAD: Final = "lead"
USER: Final = "user"
TEAMD: Final = "teamd"
ALL: Final = "all"
RESERVED: Final = frozenset({LEAD, USER, TEAMD, ALL})
COMPACT_TYPE: Final = "compact"  # the person asks for a conversation to be compacted
INTERRUPT_TYPE: Final = "interrupt"  # ends its receiver's turn; its text, if any, is read next
STATE_TYPE: Final = "state"  # a teammate reports its state to the supervisor
REQUEST_TYPE: Final = "request"  # a request to the supervisor
TEAM_FOLDER: Final = ".team"  # in the project's folder: the default team
TEAMS_FOLDER: Final = ".teams"  # beside it: teams by name
REQUEST: Final = "_request"  # suffix of mail types that need an answer
SHUTDOWN_TYPE: Final = "shutdown_request"
SHUTDOWN_ANSWER_TYPE: Final = "shutdown_response"
PLAN_TYPE: Final = "plan_approval_request"
PLAN_ANSWER_TYPE: Final = "plan_approval_response"
HELD_TYPE: Final = "mail_held"  # a talk-only teammate tells a sender that its mail waits
PERMISSION_TYPE: Final = "permission_request"
PUSH_TYPE: Final = "push"
PROMPT_KEY: Final = "prompt"  # true in a spawn's message whose text is a new task
FRESH_KEY: Final = "fresh"  # true in addition if the task starts a new conversation
MAX_MESSAGE_BYTES: Final = 1_048_576
MAX_INBOX_BYTES: Final = 67_108_864
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_MADE_ID: Final = re.compile(r"([0-9a-f]{14})-[0-9a-f]{16}")
# Commands in a sentence. Commands about the project, not about a team, are left unchanged.
_COMMAND: Final = r"`(teamctl|teamd) (?=[a-z])(?!(?:create|delete|demo|init|teams)\b)"


def needs_answer(type_: str) -> bool:
    """Return whether mail of a type asks for an answer."""
    return type_.endswith(REQUEST) or type_ == PUSH_TYPE


def check_name(name: str) -> str:
    """Return `name` if it is valid for a teammate.

    Raises:
        BadName: it is reserved, or not 1 to 64 of `A-Z a-z 0-9 _ -` with a letter or digit first.
    """
    if name.lower() in RESERVED:
        raise BadName(name, "it is reserved; take another one")
    if not NAME.fullmatch(name):
        raise BadName(name, "use up to 64 of A-Z a-z 0-9 _ - with a letter or digit first")
    return name


def check_team_name(name: str) -> str:
    """Return `name` if it is valid for a team.

    Raises:
        BadTeamName: it is not 1 to 64 of `A-Z a-z 0-9 _ -` with a letter or digit first.
    """
    if not NAME.fullmatch(name):
        raise BadTeamName(name)
    return name


def new_id() -> str:
    """Return an id that sorts by creation time: microseconds and 64 random bits, in hex."""
    return f"{time.time_ns() // 1000:014x}-{os.urandom(8).hex()}"


def moment_of(made: str) -> float | None:
    """Return when `new_id` made this id, in seconds since the epoch; `None` for a foreign id."""
    found = _MADE_ID.fullmatch(made)
    return int(found[1], 16) / 1_000_000 if found else None


def respawn_command(name: str, *options: str) -> str:
    """Return the command that restarts a teammate, in backquotes; for the lead that is `chat`.

    Args:
        name: the teammate's name; empty for a subagent, which no command can start.
        options: options of the command.
    """
    if not name:
        return "a smaller task"
    called = "teamctl chat" if name == LEAD else f"teamctl spawn {name} …"
    return f"`{' '.join([called, *options])}`"


def add_team_option(text: str, team: str | None) -> str:
    """Add `--team` to each command in backquotes that lacks it.

    Args:
        text: a sentence from this program.
        team: the team's name; `None` for the default team.
    """
    if team is None:
        return text
    return re.sub(_COMMAND, lambda found: f"`{found[1]} --team {team} ", text)


def team_command(command: str, team: str | None) -> str:
    """Return a command about a team with `--team`; `None` stands for the default team."""
    program, _, rest = command.partition(" ")
    return command if team is None else f"{program} --team {team} {rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the mail.

    Attributes:
        sender: the sender's name; `from` in JSON.
        to: the receiver's name.
        content: the text, without NUL characters.
        type: `message`, `broadcast`, …; the set is open.
        id: two messages with the same id are one message.
        timestamp: seconds since the epoch.
        extra: every other key of the line, unchanged: `summary`, `request_id`, `approve`, `reason`
            and the keys of foreign programs.
        id_given: whether the line had an id; otherwise its reader assigned one.
    """

    sender: str
    to: str
    content: str
    type: str = "message"
    id: str = field(default_factory=new_id)
    timestamp: float = field(default_factory=time.time)
    extra: Mapping[str, Any] = field(default_factory=dict)
    id_given: bool = field(default=True, compare=False)

    def encode(self) -> bytes:
        """Return the line for an inbox, with its newline.

        Raises:
            NotAMessage: the content has a NUL character, or an extra has an infinite number.
        """
        if "\0" in self.content:
            raise NotAMessage("a message cannot hold a NUL character; leave it out")
        known = {
            **self.extra,
            "id": self.id,
            "type": self.type,
            "from": self.sender,
            "to": self.to,
            "content": self.content,
            "timestamp": self.timestamp,
        }
        try:
            text = _ENCODER.encode(known)
        except ValueError as error:
            raise NotAMessage("a message cannot hold an infinite number") from error
        return text.encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(
        cls,
        line: bytes,
        *,
        to: str,
        nameless: Callable[[], str] = new_id,
        undated: Callable[[], float] = time.time,
    ) -> Message:
        """Read one line of `to`'s inbox; foreign writers may omit every key but `content`.

        Args:
            line: the line from the inbox.
            to: the owner of the inbox.
            nameless: returns the id for a message without one; by default a new id.
            undated: returns the time for a message without one; by default now.

        Raises:
            NotAMessage: the line is not UTF-8 or not a JSON object, has a NUL, has no text content,
                or is nested too deeply.
        """
        fields = parse_object(line)
        content = fields.pop("content", None)
        if not isinstance(content, str):
            has_text = "text" in fields
            why = (
                "it has `text` in place of `content`" if has_text else "it has no text as `content`"
            )
            raise NotAMessage(why)
        if "\0" in content:
            raise NotAMessage("its content holds a NUL character")
        fields.pop("to", None)
        given = _text(fields.pop("id", None))
        moment = fields.pop("timestamp", None)  # milliseconds, for example, are out of range
        return cls(
            id=given or nameless(),
            id_given=bool(given),
            type=_text(fields.pop("type", None)) or "message",
            sender=_text(fields.pop("from", None)) or "unknown",
            to=to,
            content=without_surrogates(content),
            timestamp=float(moment) if is_moment(moment) else undated(),
            extra=MappingProxyType(fields),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the message as the object used by `--json` and the transcript."""
        decoded: dict[str, Any] = json.loads(self.encode())
        return decoded

    def is_same_as(self, other: Message) -> bool:
        """Return whether both are copies of one message: same id, sender and content."""
        return (self.id, self.sender, self.content) == (other.id, other.sender, other.content)

    @property
    def wordless(self) -> bool:
        """Whether this is an interrupt without text to read."""
        return self.type == INTERRUPT_TYPE and not self.content.strip()

    @property
    def summary(self) -> str:
        """The sender's one-line summary, or an empty string."""
        return _text(self.extra.get("summary"))


def _text(value: object) -> str:
    return without_surrogates(value).replace("\0", "") if isinstance(value, str) else ""


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON escapes and file names can contain but UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
