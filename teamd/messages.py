"""The words that processes exchange: names, ids and messages. Raw JSON exists only here.

Besides the commands by name that a sentence tells its reader to type.
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

_END_OF_TIME: Final = 253_402_128_000.0  # year 9999; beyond it no calendar of ours knows a date
_MAX_DEPTH: Final = 100  # what can be read can be written again, however deep the stack is by then
_TAG: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z _-]{0,39}")


def is_moment(value: object) -> TypeGuard[float]:
    """Return whether a value from outside is a time in seconds since the epoch, up to year 9999."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < _END_OF_TIME


def is_tag(value: object) -> TypeGuard[str]:
    """Return whether a value from outside is a short plain name, which may be said again as it is.

    A name without an end would make what repeats it longer than a broker takes.
    """
    return isinstance(value, str) and _TAG.fullmatch(value) is not None


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        NotAMessage: there is none, or it holds what no other program could read.
    """
    _refuse_bytes(line)
    try:
        value = _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotAMessage("it is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise NotAMessage("it is not JSON") from error
    if isinstance(value, list):
        raise NotAMessage("it is a JSON array; write one object a line")
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
    """Return whether a line has brackets enough to be nested too deep: nearly none has."""
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


# Python's own reader takes `NaN`, and `1e999` for infinity; no other program could read what
# would be made of them.
_STRICT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
LEAD: Final = "lead"
USER: Final = "user"
TEAMD: Final = "teamd"
ALL: Final = "all"
RESERVED: Final = frozenset({LEAD, USER, TEAMD, ALL})
COMPACT_TYPE: Final = "compact"  # the person wants a conversation to be summed up
INTERRUPT_TYPE: Final = "interrupt"  # ends its receiver's turn; its text is read next, if any
STATE_TYPE: Final = "state"  # a teammate tells the supervisor how it goes
REQUEST_TYPE: Final = "request"  # somebody asks the supervisor to do something
TEAM_FOLDER: Final = ".team"  # in the project's folder: the team of whoever names none
TEAMS_FOLDER: Final = ".teams"  # beside it: teams by name
REQUEST: Final = "_request"  # so the types of mail end that asks for an answer
SHUTDOWN_TYPE: Final = "shutdown_request"
SHUTDOWN_ANSWER_TYPE: Final = "shutdown_response"
PLAN_TYPE: Final = "plan_approval_request"
PLAN_ANSWER_TYPE: Final = "plan_approval_response"
HELD_TYPE: Final = "mail_held"  # a teammate that only talks tells a sender that its mail waits
PERMISSION_TYPE: Final = "permission_request"
PROMPT_KEY: Final = "prompt"  # true in a spawn's message: what it says is a new task
FRESH_KEY: Final = "fresh"  # true besides, where that begins a new conversation
MAX_MESSAGE_BYTES: Final = 1_048_576
MAX_INBOX_BYTES: Final = 67_108_864
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_MADE_ID: Final = re.compile(r"([0-9a-f]{14})-[0-9a-f]{16}")
# Commands in a sentence. Those that are about the project, not about a team, are left as they are.
_COMMAND: Final = r"`(teamctl|teamd) (?=[a-z])(?!(?:create|delete|demo|init|teams)\b)"


def check_name(name: str) -> str:
    """Return `name` if a teammate can have it.

    Raises:
        BadName: it is reserved, or not 1 to 64 of `A-Z a-z 0-9 _ -` with a letter or digit first.
    """
    if name.lower() in RESERVED:
        raise BadName(name, "it is reserved; take another one")
    if not NAME.fullmatch(name):
        raise BadName(name, "take up to 64 of A-Z a-z 0-9 _ - with a letter or digit first")
    return name


def check_team_name(name: str) -> str:
    """Return `name` if a team can have it.

    Raises:
        BadTeamName: it is not 1 to 64 of `A-Z a-z 0-9 _ -` with a letter or digit first.
    """
    if not NAME.fullmatch(name):
        raise BadTeamName(name)
    return name


def new_id() -> str:
    """Return an id that sorts by the time it was made: microseconds and 64 random bits, in hex."""
    return f"{time.time_ns() // 1000:014x}-{os.urandom(8).hex()}"


def moment_of(made: str) -> float | None:
    """Return when `new_id` made this id, in seconds since the epoch; `None` for any other id."""
    found = _MADE_ID.fullmatch(made)
    return int(found[1], 16) / 1_000_000 if found else None


def respawn_command(name: str, *options: str) -> str:
    """Return the command that starts a teammate again, in backquotes; for the lead that is `chat`.

    Args:
        name: the teammate's; empty for a subagent, which no command calls.
        options: of the command.
    """
    if not name:
        return "a smaller task"
    called = "teamctl chat" if name == LEAD else f"teamctl spawn {name} …"
    return f"`{' '.join([called, *options])}`"


def add_team_option(text: str, team: str | None) -> str:
    """Return the text with `--team` in each command between backquotes that has none yet.

    Args:
        text: a sentence of ours.
        team: the team's name; `None` for the one that commands mean by themselves.
    """
    if team is None:
        return text
    return re.sub(_COMMAND, lambda found: f"`{found[1]} --team {team} ", text)


def team_command(command: str, team: str | None) -> str:
    """Return a command about a team with `--team`; `None` is the team that it means by default."""
    program, _, rest = command.partition(" ")
    return command if team is None else f"{program} --team {team} {rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the mail.

    Attributes:
        sender: who it is from; `from` in JSON.
        to: the receiver's name.
        content: the text, never with a NUL character.
        type: `message`, `broadcast`, …; the set is open.
        id: the same id twice is one message.
        timestamp: seconds since the epoch.
        extra: every other key of the line as it came: `summary`, `request_id`, `approve`,
            `reason` and those of foreign programs.
        id_given: whether the line had an id; otherwise its reader gave it one.
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
        """Return the line that stands in an inbox, newline included.

        Raises:
            NotAMessage: the content holds a NUL character, or an extra no JSON number.
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
        """Read one line of `to`'s inbox; a foreign writer may leave out all but `content`.

        Args:
            line: as it stands there.
            to: whose inbox it is.
            nameless: returns the id of a message that came without one; by default a new one.
            undated: returns the time of one that came without; by default now.

        Raises:
            NotAMessage: it is not JSON, not UTF-8, holds a NUL, is no object, has no text content
                or is nested beyond all use.
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
        moment = fields.pop("timestamp", None)  # milliseconds, say, are none
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
        """The message as the object that `--json` and the transcript hold."""
        decoded: dict[str, Any] = json.loads(self.encode())
        return decoded

    def is_same_as(self, other: Message) -> bool:
        """Return whether both are one message, sent twice: same id, sender and content."""
        return (self.id, self.sender, self.content) == (other.id, other.sender, other.content)

    @property
    def wordless(self) -> bool:
        """Return whether it is an interrupt that leaves its receiver nothing to read."""
        return self.type == INTERRUPT_TYPE and not self.content.strip()

    @property
    def summary(self) -> str:
        """A line on what it is about, or nothing."""
        return _text(self.extra.get("summary"))


def _text(value: object) -> str:
    return without_surrogates(value).replace("\0", "") if isinstance(value, str) else ""


def without_surrogates(text: str) -> str:
    """Return a text that UTF-8 can hold: JSON's escapes and file names can spell half of a pair."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
