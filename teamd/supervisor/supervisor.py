"""The supervisor's loop. It sleeps until a signal, mail or a deadline, and handles them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Final

from teamd.clocks import Deadline
from teamd.control import ControlRequest
from teamd.errors import StoreError, TeamError
from teamd.files import pidfile
from teamd.files.watch import Watch
from teamd.messages import NAME
from teamd.supervisor.inbox import ControlInbox
from teamd.supervisor.orphans import OrphanedTasks, end_orphans
from teamd.supervisor.spawn import report_unspawned, spawn_declared
from teamd.supervisor.team_context import TeamContext
from teamd.supervisor.workers import Pool, Postmen
from teamd.team import teams
from teamd.team.states import ChildExit

_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
_RELOAD_SECONDS: Final = 60.0
_SUFFIX: Final = ".jsonl"


class Signals:
    """Catches signals: the handler only records them, and the loop acts.

    Its descriptor is readable while there are signals to take.
    """

    def __init__(self, *caught: signal.Signals) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        for number in caught:
            signal.signal(number, _ignore)
        # The interpreter writes each signal's number here, even in the middle of a system call.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._reader

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that a forked child must close."""
        return (self._reader, self._writer)

    def take(self) -> list[signal.Signals]:
        """Return the signals since the last call, in order."""
        with suppress(BlockingIOError):
            return [signal.Signals(number) for number in os.read(self._reader, 4096)]
        return []


@dataclass(frozen=True, slots=True)
class ServiceWatchdog:
    """The longest time of a round, and the report to the service manager after each."""

    seconds: float
    report: Callable[[], None]


