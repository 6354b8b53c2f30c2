"""A task of the board: what its file says. Raw JSON of tasks exists only here."""

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
    """The progress of a task; a deleted one stays on disk, so that its id is never given again."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    CHECKING = "checking"  # its owner says that it is done, and its check runs
    COMPLETED = "completed"
    DELETED = "deleted"

    @property
    def open(self) -> bool:
        """Return whether there is something left to do."""
        return self in (TaskStatus.PENDING, TaskStatus.IN_PROGRESS, TaskStatus.CHECKING)

    @property
    def in_hand(self) -> bool:
        """Return whether its owner is at it, or waits for its check."""
        return self in (TaskStatus.IN_PROGRESS, TaskStatus.CHECKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A run of a task's check that came to its end.

    Attributes:
        time: of its begin, in seconds since the epoch.
        seconds: how long it took.
        status: the exit status of the command.
        command: that failed; of several that passed the last.
        why: what ended it where it did not end by itself, or kept it from running.
        commit: that it ran in a clone of; empty for the folder that teammates share.
    """

    time: float
    seconds: float
    status: int
    command: str = ""
    why: str = ""
    commit: str = ""

    @property
    def passed(self) -> bool:
        """Return whether it proves the task."""
        return self.status == 0 and not self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task.

    Attributes:
        owner: who has claimed it or was given it; empty for nobody.
        blocked_by: ids of tasks that have to be done before.
        role: whom it is for, where teammates claim tasks by themselves; empty for anybody.
        created: in seconds since the epoch, as is `updated`.
        check: the command that must exit with 0 for it to be completed, besides that of the team.
        proven: whether that was so; `None` where nothing was to be proven.
        attempts: the runs of its check.
        notes: what happened to it that nobody asked for.
        given_back: who had it and gave it back; such a one does not begin it again by itself.
        key: the call that made it, so that a repeated one makes no second task.
        claim: names what its owner said to be done, while that is checked.
        kills: how often somebody has ended its check since then, maybe the check itself.
        untold: mail about this very state that has yet to be put into inboxes.
        extra: keys of other programs, kept as they came.
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
        """Return whether that is its owner; names are compared without case."""
        return bool(self.owner) and self.owner.lower() == name.lower()

    def to_json(self) -> dict[str, Any]:
        """The task as people and models see it."""
        shown = {name: getattr(self, name) for name in ("id", *_READERS) if name not in _HIDDEN}
        lists = {name: list(value) for name, value in shown.items() if isinstance(value, tuple)}
        lists["attempts"] = [asdict(attempt) for attempt in self.attempts]
        return {**self.extra, **shown, "status": str(self.status), **lists}

    def encode(self) -> bytes:
        """The content of its file."""
        facts = {name: getattr(self, name) for name in ("key", "claim", "kills")}
        hidden: dict[str, Any] = {name: value for name, value in facts.items() if value}
        if self.untold:
            hidden["untold"] = [message.to_json() for message in self.untold]
        text = json.dumps({**self.to_json(), **hidden}, indent=1, ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes, *, named: str) -> Task:
        """Read a file; all but the subject may be missing.

        Args:
            content: of the file.
            named: the id that its name tells.

        Raises:
            ValueError: it is no task; `str()` says why.
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
        raise ValueError("it is nested beyond all use") from error
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 -- one error for all that is wrong
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
    """A list of texts; the lessons' ids are numbers."""
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
        raise ValueError("its 'attempts' hold something that is none")
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
        raise ValueError("its 'untold' holds something that is no message")  # noqa: TRY004 -- the same
    try:
        return Message.decode(json.dumps(fields).encode(), to=to)
    except TeamError as error:
        raise ValueError(f"its 'untold' holds something that is no message: {error}") from error


# What a file says besides its id, in its order; of what is wrong the first is told.
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
