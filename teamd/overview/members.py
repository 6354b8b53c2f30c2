"""A member of a team and what can be seen of it right now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from teamd.budget.account import Account
from teamd.clocks import time_of_day
from teamd.errors import StoreError, TeamError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail import lines
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, PERMISSION_TYPE, USER
from teamd.team.activity import MODEL, Activity, Doing, Retry, read_activity
from teamd.team.member import Member
from teamd.team.roster import Team
from teamd.team.states import Status

if TYPE_CHECKING:
    from teamd.overview.requests import OpenRequest

WAITING: Final = "waiting"
_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member and what can be seen of it.

    Attributes:
        alive: whether its process runs.
        activity: what that has said last; `None` where it has said nothing.
        context: the share of the context that its conversation takes, as was said last.
        request: of its own, that waits for an answer.
        account: what it has used; `None` where that is not known.
        queued: the messages in its inbox; `None` where they cannot be counted.
        rejected: the lines that were none.
        trouble: why its mail cannot be counted.
        copy: its working copy as `--json` shows it; `None` where it has none.
        cpu_seconds: computing time of its process.
        memory_bytes: memory of its process, with its share of what it shares.
    """

    member: Member
    alive: bool
    activity: Activity | None
    context: float | None
    request: OpenRequest | None
    account: Account | None
    queued: int | None
    rejected: int
    trouble: str | None
    copy: dict[str, Any] | None
    cpu_seconds: float | None
    memory_bytes: int | None

    @property
    def name(self) -> str:
        """The member's name."""
        return self.member.name

    @property
    def doing(self) -> Doing | None:
        """What is under way; whoever is dead or paused does nothing."""
        if self.activity is None or self.member.status is Status.PAUSED:
            return None
        return self.activity.doing

    @property
    def retry(self) -> Retry | None:
        """The attempt that comes next, where a model call has failed."""
        return None if self.activity is None or self.doing is None else self.activity.retry

    @property
    def state(self) -> str:
        """How it is, in the roster's words, but `waiting` where it rests until it is answered."""
        status = self.member.status
        if self.doing is not None:
            return str(Status.WORKING)
        if self.request is not None and status is self._status_of_waiting(self.request):
            return WAITING
        return str(status)

    @property
    def since(self) -> float | None:
        """When what it does began, or else its state, in seconds since the epoch."""
        if self.doing is not None and self.activity is not None:
            return self.activity.since
        if self.request is not None and self.state == WAITING:
            return self.request.approval.asked
        return self.member.status_since

    @property
    def describes(self) -> str:
        """What it does or waits for, in a line; empty where that is nothing."""
        if self.retry is not None:
            return describe_retry(self.retry)
        if self.doing is not None:
            return MODEL if self.doing.kind == MODEL else self.doing.what
        if self.request is not None and self.state == WAITING:
            return " ".join(self.request.approval.what.split())
        if self.member.until is not None:
            return f"until {time_of_day(self.member.until)}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """The member as `--json` shows it."""
        began = self.member.since
        doing, retry = self.doing, self.retry
        return {
            **self.member.encode(),
            "pid": self.member.pid if self.alive else None,
            "state": self.state,
            "doing": None if doing is None else asdict(doing),
            "since": self.since,
            "context": self.context,
            "retry": None if retry is None else {**asdict(retry), "text": describe_retry(retry)},
            "waiting_request": None if self.request is None else self.request.approval.id,
            "uptime_seconds": time.time() - began if began is not None and self.alive else None,
            "cpu_seconds": self.cpu_seconds,
            "memory_bytes": self.memory_bytes,
            "queued": self.queued,
            "rejected": self.rejected,
            "trouble": self.trouble,
            "worktree": self.copy,
            "usd": None if self.account is None else self.account.known_usd,
        }

    @staticmethod
    def _status_of_waiting(request: OpenRequest) -> Status:
        """Return the status of one that waits: in the middle of a turn, or after one."""
        permission = request.approval.type == PERMISSION_TYPE
        return Status.PAUSED if permission else Status.IDLE


def look_at(
    paths: TeamPaths, member: Member, account: Account | None, request: OpenRequest | None
) -> MemberView:
    """Look at a member and its files."""
    process = member.process
    alive = process is not None and process.alive
    said = read_activity(paths.activity(member.name))
    activity = said if said is not None and _speaks(said, member, alive=alive) else None
    queued, rejected, trouble = _count_mail(paths, member.name)
    cpu_seconds, memory = process.usage() if process and alive else (None, None)
    if memory is not None and process is not None:
        own = activity.memory_bytes if activity is not None else None
        memory = own or process.memory() or memory
    return MemberView(
        member=member,
        alive=alive,
        activity=activity,
        context=None if said is None else said.context,
        request=request,
        account=account,
        queued=queued,
        rejected=rejected,
        trouble=trouble,
        copy=_look_at_copy(paths, member) if member.worktree else None,
        cpu_seconds=cpu_seconds,
        memory_bytes=memory,
    )


def describe_retry(retry: Retry) -> str:
    """Say which attempt comes next, why, and when."""
    said = f"retrying {retry.attempt}/{retry.attempts}: {retry.cause}"
    left = 0.0 if retry.next is None else retry.next - time.time()
    return f"{said}, next in {left:.0f} s" if left >= 1 else said


def _speaks(said: Activity, member: Member, *, alive: bool) -> bool:
    """Return whether the process that has said it still is the member's."""
    if not member.status.wants_process:
        return False
    # A new process may speak before the roster names it.
    return alive if said.process == member.process else said.process.alive


def _count_mail(paths: TeamPaths, name: str) -> tuple[int | None, int, str | None]:
    """Return how much is queued and how much was rejected, or why that cannot be told."""
    try:
        rejected = lines.count(paths.rejected(name))
        return count_queued(paths, name), rejected, None
    except StoreError as error:  # one file of one member hides nobody
        return None, 0, str(error)


def count_queued(paths: TeamPaths, name: str) -> int:
    """Count the messages in an inbox.

    Raises:
        StoreError: it cannot be read.
    """
    if not files.size(paths.taken(name)):
        return lines.count(paths.inbox(name))
    return Mailbox(paths, name).queued()


def count_rejected(paths: TeamPaths, team: Team) -> Iterator[tuple[str, int]]:
    """Yield whose mail held lines that were not messages, and how many; the person's too."""
    names = dict.fromkeys((LEAD, USER, *(member.name for member in team.members)))
    for name in names:
        with suppress(StoreError):  # one file of one member hides nobody
            if count := lines.count(paths.rejected(name)):
                yield name, count


def _look_at_copy(paths: TeamPaths, member: Member) -> dict[str, Any]:
    from teamd.copies import copy_status, record  # noqa: PLC0415 -- only where there is one

    try:
        return copy_status.to_json(paths, record.get(paths, member.name))
    except TeamError as error:
        gone = {"path": str(paths.copy(member.name)), "branch": None}
        return {**gone, "ahead": None, "uncommitted": None, "trouble": str(error)}
