"""The supervisor's inbox: requests, each answered once, and reports of teammates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from teamd import control
from teamd.clocks import Deadline
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode, NotAMessage, StoreError, TeamError
from teamd.mail.mailbox import Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import REQUEST_TYPE, SHUTDOWN_ANSWER_TYPE, STATE_TYPE, Message, is_moment
from teamd.supervisor import handlers
from teamd.supervisor.orphans import OrphanedTasks
from teamd.supervisor.team_context import TeamContext
from teamd.team.states import Status

_RETRY_SECONDS: Final = 1.0
_AT_ONCE_SECONDS: Final = 0.001
_BATCH: Final = BatchLimit(messages=1000, bytes=1 << 24)  # so that a flood delays no teammate
_REMEMBERED: Final = 1000  # replies, for senders that repeat a request under the same id
_COUNTS: Final = ("turns", "input_tokens", "output_tokens")


@dataclass(slots=True)
class ControlInbox:
    """Reads the inbox and carries out its requests.

    Attributes:
        closing: whether new requests are refused.
    """

    context: TeamContext
    tasks: OrphanedTasks
    mailbox: Mailbox
    closing: bool = False
    _blocked: Deadline = field(default_factory=lambda: Deadline.after(0.0))
    _given: dict[str, ControlReply] = field(default_factory=dict)
    _owed: dict[str, ControlReply] = field(default_factory=dict)
    _publish_again: Deadline = field(default_factory=lambda: Deadline.after(0.0))
    _failures: dict[str, str] = field(default_factory=dict)  # that last, as logged
    _more: bool = False

    @property
    def retry_seconds(self) -> float | None:
        """The seconds until the next retry or batch; `None` if nothing waits."""
        if self._more and self._blocked.left <= 0:
            return _AT_ONCE_SECONDS
        waits = [self._blocked.left] if self._blocked.left > 0 else []
        if self._owed or self.context.roster.behind:
            waits.append(max(0.0, self._publish_again.left))
        return min(waits, default=None)

    def refuse_leftovers(self) -> None:
        """Refuse requests that a dead supervisor had begun: they may have been carried out."""
        journal = self.context.journal
        control.sweep(self.context.settings.paths)
        text = "teamd was restarted meanwhile; `teamctl team` shows whether it was done"
        for message in self.mailbox.leftover():
            if message.type == REQUEST_TYPE and (request := self._read(message)) is not None:
                journal.warn("request of a dead teamd", id=request.id, command=request.command)
                given = self._owed[request.id] = ControlReply.of_error(TeamError(text))
                self._mail(request, given)

    def obey(self) -> None:
        """Read the new messages and handle them."""
        if self._blocked.left > 0:
            return
        try:
            self._more = self.mailbox.waiting()
            if not self._more:
                return
            batch = self.mailbox.take(_BATCH)
            # First, so that no request runs twice. From here on nothing may fail.
            self.mailbox.done(batch)
        except StoreError as error:  # such as a full disk: all mail stays where it is
            self.context.journal.error("control inbox not read", error)
            self._blocked = Deadline.after(_RETRY_SECONDS)  # the attempt itself wakes the watch
            return
        for message in batch.messages:
            if message.type == STATE_TYPE:
                self._note_state(message)
            elif message.type == REQUEST_TYPE:
                self._serve(message)
            elif message.type == SHUTDOWN_ANSWER_TYPE:
                self.context.shutdowns.note_answer(message.sender)
            else:
                self.context.journal.warn("no request", type=message.type, sender=message.sender)

    def carry_out(self, request: ControlRequest) -> None:
        """Carry out a request and reply."""
        try:
            handlers.carry_out(self.context, request, lambda given: self._reply(request, given))
        except TeamError as error:
            self._reply(request, ControlReply.of_error(error))
        except OSError as error:  # the machine's trouble, such as a lack of descriptors
            why = f"teamd could not do it now: {error.strerror or error}; try again"
            self._reply_to_failure(request, error, why)
        except Exception as error:  # noqa: BLE001 -- an unforeseen request must not end the team
            name = type(error).__name__
            why = f"internal error ({name}); `teamctl logs teamd` has it, report it"
            self._reply_to_failure(request, error, why)

    def publish(self, *, last: bool = False) -> None:
        """Write the changes of the roster, then the replies that are owed; then release tasks.

        The roster comes first, so that it agrees with every reply that can be read. Refusals
        do not wait for it. After a failure it tries again a second later; with `last`, at once.
        """
        roster, failures = self.context.roster, dict[str, StoreError]()
        waits = self._publish_again.left > 0 and not last
        if not waits:
            try:
                roster.publish()
            except StoreError as error:
                failures["roster not written"] = error
        for request_id, given in list(self._owed.items()):
            if given.exit_code is ExitCode.REFUSED or not (waits or failures):
                self._write_reply(request_id, given, failures)
        if failures:
            self._note_failures(failures)
        elif not waits:
            self._failures = {}
        if not roster.behind:
            self.tasks.release(roster.team)

    def _write_reply(
        self, request_id: str, given: ControlReply, failures: dict[str, StoreError]
    ) -> None:
        try:
            control.reply(self.context.settings.paths, request_id, given)
        except StoreError as error:
            failures["answer not written"] = error
        else:
            del self._owed[request_id]

    def _note_failures(self, failures: dict[str, StoreError]) -> None:
        """Log new failures; one that lasts, such as a full disk, is logged once."""
        if (
            self._publish_again.left <= 0
        ):  # a reply that fails meanwhile does not put the roster off
            self._publish_again = Deadline.after(_RETRY_SECONDS)
        for event, error in failures.items():
            if self._failures.get(event) != str(error):
                self.context.journal.error(event, error)
                self._failures[event] = str(error)

    def _read(self, message: Message) -> ControlRequest | None:
        try:
            return ControlRequest.decode(message)
        except NotAMessage as error:
            self.context.journal.warn("no request", sender=message.sender, reason=str(error))
            return None

    def _serve(self, message: Message) -> None:
        journal, request = self.context.journal, self._read(message)
        if request is None:
            return
        if request.late and request.id not in self._given:
            journal.warn("request came too late", command=request.command, id=request.id)
            late = ControlReply(text="teamd saw it too late", exit_code=ExitCode.DEADLINE)
            self._mail(request, late)
            return
        journal.note("request", command=request.command, id=request.id, sender=request.sender)
        if (given := self._given.get(request.id)) is not None:
            self._reply(request, given)  # the sender was killed before it could read the reply
        elif self.closing:
            self._refuse(request, "teamd is stopping; start it again")
        else:
            self.carry_out(request)

    def _reply(self, request: ControlRequest, given: ControlReply) -> None:
        note = self.context.journal.note
        note("answered", id=request.id, text=given.text, exit_code=given.exit_code)
        self._mail(request, given)
        self._given[request.id] = given
        while len(self._given) > _REMEMBERED:
            del self._given[next(iter(self._given))]
        self._owed[request.id] = given
        self.publish()

    def _reply_to_failure(self, request: ControlRequest, error: Exception, why: str) -> None:
        self.context.journal.error("not done", error, id=request.id)
        self._refuse(request, why)

    def _refuse(self, request: ControlRequest, why: str) -> None:
        self._reply(request, ControlReply(text=why, exit_code=ExitCode.REFUSED))

    def _mail(self, request: ControlRequest, given: ControlReply) -> None:
        """Mail a refusal to an agent, which does not wait for replies."""
        if request.by_mail and given.exit_code is not ExitCode.DONE and not given.data:
            text = f"your request {request.command!r} was not carried out: {given.text}; ask again"
            self.context.roster.tell_lead(text, to=request.sender, key=request.id)

    def _note_state(self, message: Message) -> None:
        """Record a report if it comes from the teammate's current process."""
        reported = message.extra
        reporter = reported.get("pid"), reported.get("started")
        if not self.context.children.believes(message.sender, *reporter):
            self.context.journal.note("report of an earlier process", name=message.sender)
            return
        try:
            values: dict[str, Any] = {key: int(reported[key]) for key in _COUNTS}
            values["status"] = Status(str(reported["status"]))
            for key in ("reason", "remedy"):
                said = reported.get(key)
                values[key] = None if said is None else str(said)
        except (KeyError, ValueError, TypeError):
            self.context.journal.warn("unreadable report", name=message.sender)
            return
        until = reported.get("until")
        values["until"] = until if is_moment(until) else None
        self.context.roster.change(message.sender, **values)
