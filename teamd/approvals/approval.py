"""An approval that one member asks of another, as it stands in a file of `.team/requests/`."""

from __future__ import annotations

import hmac
import json
import os
import re
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import TeamError
from teamd.messages import PLAN_TYPE, SHUTDOWN_TYPE, is_moment

if TYPE_CHECKING:
    from collections.abc import Mapping

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_ID_BYTES: Final = 6  # short enough to be typed, long enough for one team


class Kind(StrEnum):
    """What is asked for. The set is open; these are the kinds that teamd acts on."""

    SHUTDOWN = SHUTDOWN_TYPE
    PLAN = PLAN_TYPE


class Verdict(StrEnum):
    """The state of an approval."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Something that one member asks another to approve: a plan, or a shutdown.

    Attributes:
        asker: the member that asked and is told the answer; `from` in JSON.
        to: the only member that may answer.
        asked: seconds since the epoch, as are `deadline` and `answered`.
        sent: whether it stands in the inbox of `to`.
        told: whether the answer stands in the asker's.
        listeners: agents that wait for its end by mail, and have not been told of it.
        settled: whether what follows from the answer is done, where anything is to be done.
        task: of a plan: which task of the asker's it is for.
        extra: keys of other programs, kept as they came.
    """

    id: str = field(default_factory=lambda: os.urandom(_ID_BYTES).hex())
    type: str
    asker: str
    to: str
    content: str
    asked: float
    deadline: float | None = None
    status: Verdict = Verdict.OPEN
    answered: float | None = None
    reason: str = ""
    sent: bool = False
    told: bool = False
    settled: bool = False
    task: str = ""
    listeners: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.status is Verdict.OPEN

    @property
    def owes_end(self) -> bool:
        """Whether it is a shutdown that came to an end on which nobody has acted yet."""
        ends = self.status in (Verdict.APPROVED, Verdict.EXPIRED)
        return self.type == Kind.SHUTDOWN and ends and not self.settled

    @property
    def owes_mail(self) -> bool:
        """Whether somebody is to be told how it ended; of one without an answer, once acted on."""
        if self.is_open or (self.status is Verdict.EXPIRED and not self.settled):
            return False
        return not self.told or bool(self.listeners)

    def to_json(self) -> dict[str, Any]:
        """Return the approval as its file and `--json` show it."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "extra"}
        values = {"from" if key == "asker" else key: value for key, value in own.items()}
        return {**self.extra, **values, "listeners": list(self.listeners)}

    def encode(self) -> bytes:
        """Return the content of its file."""
        return json.dumps(self.to_json(), indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Approval | None:
        """Read a file; return `None` where it holds no approval: somebody wrote into it."""
        try:
            fields = json.loads(content)
            moments = {key: fields.pop(key, None) for key in ("asked", "answered", "deadline")}
            texts: dict[str, Any] = {
                key: fields.pop(key) for key in ("id", "type", "to", "content")
            }
            texts |= {key: fields.pop(key, "") for key in ("reason", "task")}
            texts["asker"] = fields.pop("from")
            flags: dict[str, Any] = {
                key: fields.pop(key, None) is True for key in ("sent", "told", "settled")
            }
            status = Verdict(fields.pop("status"))
            listeners = tuple(map(str, fields.pop("listeners", ())))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not is_moment(moments["asked"]) or not all(isinstance(t, str) for t in texts.values()):
            return None
        moments = {key: value if is_moment(value) else None for key, value in moments.items()}
        extra = MappingProxyType(fields)
        return cls(**texts, **moments, **flags, status=status, listeners=listeners, extra=extra)


def id_of(key: str, secret: str) -> str:
    """Return the id of the approval that a tool call asks for, the same when it is repeated.

    Args:
        key: the call's; others may know it, since it stands in the ids of mail.
        secret: its conversation's, so that nobody else can tell the id beforehand.
    """
    return hmac.digest(secret.encode(), key.encode(), "sha256").hex()[: 2 * _ID_BYTES]


class NoSuchApproval(TeamError):
    """No approval has that id, or it is for another member to answer."""


class AlreadyAnswered(TeamError):
    """The approval is no longer open; `approval` is as it stands."""

    def __init__(self, approval: Approval) -> None:
        self.approval = approval
        if approval.status is Verdict.EXPIRED:
            why = "is no longer open: nobody waits for its answer"
        else:
            why = f"was {approval.status} already"
        super().__init__(f"request {approval.id} {why}")
