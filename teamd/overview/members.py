"""The open requests of a team, and the current state of each of its members."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from teamd.approvals.approval import CALLS, Approval, Kind
from teamd.approvals.store import Approvals
from teamd.budget.account import Account
from teamd.clocks import time_of_day
from teamd.errors import StoreError, TeamError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail import lines
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, USER, Message
from teamd.team.activity import MODEL, Activity, Doing, Retry, read_activity
from teamd.team.member import Member
from teamd.team.roster import Team
from teamd.team.states import Status

_MOST_READ_BYTES: Final = 1 << 18
_ASKS: Final = {
    Kind.PERMISSION: "asks to run",
    Kind.PUSH: "asks to push",
    Kind.PLAN: "asks to approve a plan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """An unanswered request.

    Attributes:
        yours: whether the person, not an agent, is to answer it.
        approve: the command that approves it.
        reject: the command that rejects it.
    """

    approval: Approval
    yours: bool
    approve: str
    reject: str

    @property
    def sentence(self) -> str:
        """The request as one line: the whole command, or the beginning of the plan."""
        asks = _ASKS.get(self.approval.type, f"asks ({self.approval.type})")  # type: ignore[call-overload] # a type is a text
        return f"{self.approval.asker} {asks}: {self.approval.line}"

    def to_json(self) -> dict[str, Any]:
        """The request as `--json` shows it."""
        said = {"what": self.approval.what, "yours": self.yours}
        commands = {"approve_command": self.approve, "reject_command": self.reject}
        return {**self.approval.to_json(), **said, **commands}


def read_requests(paths: TeamPaths, team: Team) -> list[OpenRequest]:
    """Return the open requests, the oldest first."""
    return describe_requests(paths, team, read_approvals(paths))


def read_approvals(paths: TeamPaths) -> list[Approval]:
    """Return the unanswered approvals, the oldest first."""
    return approvals_to_look_at(paths).open_ones()


def approvals_to_look_at(paths: TeamPaths) -> Approvals:
    """Return the store of approvals, for a reader that sends nothing."""
    return Approvals(paths, MailRouter(paths, durable=False, max_bytes=0))


def describe_requests(
    paths: TeamPaths, team: Team, approvals: Iterable[Approval]
) -> list[OpenRequest]:
    """Return the approvals that are not overdue, with the commands that answer them."""
    return [_open(paths, team, one) for one in approvals if not one.overdue]


def _open(paths: TeamPaths, team: Team, approval: Approval) -> OpenRequest:
    persons = approval.type in CALLS or approval.to.lower() in (USER, team.person)
    return OpenRequest(
        approval=approval,
        yours=persons and approval.may_be_answered_by(USER),
        approve=paths.team_command(f"teamctl approve {approval.id}"),
        reject=paths.team_command(f"teamctl reject {approval.id}"),
    )


# States of a view beside those of the roster.
WAITING: Final = "waiting"
PAUSING: Final = "pausing"  # it pauses once its step has ended
STOPPED: Final = "stopped"  # no teamd runs it; the next start goes on with it


@dataclass(frozen=True, slots=True)
class MemberView:
    """The current state of a member.

    Attributes:
        alive: whether its process runs.
        activity: the last report of the process; `None` if there is none.
        context: the share of the context that the conversation takes, as last reported.
        request: its own request that waits for an answer.
        account: its usage of tokens and money; `None` if unknown.
        queued: the number of messages in its inbox; `None` if they cannot be counted.
        rejected: the number of inbox lines that were not messages.
        trouble: why its mail cannot be counted.
        copy: its working copy as `--json` shows it; `None` without one.
        served: whether a teamd runs, which would start its process if needed.
        cpu_seconds: CPU time of its process.
        memory_bytes: memory of its process, including its part of shared pages.
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
    served: bool
    cpu_seconds: float | None
    memory_bytes: int | None

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def doing(self) -> Doing | None:
        """The current step; `None` for a dead or paused member."""
        if self.activity is None or self.member.status is Status.PAUSED:
            return None
        return self.activity.doing

    @property
    def retry(self) -> Retry | None:
        """The next attempt after a failed model call."""
        return None if self.activity is None or self.doing is None else self.activity.retry

    @property
    def state(self) -> str:
        """Its status in the roster, or `waiting`, `pausing` or `stopped`."""
        status = self.member.status
        if self.doing is not None or status is Status.WORKING:
            if not (self.alive or self.served):
                return STOPPED
            return PAUSING if self.member.paused_by else str(Status.WORKING)
        if self.request is not None and status is self._status_of_waiting(self.request):
            return WAITING
        return str(status)

    @property
    def has_work(self) -> bool:
        """Whether it works, or reads the mail in its inbox next."""
        if self.state == Status.IDLE:
            return bool(self.queued) and self.member.reason is None
        return self.state in (Status.WORKING, PAUSING, STOPPED)

    @property
    def state_in_words(self) -> str:
        """Its state for a table."""
        return "stopped (was working)" if self.state == STOPPED else self.state

    @property
    def since(self) -> float | None:
        """When its current step or state began, in seconds since the epoch."""
        if self.doing is not None and self.activity is not None:
            return self.activity.since
        if self.request is not None and self.state == WAITING:
            return self.request.approval.asked
        return self.member.status_since

    @property
    def describes(self) -> str:
        """The step or the request as one line; empty for neither."""
        if self.retry is not None:
            return describe_retry(self.retry)
        if self.doing is not None:
            return MODEL if self.doing.kind == MODEL else self.doing.what
        if self.request is not None and self.state == WAITING:
            return self.request.approval.line
        if self.member.until is not None:
            return f"until {time_of_day(self.member.until)}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """The member as `--json` shows it."""
        began, process = self.member.since, self.member.process if self.alive else None
        doing, retry = self.doing, self.retry
        return {
            **self.member.encode(),
            "pid": None if process is None else process.pid,
            "started": None if process is None else process.began,
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
        """Return the status of a member that waits for this request, within a turn or after it."""
        return Status.PAUSED if request.approval.type in CALLS else Status.IDLE


def look_at(
    paths: TeamPaths,
    member: Member,
    account: Account | None,
    request: OpenRequest | None,
    *,
    served: bool,
    with_copy: bool = True,
) -> MemberView:
    """Read the state of a member from its files."""
    process = member.process
    alive = process is not None and process.alive
    said = read_activity(paths.activity(member.name))
    activity = said if said is not None and _speaks(said, member, alive=alive) else None
    queued, rejected, trouble = _count_mail(paths, member)
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
        copy=look_at_copy(paths, member) if member.worktree and with_copy else None,
        served=served,
        cpu_seconds=cpu_seconds,
        memory_bytes=memory,
    )


OUTAGE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class FailingCalls:
    """Model calls that fail for one cause, and are tried again.

    Attributes:
        since: when the first of them failed, in seconds since the epoch.
    """

    cause: str
    names: tuple[str, ...]
    since: float

    @property
    def is_outage(self) -> bool:
        """Whether they have failed for so long that a person should know."""
        return time.time() - self.since >= OUTAGE_SECONDS


def find_failing(members: Iterable[MemberView]) -> list[FailingCalls]:
    """Return the failing model calls of members, by their causes."""
    by_cause = dict[str, list[tuple[str, float]]]()
    for view in members:
        if (retry := view.retry) is not None:
            by_cause.setdefault(retry.cause, []).append((view.name, retry.since))
    return [
        FailingCalls(cause, tuple(name for name, _ in calls), min(since for _, since in calls))
        for cause, calls in by_cause.items()
    ]


def describe_retry(retry: Retry) -> str:
    """Describe the next attempt with its cause and time."""
    said = f"retrying {retry.attempt}/{retry.attempts}: {retry.cause}"
    left = 0.0 if retry.next is None else retry.next - time.time()
    return f"{said}, next in {left:.0f} s" if left >= 1 else said


def _speaks(said: Activity, member: Member, *, alive: bool) -> bool:
    """Return whether the reporting process is still the member's process."""
    if not member.status.wants_process:
        return False
    # A new process may speak before the roster names it.
    return alive if said.process == member.process else said.process.alive


