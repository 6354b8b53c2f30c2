"""The supervisor's loop. It sleeps until a signal, mail or a deadline, and sees to all of them."""

from __future__ import annotations

import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.control import ControlRequest
from teamd.errors import StoreError, TeamError
from teamd.files import pidfile
from teamd.supervisor.spawn import SpawnRequest, spawn_declared

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.files.watch import Watch
    from teamd.supervisor.context import Context
    from teamd.supervisor.inbox import ControlInbox
    from teamd.supervisor.orphans import OrphanedProcesses, OrphanedTasks
    from teamd.supervisor.signals import Signals

_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
_RELOAD_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The longest time of a round, and the report to the service manager after each."""

    seconds: float
    report: Callable[[], None]


class Supervisor:
    """Serves one team until a signal ends it.

    Args:
        claim: the descriptor of the lock that makes this process the team's supervisor.
        watch: of the inboxes.
    """

    def __init__(
        self,
        context: Context,
        *,
        claim: int,
        inbox: ControlInbox,
        tasks: OrphanedTasks,
        orphans: OrphanedProcesses,
        signals: Signals,
        watch: Watch,
        rounds: Rounds,
    ) -> None:
        self._context = context
        self._claim = claim
        self._inbox = inbox
        self._tasks = tasks
        self._orphans = orphans
        self._signals = signals
        self._watch = watch
        self._rounds = rounds
        self._roster = context.roster
        self._children = context.children
        self._shutdowns = context.shutdowns
        self._journal = context.journal
        self._stop_seconds = context.settings.now.supervision.stop_seconds
        self._stopping = False

    def resume(self) -> None:
        """Begin: answer what a dead supervisor left, start its teammates, spawn declared ones.

        Those are the teammates of `team.toml` that the roster does not know yet.
        """
        self._inbox.refuse_leftovers()
        self._shutdowns.resume()
        for member in self._roster.team.members:
            if member.status.wants_process:
                self._children.start(member.name)
            else:
                self._roster.ended(member.name)
        self._roster.publish()
        self._tasks.release(self._roster.team)
        self._spawn_declared()

    def begin(self) -> None:
        """Load what the children need; those to be started are forked in the next round."""
        self._children.begin()

    def run(self) -> None:
        """Serve until a signal says to stop and every teammate has ended, or the team is gone."""
        while not (self._stopping and not self._children.active()):
            self._wait()
            if self._gone():  # before anything is written
                self._abandon()
                return
            self._heed_signals()
            self._ring()  # takes the hints, so it comes before the look that relies on them
            self._inbox.obey()
            self._reap()
            self._reconcile()
            self._children.check_heartbeats()
            if not self._stopping:  # those who end now end for that, and are resumed
                self._shutdowns.look()
            self._children.do_due()
            self._inbox.publish()
            self._rounds.report()
        self._inbox.publish()

    def _spawn_declared(self) -> None:
        for declared in self._context.settings.now.teammates:
            try:
                spawn_declared(self._context, SpawnRequest.declared(declared))
            except TeamError as error:
                self._journal.error("not spawned", error, name=declared.name)
        with suppress(StoreError):  # the next round writes it
            self._roster.publish()

    def _wait(self) -> None:
        seconds = self._rounds.seconds
        for due in (
            self._watch.recheck_seconds,
            self._tasks.recheck_seconds,
            self._children.next_due_seconds(),
            None if self._stopping else self._shutdowns.next_due_seconds(),
            self._inbox.retry_seconds,
        ):
            seconds = seconds if due is None else min(seconds, due)
        watched = [self._signals.fileno(), self._watch.fileno(), self._tasks.fileno()]
        select.select(watched, [], [], seconds)

    def _heed_signals(self) -> None:
        for number in self._signals.take():
            if number in _ENDINGS:
                self._stop(number)
            elif number is signal.SIGHUP:
                self._inbox.carry_out(ControlRequest.within(_RELOAD_SECONDS, "reload"))

    def _stop(self, number: signal.Signals) -> None:
        """Ask the teammates to end at the first such signal, and end them at once at a second."""
        seconds = 0.0 if self._stopping else self._stop_seconds
        self._journal.note("stopping", signal=number.name, seconds=seconds)
        self._stopping = self._inbox.closing = True
        for name in self._children.active():
            self._children.stop(name, seconds=seconds)

    def _gone(self) -> bool:
        """Return whether the team directory is no longer the one that this process claimed."""
        try:
            return not pidfile.stands(self._claim, self._context.paths)
        except StoreError:  # a look that failed tells nothing, and there is another next round
            return False

    def _abandon(self) -> None:
        """End all at once, and write nothing: it would reach whoever has that place now.

        Everything goes by its path, and nobody can reach a supervisor whose team directory was
        moved or removed. What a killed teammate was at, the next start goes on with.
        """
        self._journal.warn("the team directory is gone")
        self._children.kill_all()
        self._orphans.end(spare=set())

    def _reconcile(self) -> None:
        """End the processes of those that somebody took out of the roster by hand."""
        self._roster.refresh()
        for name in self._children.active():
            if not self._children.ending(name) and self._roster.team.find(name) is None:
                self._journal.warn("no member any more", name=name)
                self._children.stop(name, seconds=self._stop_seconds)

    def _ring(self) -> None:
        """Wake those who have mail; where hints were lost, wake everybody.

        A change of the board wakes everybody, if they look for tasks there: a teammate that idles
        since a moment ago has not reported that yet, and one that works takes no notice.
        """
        if self._tasks.board_changed() and self._context.settings.now.tasks.auto_claim:
            self._children.ring_all()
        changed = self._watch.changed()
        if changed is None:
            self._children.ring_all()
            return
        names = [name.removesuffix(".jsonl") for name in changed if name.endswith(".jsonl")]
        try:
            self._children.ring(name for name in names if self._context.paths.has_mail(name))
        except StoreError:  # a look that failed: who is woken looks again itself
            self._children.ring_all()

    def _reap(self) -> None:
        """Take note of ended processes, and end what they left behind."""
        if self._children.reap():
            self._tasks.look_soon()
            self._orphans.end(spare=self._children.pids())