@dataclass(slots=True)
class Supervisor:
    """Serves one team until a signal ends it.

    Attributes:
        claim: the descriptor of the lock that makes this process the team's supervisor.
        pools: the workers beside the teammates.
        watch: watches the inboxes.
    """

    context: TeamContext
    claim: int
    inbox: ControlInbox
    tasks: OrphanedTasks
    pools: tuple[Pool[Any], ...]
    signals: Signals
    watch: Watch
    watchdog: ServiceWatchdog
    _stop_seconds: float = field(init=False)  # as at the start; changes need a restart
    _stopping: bool = False
    _pools_due: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    def __post_init__(self) -> None:
        self._stop_seconds = self.context.settings.now.supervision.stop_seconds

    def resume(self) -> None:
        """Take over from a dead supervisor: start its teammates, spawn new ones of team.toml."""
        self.context.describe_settings()
        self.inbox.refuse_leftovers()
        self.context.shutdowns.resume()
        for member in self.context.roster.team.members:
            if member.status.wants_process:
                self.context.children.start(member.name)
            else:
                self.context.roster.ended(member.name)
        self.context.roster.publish()
        self.tasks.release(self.context.roster.team)
        self._spawn_declared()

    def begin(self) -> None:
        """Load the slow modules, and check that a teammate can start on this machine.

        Requests wait in the inbox meanwhile.

        Raises:
            TeamError: no teammate can start here; says why.
        """
        for pool in self.pools:
            if isinstance(pool, Postmen):  # needs none of the modules
                pool.look()
        self._clear()
        self.context.children.begin()

    def run(self) -> None:
        """Serve until a signal asks to stop and every teammate has ended, or the team is gone."""
        while not (self._stopping and not self._busy()):
            self._wait()
            if self._is_gone():  # before anything is written
                self._abandon()
                return
            self._handle_signals()
            self._wake_teammates()  # before `obey`: a change after this one wakes the loop again
            self.context.children.slots.serve()
            self.inbox.obey()
            self._reap()
            self._pools_due = Deadline.after(min(pool.look() for pool in self.pools))
            if self._stopping:
                self._end_started()
            self._reconcile()
            self.context.children.check_heartbeats()
            if not self._stopping:  # teammates that end now are resumed by the next start
                self.context.shutdowns.look()
            self.context.children.do_due()
            self.inbox.publish()
            self.watchdog.report()
        self.inbox.publish(last=True)

    def _spawn_declared(self) -> None:
        for declared in self.context.settings.now.teammates:
            try:
                spawn_declared(self.context, declared)
            except TeamError as error:
                report_unspawned(self.context, declared.name, error)
        with suppress(StoreError):  # the next round writes it
            self.context.roster.publish()

    def _wait(self) -> None:
        slots = self.context.children.slots
        dues = (
            self.watchdog.seconds,
            self.watch.recheck_seconds,
            self.tasks.watch.recheck_seconds,
            self.context.children.next_due_seconds(),
            self._pools_due.left,
            slots.next_due_seconds,
            None if self._stopping else self.context.shutdowns.next_due_seconds(),
            self.inbox.retry_seconds,
            self.context.roster.retry_seconds,
        )
        watched = (self.signals, self.tasks.watch, self.watch, slots)
        seconds = max(0.0, min(due for due in dues if due is not None))
        select.select([one.fileno() for one in watched], [], [], seconds)

    def _handle_signals(self) -> None:
        for number in self.signals.take():
            if number in _ENDINGS:
                self._stop(number)
            elif number is signal.SIGHUP:
                self.inbox.carry_out(ControlRequest.within(_RELOAD_SECONDS, "reload"))

    def _stop(self, number: signal.Signals) -> None:
        """Ask the teammates to end at the first signal, and kill them at a second one."""
        seconds = 0.0 if self._stopping else self._stop_seconds
        self.context.journal.note("stopping", signal=number.name, seconds=seconds)
        self._stopping = self.inbox.closing = True
        for pool in self.pools:
            pool.close()
        for name in self.context.children.active():
            self.context.children.stop(name, seconds=seconds)

    def _end_started(self) -> None:
        """End teammates whose working copy was finished, and that started, during the stop."""
        for name in self.context.children.active():
            if not self.context.children.ending(name):
                self.context.children.stop(name, seconds=self._stop_seconds)

    def _busy(self) -> bool:
        """Return whether a process that was forked here runs, or will run again."""
        return bool(self.context.children.active() or self._pids())

    def _pids(self) -> set[int]:
        return self.context.children.pids().union(*(pool.pids() for pool in self.pools))

    def _is_gone(self) -> bool:
        """Return whether the team directory is no longer the one that this process claimed."""
        with suppress(StoreError):  # not known; the next round looks again
            return not pidfile.stands(self.claim, self.context.settings.paths)
        return False

    def _abandon(self) -> None:
        """Kill all processes and write nothing, since another team may have the directory now.

        No command reaches a supervisor whose team directory was moved or removed. The next start
        resumes the work of the killed teammates.
        """
        self.context.journal.warn("the team directory is gone")
        self.context.children.kill_all()
        for pool in self.pools:
            pool.kill_all()
        self._end_orphans(spare=set())

    def _reconcile(self) -> None:
        """End the processes of teammates that were removed from the roster by hand."""
        children, roster = self.context.children, self.context.roster
        if not roster.refresh():
            return
        for name in children.active():
            if not children.ending(name) and roster.team.find(name) is None:
                self.context.journal.warn("no member any more", name=name)
                children.stop(name, seconds=self._stop_seconds)

    def _wake_teammates(self) -> None:
        """Wake teammates that may have a task or mail, or all if the watch has lost changes.

        Teammates at work are woken, too: one may have become idle without having reported it yet.
        """
        tasks = self.tasks.watch.changed()
        if tasks is None or tasks:
            self._wake_for_tasks(tasks)
        self._wake_for_mail()

    def _wake_for_tasks(self, changed: set[str] | None) -> None:
        for pool in self.pools:
            pool.note(changed)
        if self.context.settings.now.tasks.auto_claim:
            children = self.context.children
            claimers = self.tasks.claimers(changed, self.context.roster.team)
            children.ring(children.active() if claimers is None else claimers)

    def _wake_for_mail(self) -> None:
        changed, paths = self.watch.changed(), self.context.settings.paths
        try:
            names = {name for name in map(_owner, changed or ()) if paths.has_mail(name)}
        except StoreError:  # teammates read their inboxes themselves when they wake
            changed = None
        if changed is None:
            self.context.children.ring_all()
        else:
            self.context.children.ring(names)

    def _reap(self) -> None:
        """Handle the ends of processes, and end the processes that they left behind."""
        codes = self.context.children.reap()
        for pool in self.pools:
            codes += pool.reap()
        if codes:
            self._end_orphans(spare=self._pids())
        if any(code != ChildExit.HIBERNATES for code in codes):
            self.tasks.look_soon()
            self._clear()

    def _end_orphans(self, spare: set[int]) -> None:
        home = self.context.settings.paths.home
        others = partial(teams.supervisors, home)
        end_orphans(spare=spare, supervisors=others, journal=self.context.journal)

    def _clear(self) -> None:
        """Repair the workspace after teammates were killed; none of their commands runs."""
        try:
            self.context.roster.publish()  # or hibernating teammates would be taken for dead
            if taken := self.context.program.clear():
                self.context.journal.warn("taken out of protected places", names=taken)
        except StoreError as error:  # the next command or start repairs it
            self.context.journal.error("workspace not repaired", error)


def is_inbox(name: str) -> bool:
    """Return whether a file is an inbox, and not a file of taken or rejected mail beside it."""
    return name.endswith(_SUFFIX) and NAME.fullmatch(_owner(name)) is not None


def _owner(inbox: str) -> str:
    return inbox.removesuffix(_SUFFIX)


def _ignore(number: int, frame: FrameType | None) -> None:
    """The byte in the pipe records the signal."""
