"""A task of the board, and its JSON, which only this module reads and writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from teamd.errors import TeamError
from teamd.messages import Message, is_moment


class TaskStatus(StrEnum):
    """The progress of a task; a deleted task stays on disk, so that its id is never used again."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    CHECKING = "checking"  # its owner has marked it done, and its check runs
    COMPLETED = "completed"
    DELETED = "deleted"

    @property
    def open(self) -> bool:
        """Whether the task is neither completed nor deleted."""
        return self in (TaskStatus.PENDING, TaskStatus.IN_PROGRESS, TaskStatus.CHECKING)

    @property
    def in_hand(self) -> bool:
        """Whether the owner works on the task or waits for its check."""
        return self in (TaskStatus.IN_PROGRESS, TaskStatus.CHECKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A finished run of a task's check.

    Attributes:
        time: its start, in seconds since the epoch.
        seconds: its duration.
        status: the exit status of the command.
        command: the command that failed, or the last one if all passed.
        why: the reason if the command was ended or could not run; empty otherwise.
        commit: the commit that it ran on; empty for the folder that teammates share.
    """

    time: float
    seconds: float
    status: int
    command: str = ""
    why: str = ""
    commit: str = ""

    @property
    def passed(self) -> bool:
        """Whether the run proves the task."""
        return self.status == 0 and not self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task.

    Attributes:
        owner: the member that has the task; empty without one.
        blocked_by: ids of the tasks that must be done before.
        role: only teammates of this role may claim the task unasked; empty for every role.
        created: in seconds since the epoch, as is `updated`.
        check: the command that must exit with 0 before the task is completed, besides the team's.
        proven: whether the check has passed; `None` without a check.
        attempts: the runs of its check.
        notes: changes that teamd made automatically.
        given_back: former owners that returned it and must not claim it again unasked.
        key: the call that made it, so that a repeated call does not make a second task.
        claim: identifies the work that is being checked.
        kills: the number of times the checker of this claim was killed, possibly by the check.
        untold: mail about the last change that is not yet delivered.
        extra: keys of other programs, kept unchanged.
    """

    id: str
    subject: str
    description: str = ""
    status: TaskStatus = TaskStatus.PENDING
    owner: str = ""
    blocked_by: tuple[str, ...] = ()
    role: str = ""
    created_by: str = ""
    created: float = 0.0
    updated: float = 0.0
    check: str = ""
    proven: bool | None = None
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()
    given_back: tuple[str, ...] = ()
    key: str = ""
    claim: str = ""
    kills: int = 0
    untold: tuple[Message, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def is_of(self, name: str) -> bool:
        """Return whether a member is the owner; names are compared without case."""
        return bool(self.owner) and self.owner.lower() == name.lower()

    def to_json(self) -> dict[str, Any]:
        """Return the task as people and models see it."""
        shown = {name: getattr(self, name) for name in ("id", *_READERS) if name not in _HIDDEN}
        lists = {name: list(value) for name, value in shown.items() if isinstance(value, tuple)}
        lists["attempts"] = [asdict(attempt) for attempt in self.attempts]
        return {**self.extra, **shown, "status": str(self.status), **lists}

    def encode(self) -> bytes:
        """Return the content of the task's file."""
        facts = {name: getattr(self, name) for name in ("key", "claim", "kills")}
        hidden: dict[str, Any] = {name: value for name, value in facts.items() if value}
        if self.untold:
            hidden["untold"] = [message.to_json() for message in self.untold]
        text = json.dumps({**self.to_json(), **hidden}, indent=1, ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes, *, named: str) -> Task:
        """Read a file; every key except the subject may be missing.

        Args:
            content: the content of the file.
            named: the id in the file's name.

        Raises:
            ValueError: the content is not a task; `str()` says why.
        """
        rest = _object(content)
        said = rest.pop("id", named)
        if str(said) != named:
            raise ValueError(f"its id is {said!r}")
        values = {key: read(rest, key) for key, read in _READERS.items()}
        return cls(id=named, **values, extra=MappingProxyType(rest))


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 -- one error for every mistake
    return found


def _text(fields: dict[str, Any], key: str, default: str | None = "") -> str:
    value = fields.pop(key, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise ValueError(f"its {key!r} is {value!r}")  # noqa: TRY004 -- the same
    return value


def _status(fields: dict[str, Any], key: str) -> TaskStatus:
    return TaskStatus(_text(fields, key, TaskStatus.PENDING))


def _list(fields: dict[str, Any], key: str) -> list[Any]:
    value = fields.pop(key, None) or []
    if not isinstance(value, list):
        raise ValueError(f"its {key!r} is {value!r}")  # noqa: TRY004 -- the same
    return value


def _texts(fields: dict[str, Any], key: str) -> tuple[str, ...]:
    """Read a list of strings; ids in older files may be numbers."""
    found = _list(fields, key)
    if not all(isinstance(one, str | int) for one in found):
        raise ValueError(f"its {key!r} is {found!r}")
    return tuple(dict.fromkeys(map(str, found)))


def _moment(fields: dict[str, Any], key: str) -> float:
    value = fields.pop(key, None)
    return float(value) if is_moment(value) else 0.0


def _flag(fields: dict[str, Any], key: str) -> bool | None:
    value = fields.pop(key, None)
    return value if isinstance(value, bool) else None


def _count(fields: dict[str, Any], key: str) -> int:
    value = fields.pop(key, None)
    return value if type(value) is int else 0


def _attempts(fields: dict[str, Any], key: str) -> tuple[Attempt, ...]:
    return tuple(map(_attempt, _list(fields, key)))


def _attempt(said: Any) -> Attempt:
    fields = dict(said) if isinstance(said, dict) else {}
    if type(fields.get("status")) is not int:
        raise ValueError("an entry of its 'attempts' is not an attempt")
    return Attempt(
        time=_moment(fields, "time"),
        seconds=_moment(fields, "seconds"),
        status=fields["status"],
        command=_text(fields, "command"),
        why=_text(fields, "why"),
        commit=_text(fields, "commit"),
    )


def _messages(fields: dict[str, Any], key: str) -> tuple[Message, ...]:
    return tuple(map(_message, _list(fields, key)))


def _message(fields: Any) -> Message:
    to = fields.get("to") if isinstance(fields, dict) else None
    if not isinstance(to, str):
        raise ValueError("an entry of its 'untold' is not a message")  # noqa: TRY004 -- the same
    try:
        return Message.decode(json.dumps(fields).encode(), to=to)
    except TeamError as error:
        raise ValueError(f"an entry of its 'untold' is not a message: {error}") from error


# The keys of a file besides its id, in order; the first mistake is reported.
_READERS: Final[Mapping[str, Callable[[dict[str, Any], str], Any]]] = MappingProxyType(
    {
        "subject": partial(_text, default=None),
        "description": _text,
        "status": _status,
        "owner": _text,
        "blocked_by": _texts,
        "role": _text,
        "created_by": _text,
        "created": _moment,
        "updated": _moment,
        "check": _text,
        "proven": _flag,
        "attempts": _attempts,
        "notes": _texts,
        "given_back": _texts,
        "key": _text,
        "claim": _text,
        "kills": _count,
        "untold": _messages,
    }
)
_HIDDEN: Final = frozenset({"key", "claim", "kills", "untold"})  # from people and models
