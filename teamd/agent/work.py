"""A teammate's work as others see it: its activity, its reports, its tasks and its open work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from teamd import clocks
from teamd.agent.conversation.conversation import Conversation
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.clocks import Deadline
from teamd.errors import StoreError
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.masking import Mask
from teamd.messages import HELD_TYPE, SHUTDOWN_ANSWER_TYPE, STATE_TYPE, TEAMD, Message
from teamd.models import Block
from teamd.process_id import Identity, own_memory
from teamd.team.activity import MODEL, TOOL, Activity, Doing, Retry, shorten, write_activity
from teamd.team.roster import Roster
from teamd.team.states import Status

# Arguments that tell the subject of a call; the first that is given counts.
_TELLING: Final = ("command", "path", "to", "subject", "task_id", "job_id", "name", "teammate")
_PURPOSE_LENGTH: Final = 50  # a model could hide the command behind a longer one
_MEMORY_SECONDS: Final = 60.0  # the kernel walks over all pages to tell: some milliseconds


@dataclass(slots=True)
class Presence:
    """Publishes one teammate's activity.

    Attributes:
        path: the file.
        process: this one.
        context: the used share of the context, as the previous process showed it.
    """

    path: Path
    process: Identity
    mask: Mask
    context: float | None = None
    _shown: Activity = field(init=False)
    _measure: clocks.Deadline = field(default_factory=lambda: clocks.Deadline.after(0.0))

    def __post_init__(self) -> None:
        self._shown = Activity(process=self.process, since=time.time(), context=self.context)

    def go_on(self, model: str | None, context: float) -> None:
        """Show that a model is asked; without a model, show no activity."""
        doing = None if model is None else Doing(kind=MODEL, what=shorten(model))
        self._show(doing, context)

    def begin_tool(self, call: Block) -> None:
        """Show that a tool call runs."""
        what = shorten(self.mask.text(_describe_call(call["name"], call["input"])))
        self._show(Doing(kind=TOOL, what=what), self._shown.context)

    def rest(self) -> None:
        """Show no activity, and leave the shown share of the context unchanged."""
        self._show(None, self._shown.context)

    def begin_retry(self, cause: str, seconds: float | None, attempt: int, attempts: int) -> None:
        """Show that a model call has failed and is tried again, after `seconds` if known."""
        if self._shown.doing is not None:
            cause = shorten(self.mask.text(cause))
            begins = None if seconds is None else time.time() + seconds
            before = self._shown.retry
            since = time.time() if before is None else before.since
            retry = Retry(attempt, attempts, cause, next=begins, since=since)
            self._write(replace(self._shown, retry=retry))

    def end_retry(self) -> None:
        """Show that the call is not retried any longer."""
        if self._shown.retry is not None:
            self._write(replace(self._shown, retry=None))

    def _show(self, doing: Doing | None, context: float | None) -> None:
        shown = self._shown
        self._write(replace(shown, doing=doing, since=time.time(), context=context, retry=None))

    def _write(self, activity: Activity) -> None:
        if self._measure.left <= 0:
            self._measure = clocks.Deadline.after(_MEMORY_SECONDS)
            activity = replace(activity, memory_bytes=own_memory())
        self._shown = activity
        write_activity(self.path, activity)


def _describe_call(tool: str, arguments: Any) -> str:
    """Return a tool's name and the subject of its call, if an argument names it."""
    with suppress(AttributeError, StopIteration):  # a model may give anything
        told = next(arguments[key] for key in _TELLING if isinstance(arguments.get(key), str))
        if tool == "bash" and isinstance(purpose := arguments.get("description"), str):
            told = f"{purpose[:_PURPOSE_LENGTH]}: {told}"
        return f"{tool} {told}"
    return tool


_COUNTS: Final = ("turns", "input_tokens", "output_tokens")
_COUNTS_SECONDS: Final = 1.0  # longest age of the shown figures while the teammate works


