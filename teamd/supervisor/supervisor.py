"""The supervisor's loop. It sleeps until a signal, mail or a deadline, and sees to all of them."""

from __future__ import annotations

import select
import signal
import time
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import NotAMessage, StoreError, TeamError
from teamd.protocol import REQUEST_TYPE, STATE_TYPE
from teamd.states import Status
from teamd.store import requests
from teamd.store.requests import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.journal import Journal
    from teamd.protocol import Message
    from teamd.store.mailbox import Mailbox
    from teamd.store.paths import TeamPaths
    from teamd.store.watch import Watch
    from teamd.supervisor.commands import Commands
    from teamd.supervisor.orphans import Orphans
    from teamd.supervisor.register import Register
    from teamd.supervisor.signals import Signals
    from teamd.supervisor.teammates import Teammates

_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
_RETRY_SECONDS: Final = 1.0
_USUAL_COUNTS: Final = ("turns", "input_tokens", "output_tokens")


class Supervisor:
    """Serves one team until a signal ends it.

    Args:
        claim_stands: whether what makes this the team's supervisor is still there.
        stop_seconds: how long teammates have to end by themselves.
        alive: called each round, at least every `round_seconds`: the watchdog's sign of life.
    """

    def __init__(
        self,
        *,
        paths: TeamPaths,
        mailbox: Mailbox,
        register: Register,
        teammates: Teammates,
        commands: Commands,
        orphans: Orphans,
        signals: Signals,
        watch: Watch,
        journal: Journal,
        claim_stands: Callable[[], bool],
        stop_seconds: float,
        alive: Callable[[], None],
        round_seconds: float,
    ) -> None:
        self._paths = paths
        self._mailbox = mailbox
        self._register = register
        self._teammates = teammates
        self._commands = commands
        self._orphans = orphans
        self._signals = signals
        self._watch = watch
        self._journal = journal
        self._claim_stands = claim_stands
        self._stop_seconds = stop_seconds
        self._alive = alive
        self._round_seconds = min(round_seconds, watch.recheck_seconds)
        self._stopping = False
        self._obey_at = 0.0

    def resume(self) -> None:
        """Begin: answer what a dead supervisor left, and start those who were at work or idle."""
        requests.sweep(self._paths)
        self._refuse_leftovers()
        for member in self._register.team.members:
            if member.status.wants_process:
                self._teammates.start(member.name)
            else:
                self._register.ended(member.name)
        self._register.publish()

    def run(self) -> None:
        """Serve until a signal says to stop and every teammate has ended."""
        while not (self._stopping and not self._teammates.active()):
            self._wait()
            self._heed_signals()
            self._ring()  # takes the hints, so it comes before the look that relies on them
            self._obey()
            self._reap()
            self._stop_if_gone()
            self._teammates.do_due()
            self._publish()
            self._alive()
        self._publish()

    def _wait(self) -> None:
        seconds = self._round_seconds
        if (due := self._teammates.next_due_seconds()) is not None:
            seconds = min(seconds, due)
        if (blocked := self._obey_at - time.monotonic()) > 0:
            seconds = min(seconds, blocked)
        select.select([self._signals.fileno(), self._watch.fileno()], [], [], seconds)

    def _heed_signals(self) -> None:
        for number in self._signals.take():
            if number in _ENDINGS:
                self._stop(number)
            elif number is signal.SIGHUP:
                self._carry_out(Request(command="reload", deadline=time.time() + 60.0))

    def _stop(self, number: signal.Signals) -> None:
        """The first such signal asks the teammates to end, a second one ends them at once."""
        seconds = 0.0 if self._stopping else self._stop_seconds
        self._journal.note("stopping", signal=number.name, seconds=seconds)
        self._stopping = True
        for name in self._teammates.active():
            self._teammates.stop(name, seconds=seconds)

    def _stop_if_gone(self) -> None:
        """Nobody can reach a supervisor whose team directory was removed: it ends by itself."""
        try:
            gone = not self._stopping and not self._claim_stands()
        except StoreError:  # a look that failed tells nothing, and there is another next round
            return
        if gone:
            self._journal.warn("the team directory is gone")
            self._stop(signal.SIGTERM)

    def _obey(self) -> None:
        """Read the control inbox: requests, and what teammates say of themselves."""
        if time.monotonic() < self._obey_at:
            return
        try:
            if not self._mailbox.waiting():
                return
            batch = self._mailbox.take()
            self._mailbox.done(batch)  # first, so that no request runs twice, whatever comes
        except StoreError as error:  # a full disk, say: all stays where it is until there is space
            self._journal.error("control inbox not read", error)
            self._obey_at = time.monotonic() + _RETRY_SECONDS  # the try itself is a hint: no spin
            return
        for message in batch.messages:
            if message.type == STATE_TYPE:
                self._note_state(message)
            elif message.type == REQUEST_TYPE:
                self._serve(message)
            else:
                self._journal.warn("no request", type=message.type, sender=message.sender)

    def _serve(self, message: Message) -> None:
        try:
            request = Request.of(message)
        except NotAMessage as error:
            self._journal.warn("no request", sender=message.sender, reason=str(error))
            return
        if request.late:
            self._journal.warn("request came too late", command=request.command, id=request.id)
            return
        self._journal.note("request", command=request.command, id=request.id, sender=request.sender)
        if self._stopping:
            self._reply(request, Answer.to_error(TeamError("teamd is stopping; start it again")))
            return
        self._carry_out(request)

    def _carry_out(self, request: Request) -> None:
        try:
            self._commands.carry_out(request, lambda given: self._reply(request, given))
        except TeamError as error:
            self._reply(request, Answer.to_error(error))

    def _reply(self, request: Request, given: Answer) -> None:
        self._journal.note("answered", id=request.id, text=given.text, exit_code=given.exit_code)
        self._publish()  # whoever reads the answer finds the roster as it says
        try:
            requests.answer(self._paths, request.id, given)
        except StoreError as error:
            self._journal.error("answer not written", error, id=request.id)

    def _note_state(self, message: Message) -> None:
        """Believe a report if it comes from the process that the teammate has now."""
        said = message.extra
        process = self._teammates.process(message.sender)
        if process is None or (process.pid, process.started) != (
            said.get("pid"),
            said.get("started"),
        ):
            self._journal.note("report of an earlier process", name=message.sender)
            return
        try:
            values: dict[str, Any] = {key: int(said[key]) for key in _USUAL_COUNTS}
            values["status"] = Status(str(said["status"]))
        except (KeyError, ValueError, TypeError):
            self._journal.warn("unreadable report", name=message.sender)
            return
        self._register.change(message.sender, **values, reason=said.get("reason"))

    def _ring(self) -> None:
        """Wake those who have mail; where hints were lost, wake everybody."""
        changed = self._watch.changed()
        if changed is None:
            self._teammates.ring(self._teammates.names())
            return
        names = [name.removesuffix(".jsonl") for name in changed if name.endswith(".jsonl")]
        try:
            self._teammates.ring(name for name in names if self._paths.has_mail(name))
        except StoreError:  # a look that failed: who is woken looks again itself
            self._teammates.ring(self._teammates.names())

    def _reap(self) -> None:
        """Take note of ended processes, and end what they left behind."""
        if self._teammates.reap():
            self._orphans.end(spare=self._teammates.pids())

    def _publish(self) -> None:
        try:
            self._register.publish()
        except StoreError as error:
            self._journal.error("roster not written", error)

    def _refuse_leftovers(self) -> None:
        """What a dead supervisor had taken may have been done: say so, and do not do it again."""
        for message in self._mailbox.leftover():
            if message.type == REQUEST_TYPE:
                self._journal.warn(
                    "request of a dead teamd", id=message.id, command=message.content
                )
                text = "teamd was restarted meanwhile; `teamctl team` shows whether it was done"
                requests.answer(self._paths, message.id, Answer.to_error(TeamError(text)))
