"""The supervisor's loop. It sleeps until a signal, mail or a deadline, and sees to all of them."""

from __future__ import annotations

import select
import signal
from typing import TYPE_CHECKING, Final

from teamd.control import ControlRequest
from teamd.errors import StoreError
from teamd.supervisor.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.journal import Journal
    from teamd.store.paths import TeamPaths
    from teamd.store.watch import Watch
    from teamd.supervisor.chores import Chores
    from teamd.supervisor.control import Control
    from teamd.supervisor.handshakes import Handshakes
    from teamd.supervisor.orphans import Orphans
    from teamd.supervisor.register import Register
    from teamd.supervisor.signals import Signals
    from teamd.supervisor.teammates import Teammates

_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
_RELOAD_SECONDS: Final = 60.0


class Supervisor:
    """Serves one team until a signal ends it.

    Args:
        claim_stands: whether what makes this the team's supervisor is still there.
        chores: its look at the board.
        auto_claim: whether idle teammates look at the board themselves.
        stop_seconds: how long teammates have to end by themselves.
        alive: called each round, at least every `round_seconds`: the watchdog's sign of life.
    """

    def __init__(
        self,
        *,
        paths: TeamPaths,
        control: Control,
        register: Register,
        teammates: Teammates,
        handshakes: Handshakes,
        chores: Chores,
        auto_claim: Callable[[], bool],
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
        self._control = control
        self._register = register
        self._teammates = teammates
        self._handshakes = handshakes
        self._chores = chores
        self._auto_claim = auto_claim
        self._orphans = orphans
        self._signals = signals
        self._watch = watch
        self._journal = journal
        self._claim_stands = claim_stands
        self._stop_seconds = stop_seconds
        self._alive = alive
        self._round_seconds = round_seconds
        self._stopping = False

    def resume(self) -> None:
        """Begin: answer what a dead supervisor left, and start those who were at work or idle."""
        self._control.refuse_leftovers()
        self._handshakes.resume()
        for member in self._register.team.members:
            if member.status.wants_process:
                self._teammates.start(member.name)
            else:
                self._register.ended(member.name)
        self._register.publish()

    def run(self) -> None:
        """Serve until a signal says to stop and every teammate has ended, or the team is gone."""
        while not (self._stopping and not self._teammates.active()):
            self._wait()
            if self._gone():  # before anything is written
                self._abandon()
                return
            self._heed_signals()
            self._ring()  # takes the hints, so it comes before the look that relies on them
            self._control.obey()
            self._reap()
            self._reconcile()
            self._teammates.look_after()
            if not self._stopping:  # those who end now end for that, and are resumed
                self._handshakes.look()
            self._teammates.do_due()
            self._control.publish()
            self._alive()
        self._control.publish()

    def _wait(self) -> None:
        seconds = self._round_seconds
        for due in (
            self._watch.recheck_seconds,
            self._chores.recheck_seconds,
            self._teammates.next_due_seconds(),
            None if self._stopping else self._handshakes.next_due_seconds(),
            self._control.retry_seconds,
        ):
            seconds = seconds if due is None else min(seconds, due)
        watched = [self._signals.fileno(), self._watch.fileno(), self._chores.fileno()]
        select.select(watched, [], [], seconds)

    def _heed_signals(self) -> None:
        for number in self._signals.take():
            if number in _ENDINGS:
                self._stop(number)
            elif number is signal.SIGHUP:
                self._control.carry_out(ControlRequest.within(_RELOAD_SECONDS, "reload"))

    def _stop(self, number: signal.Signals) -> None:
        """The first such signal asks the teammates to end, a second one ends them at once."""
        seconds = 0.0 if self._stopping else self._stop_seconds
        self._journal.note("stopping", signal=number.name, seconds=seconds)
        self._stopping = self._control.closing = True
        for name in self._teammates.active():
            self._teammates.stop(name, seconds=seconds)

    def _gone(self) -> bool:
        """Whether what stands under the team's name is not what this process claimed."""
        try:
            return not self._claim_stands()
        except StoreError:  # a look that failed tells nothing, and there is another next round
            return False

    def _abandon(self) -> None:
        """End all at once, and write nothing: it would reach whoever has that place now.

        Everything goes by its path, and nobody can reach a supervisor whose team directory was
        moved or removed. What a killed teammate was at, the next start goes on with.
        """
        self._journal.warn("the team directory is gone")
        self._teammates.kill_all()
        self._orphans.end(spare=set())

    def _reconcile(self) -> None:
        """Whoever was taken out of the roster by hand has nothing to do here any more."""
        self._register.look_again()
        for name in self._teammates.active():
            ending = self._teammates.state(name) in (State.STOPPING, State.KILLED)
            if not ending and self._register.team.find(name) is None:
                self._journal.warn("no member any more", name=name)
                self._teammates.stop(name, seconds=self._stop_seconds)

    def _ring(self) -> None:
        """Wake those who have mail; where hints were lost, wake everybody.

        A change of the board wakes everybody, if they look for tasks there: who idles since a
        moment ago has not been heard yet, and who works takes no notice.
        """
        if self._chores.board_changed() and self._auto_claim():
            self._teammates.ring(self._teammates.names())
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
            self._chores.be_due()
            self._orphans.end(spare=self._teammates.pids())