def _count_mail(paths: TeamPaths, member: Member) -> tuple[int | None, int, str | None]:
    """Return the queued and the rejected count, or the error that prevents counting.

    While the agent that led is shut down, the mail in its inbox is the person's.
    """
    try:
        rejected = lines.count(paths.rejected(member.name))
        if member.name == LEAD and member.status is Status.SHUTDOWN:
            return 0, rejected, None
        return count_queued(paths, member.name), rejected, None
    except StoreError as error:  # one unreadable file must not hide the other members
        return None, 0, str(error)


def count_queued(paths: TeamPaths, name: str) -> int:
    """Count the messages in an inbox.

    Raises:
        StoreError: the inbox cannot be read.
    """
    if not files.size(paths.taken(name)):
        return lines.count(paths.inbox(name))
    return Mailbox(paths, name).queued()


def count_unread(paths: TeamPaths, team: Team) -> int:
    """Count the person's unread messages, without requests that have ended.

    Only small inboxes are looked through, because live views count several times a second.

    Raises:
        StoreError: an inbox cannot be read.
    """
    return sum(_count_unread(paths, name) for name in team.person_inboxes)


def _count_unread(paths: TeamPaths, name: str) -> int:
    count = count_queued(paths, name)
    if not count or files.size(paths.inbox(name)) > _MOST_READ_BYTES:
        return count
    store = approvals_to_look_at(paths)
    content = files.read(paths.inbox(name)) or b""
    found = lines.sort_all(content, "", to=name, longest=lambda _: _MOST_READ_BYTES)
    mail = [message for _, message in found if isinstance(message, Message)]
    return max(0, count - sum(has_ended(store, message) for message in mail))


def has_ended(store: Approvals, message: Message) -> bool:
    """Return whether a message is a request that is answered or overdue."""
    asked = store.of_message(message)
    return asked is not None and (asked.overdue or not asked.is_open)


def count_rejected(paths: TeamPaths, team: Team) -> Iterator[tuple[str, int]]:
    """Yield each name, the person's included, whose inbox had invalid lines, with their count."""
    names = dict.fromkeys((LEAD, USER, *(member.name for member in team.members)))
    for name in names:
        with suppress(StoreError):  # one unreadable file must not hide the other members
            if count := lines.count(paths.rejected(name)):
                yield name, count


def look_at_copy(paths: TeamPaths, member: Member) -> dict[str, Any]:
    """Return the state of a member's working copy as `--json` shows it."""
    from teamd.copies import copy_status, record  # noqa: PLC0415 -- only for members with a copy

    try:
        return copy_status.to_json(paths, record.get(paths, member.name))
    except TeamError as error:
        gone = {"path": str(paths.copy(member.name)), "branch": None}
        return {**gone, "ahead": None, "uncommitted": None, "trouble": str(error)}