@dataclass(slots=True)
class Reporter:
    """Reports one teammate's state to the supervisor and the lead.

    Attributes:
        name: the teammate's.
        process: named in each report, to tell it from reports of earlier processes.
        supervisor: the supervisor's inbox.
    """

    name: str
    process: Identity
    conversation: Conversation
    supervisor: Mailbox
    post: MailRouter
    _last: dict[str, object] = field(default_factory=dict)
    _again: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    def report(
        self,
        status: Status,
        reason: str | None = None,
        *,
        until: float | None = None,
        remedy: str = "",
    ) -> None:
        """Tell the supervisor the teammate's state, unless it knows it already.

        While the teammate works, mere changes of figures are sent once a second at most: a report
        costs the supervisor a pass of its loop.

        Args:
            status: the status for the roster.
            reason: why, as a sentence.
            until: when that ends without help, in seconds since the epoch.
            remedy: the command that ends it, as the reason names it; empty for none.
        """
        reason = None if reason is None else self.post.paths.add_team_option(reason)
        counts = {key: getattr(self.conversation, key) for key in _COUNTS}
        facts: dict[str, object] = {"status": str(status), "reason": reason, "until": until}
        facts["remedy"] = remedy or None
        facts |= counts
        goes_on = status is Status.WORKING and {**self._last, **counts} == facts
        if facts == self._last or (goes_on and self._again.left > 0):
            return
        self._send(STATE_TYPE, str(status), {**facts, **asdict(self.process)})
        self._last, self._again = facts, Deadline.after(_COUNTS_SECONDS)

    def report_answer(self, request_id: str) -> None:
        """Have the supervisor look at an answer; it believes the store, not this."""
        self._send(SHUTDOWN_ANSWER_TYPE, "answered", {"request_id": request_id})

    def notify(self, text: str, *, key: str, to: str = "") -> None:
        """Send a line to a sender whose mail waits, or to the teammate's superior.

        The superior is the lead; for the lead agent it is the person.

        Args:
            text: the line.
            key: its id: sent twice, it is read once.
            to: the sender; empty for the superior.

        Raises:
            StoreError: it cannot be sent now.
            TeamError: the receiver is not in the team any longer.
        """
        # A server's own words may hold anything.
        words = self.post.paths.add_team_option(text).replace("\0", "\ufffd")
        kind = HELD_TYPE if to else "message"
        to = to or self.post.above(self.name)
        self.post.notify(Message(id=key, type=kind, sender=self.name, to=to, content=words))

    def _send(self, kind: str, content: str, facts: dict[str, object]) -> None:
        message = Message(type=kind, sender=self.name, to=TEAMD, content=content, extra=facts)
        self.supervisor.put(message)


def claim_next(board: Board, role: Callable[[], str], journal: Journal) -> bool:
    """Claim the next free task for an idle teammate; return whether mail about a task now waits.

    A claim and its mail are one write of the task's file, see `Board`. So if a process is killed
    after that write, its successor finds the mail.
    """
    try:
        told = board.flush()
        task = board.take_next(role())
    except StoreError as error:  # the next look finds it again; nothing else is in its way
        journal.error("no look at the board", error)
        return False
    if task is None:
        return told
    journal.note("task claimed", task=task.id)
    return not task.untold


def list_open_work(
    name: str, board: Board, approvals: Approvals, roster: Roster
) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the open work that a summary repeats: titles, and the lines below each."""
    # The list shows idle teammates, so that the model does not spawn them again.
    others = (member for member in roster.read().members if member.name != name)
    team = [f"{member.name} ({member.role}): {member.status}" for member in others]
    mine = (task for task in board.read().by_id.values() if task.status.open and task.is_of(name))
    tasks = [f"{task.id} [{task.status}] {task.subject}" for task in mine]
    return (
        ("Your teammates:", team),
        ("Your open tasks on the board:", tasks),
        ("Open requests:", list(_requests(name, approvals))),
    )


def _requests(name: str, approvals: Approvals) -> Iterator[str]:
    """Yield the requests that wait for its answer, and its own that wait for one."""
    for question in approvals.all():
        if question.is_open and question.to == name:
            yield f"{question.type} {question.id} of {question.asker} waits for you"
        elif question.is_open and name in (question.asker, *question.listeners):
            yield f"your {question.type} {question.id} waits for {question.to}"
