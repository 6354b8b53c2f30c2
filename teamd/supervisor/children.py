"""The teammates' processes: forked, woken, ended and reaped as their table of states says."""

from __future__ import annotations

import math
import signal
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from teamd import clocks
from teamd.clocks import Deadline
from teamd.errors import StoreError, TeamError
from teamd.journal import Journal, LoggedEvent
from teamd.mail.mailbox import Mailbox
from teamd.process_id import Identity
from teamd.supervisor.fork import (
    Child,
    ChildProgram,
    explain_failed_start,
    fork,
    try_fork,
)
from teamd.supervisor.lifecycle import (
    Action,
    EndNotice,
    Life,
    LifeEvent,
    State,
    describe_exit,
    next_step,
)
from teamd.supervisor.live_settings import LiveSettings
from teamd.supervisor.roster_in_memory import RosterWriter
from teamd.supervisor.slots import Slots
from teamd.team.heartbeat import Heartbeat, HeartbeatPolicy, Watchdog
from teamd.team.slot_messages import CHANNEL
from teamd.team.states import ChildExit, ChildStart

_ENDING: Final = (State.STOPPING, State.KILLED)


KILL_AGAIN_SECONDS: Final = 1.0
# A full disk or a full process table is the machine's trouble: the teammate is restarted for as
# long as it lasts.
TROUBLE_SECONDS: Final = 5.0
_HEALTHY_SECONDS: Final = 60.0  # a process that lived for so long could read its files
_LOOK_SECONDS: Final = 0.1  # after news, to a look at all heartbeats
_ROUND_SECONDS: Final = 0.05  # of forks at a stretch: slots and mail wait meanwhile
_LONGEST_LOOK_SECONDS: Final = 30.0  # a teammate that rests may wake itself
_HINDRANCES: Final = 3  # in a row, until they are reported
_SIGNALS: Final = {Action.TERMINATE: signal.SIGTERM, Action.KILL: signal.SIGKILL}
# Signals that a process causes itself. SIGKILL and SIGTERM come from outside: a person, the kernel.
_FATAL: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


@dataclass(slots=True)
class Children:
    """The processes of all teammates; none is forked before `begin`.

    Attributes:
        heartbeats: the policy at the start, since running children do not follow changes.
        roster: records every change.
        slots: the slots for model calls.
        private: the supervisor's own descriptors, which no child may keep.
    """

    program: ChildProgram
    settings: LiveSettings
    heartbeats: HeartbeatPolicy
    roster: RosterWriter
    journal: Journal
    slots: Slots
    private: list[int]
    _begun: bool = False
    _behind: bool = False  # whether more processes have ended than were reaped
    _next_look: Deadline = field(default_factory=lambda: Deadline.after(0.0, clocks.awake))
    _lives: dict[str, Life] = field(default_factory=dict)

    def process(self, name: str) -> Identity | None:
        """Return the process of a teammate, if it has one."""
        life = self._lives.get(name)
        return life.child.identity if life is not None and life.child is not None else None

    def believes(self, name: str, pid: object, started: object) -> bool:
        """Return whether a report is from a teammate's process, or the one before hibernation."""
        former = self._lives[name].former if name in self._lives else None
        known = filter(None, (self.process(name), former))
        return any((one.pid, one.started) == (pid, started) for one in known)

    def state(self, name: str) -> State:
        """Return the state of a teammate's process."""
        life = self._lives.get(name)
        return State.ABSENT if life is None else life.state

    def ending(self, name: str) -> bool:
        """Return whether a teammate's process is being ended."""
        return self.state(name) in _ENDING

    def active(self) -> list[str]:
        """Return the names of teammates that have a process, or are about to have one again."""
        return [life.name for life in self._lives.values() if life.state is not State.ABSENT]

    def pids(self) -> set[int]:
        """Return the pids of all processes."""
        return {life.child.identity.pid for life in self._lives.values() if life.child is not None}

    def _life(self, name: str) -> Life:
        return self._lives.setdefault(name, Life(name))

    def begin(self) -> None:
        """Load the children's modules and try one fork; waiting teammates start in the next round.

        Raises:
            TeamError: no teammate can start here; says why.
        """
        self.load()
        if self.program.try_first_steps is not None:
            try_fork(self.program.try_first_steps, self.fork)
        self._begun = True

    def load(self) -> None:
        """Load the modules that the next process needs.

        Raises:
            TeamError: they cannot be loaded; says why.
        """
        try:
            self.program.load()
        except Exception as error:
            raise explain_failed_start(error) from error

    def start(self, name: str) -> None:
        """Give a teammate a process, unless it has one; forget its earlier crashes."""
        life = self._life(name)
        life.forgive()
        self._step(life, LifeEvent.WANTED)

    def restart(self, name: str, *, seconds: float) -> None:
        """Give a teammate a new process, unless `stop` is called meanwhile."""
        self._life(name).forgive()
        self.stop(name, seconds=seconds, again=True)

    def stop(
        self, name: str, *, seconds: float, then: EndNotice | None = None, again: bool = False
    ) -> None:
        """End a teammate's process with SIGTERM, and with SIGKILL after `seconds`.

        An earlier deadline stays. When the process has ended, `then` is called with whether it was
        killed, and with `again` another process starts.
        """
        life = self._life(name)
        life.again = again
        if then is not None:
            life.when_ended.append(then)
        due = Deadline.after(seconds, clocks.awake)  # asleep, it could not end
        if not (self.ending(name) and life.due is not None and life.due.left < seconds):
            life.due = due
        self._step(life, LifeEvent.UNWANTED)

    def kill_all(self) -> None:
        """Kill every process at once, without any record or report."""
        for life in self._lives.values():
            if life.child is not None:
                life.child.signal(signal.SIGKILL)

    def ring(self, names: Iterable[str]) -> None:
        """Wake those of the teammates that have a process."""
        for name in names:
            life = self._lives.get(name)
            if life is not None and life.child is not None and life.watchdog is not None:
                life.child.ring()
                life.watchdog.ring(clocks.awake())
                self._look_within(_LOOK_SECONDS)

    def ring_all(self) -> None:
        """Wake every teammate that has a process."""
        self.ring(list(self._lives))

    def reap(self) -> list[int]:
        """Handle the ends of processes, as many as fit into a round; return their exit codes."""
        codes: list[int] = []
        self._behind = False
        until = Deadline.after(_ROUND_SECONDS)
        for life in list(self._lives.values()):
            if self._behind:
                break
            if life.child is not None and (code := life.child.reap()) is not None:
                self._end(life, life.child.identity, code)
                codes.append(code)
                self._behind = until.left <= 0
        return codes

    def do_due(self) -> None:
        """Restart teammates whose delay is over, and kill those whose deadline has passed.

        It starts as many as fit into a round.
        """
        until = Deadline.after(_ROUND_SECONDS)
        for life in list(self._lives.values()):
            if life.due is not None and life.due.left <= 0:
                life.due = Deadline.after(KILL_AGAIN_SECONDS)
                self._step(life, LifeEvent.DUE)
                if until.left <= 0:
                    return

    def check_heartbeats(self) -> None:
        """Find teammates whose heartbeats have stopped, or have resumed."""
        if self._next_look.left > 0:
            return
        now = clocks.awake()
        for life in self._lives.values():
            if life.watchdog is not None and life.child is not None:
                silent = life.watchdog.expired(now)
                if silent and life.child.ended:  # `reap` handles it
                    continue
                event = LifeEvent.SILENT if silent else LifeEvent.HEARD
                self._step(life, event, self.heartbeats.violation)
        beat = self.heartbeats.beat_seconds
        left = (life.left(beat) for life in self._lives.values())
        self._next_look = Deadline.after(min(left, default=math.inf), clocks.awake)
        self._look_within(_LONGEST_LOOK_SECONDS)

    @property
    def next_look_seconds(self) -> float:
        """The seconds until `check_heartbeats` looks again."""
        return self._next_look.left

    def next_due_seconds(self) -> float:
        """Return the seconds until `do_due` or `check_heartbeats` must be called."""
        if self._behind:
            return 0.0
        dues = [life.due.left for life in self._lives.values() if life.due is not None]
        return max(0.0, min((self._next_look.left, *dues)))

    def fork(self, run: Callable[[int], int], *, close: Iterable[int] = ()) -> Child:
        """Fork a process without the supervisor's descriptors; for the rest see `fork.fork`."""
        bells = [life.child.bell for life in self._lives.values() if life.child is not None]

        def enter(bell: int) -> int:
            self.program.enter()
            return run(bell)

        return fork(enter, close=(*self.private, *bells, *self.slots.descriptors, *close))

    def interrupt(self, name: str) -> None:
        """Have a teammate stop its turn; its process keeps running."""
        self._signal(self._life(name), signal.SIGINT)

    def _look_within(self, seconds: float) -> None:
        if self._next_look.left > seconds:
            self._next_look = Deadline.after(seconds, clocks.awake)

    def _end(self, life: Life, process: Identity, code: int) -> None:
        hibernates = code == ChildExit.HIBERNATES
        life.child, life.watchdog = None, None
        self.slots.close(life.name)
        life.former = process if hibernates else None
        if hibernates:
            self._step(life, LifeEvent.HIBERNATED)
            return
        self.journal.note(LoggedEvent.PROCESS_ENDED, name=life.name, code=code, pid=process.pid)
        if code == ChildExit.CRASHED or -code in _FATAL:
            self._blame_delivery(life.name, process.pid)
        self._crash(life, code)

    def _blame_delivery(self, name: str, pid: int) -> None:
        """Record in a teammate's inbox that its process crashed while it handled a delivery.

        If the note cannot be written, the message is simply delivered once more.
        """
        try:
            if Mailbox(self.settings.paths, name, durable=False).blame(pid):
                self.journal.warn("crashed with mail in hand", name=name, pid=pid)
        except StoreError as error:
            self.journal.error("blame not noted", error, name=name, pid=pid)

    def _crash(self, life: Life, code: int) -> None:
        """Count an unexpected end and take the step that follows."""
        delay: float | None = None  # wrong settings do not become right after a delay
        reason = describe_exit(code)
        lived = clocks.elapsed() - life.begun_at
        counts = code == ChildExit.IO and lived < _HEALTHY_SECONDS and life.state is State.RUNNING
        life.hindrances = life.hindrances + 1 if counts else 0
        if code == ChildExit.IO:
            delay = TROUBLE_SECONDS
            if life.hindrances == _HINDRANCES:
                self.roster.hindered(life.name, reason)
        elif code != ChildExit.SETTINGS:
            delay = life.crashes.note(clocks.elapsed(), self.settings.now.supervision)
        if life.state is State.STUCK:
            reason = f"{self.heartbeats.violation}, and {reason}"
        event = LifeEvent.HOPELESS if delay is None else LifeEvent.CRASHED
        self._step(life, event, reason, delay or 0.0)

    def _step(self, life: Life, event: LifeEvent, reason: str = "", delay: float = 0.0) -> None:
        forced = life.state is State.KILLED
        life.state, action = next_step(life.state, event)
        match action:
            case Action.FORK | Action.HIBERNATE:
                self._fork(life, hibernates=action is Action.HIBERNATE)
            case Action.DELAY:
                life.due = Deadline.after(delay)
                self.roster.crashed(life.name, reason)
            case Action.TERMINATE | Action.KILL:
                self._signal(life, _SIGNALS[action])
            case Action.SETTLE:
                self._settle(life, forced=forced)
            case Action.FAIL:
                life.due = None
                self.roster.failed(life.name, reason)
            case Action.REPORT | Action.RELIEVE:
                self._report(life, action, reason)
            case Action.NOTHING:
                pass

    def _fork(self, life: Life, *, hibernates: bool) -> None:
        if not self._begun:
            life.state, life.due = State.WAITING, Deadline.after(0.0)
            self.roster.awaited(life.name)
            return
        name = life.name
        life.due = None
        heartbeat = life.heartbeat = life.heartbeat or Heartbeat()
        try:
            life.child, slots = self._fork_process(name, heartbeat, hibernates=hibernates)
        except (OSError, TeamError) as error:
            self._step(life, LifeEvent.CRASHED, _why_not_forked(error), TROUBLE_SECONDS)
            return
        self.slots.open(name, slots)
        life.watchdog = Watchdog(heartbeat, self.heartbeats)
        self._look_within(_LOOK_SECONDS)
        life.begun_at = clocks.elapsed()
        record = self.roster.hibernates if hibernates else self.roster.begun
        event = "hibernates" if hibernates else "forked"
        self.journal.note(event, name=name, pid=life.child.identity.pid)
        member = self.roster.team.find(name)
        record(name, life.child.identity, self.program.sandbox(name, member.role if member else ""))

    def _fork_process(
        self, name: str, heartbeat: Heartbeat, *, hibernates: bool
    ) -> tuple[Child, int]:
        """Fork the process of a teammate.

        Returns:
            The process, and the supervisor's end of its channel for slots of model calls.

        Raises:
            OSError: there are no processes or descriptors left.
            TeamError: its modules cannot be loaded.
        """
        self.load()  # reloaded settings may need further modules, or name other secrets
        heartbeat.beat()
        own, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
        with own, theirs:
            own.setblocking(False)
            theirs.setblocking(False)

            def run(bell: int) -> int:
                start = ChildStart(
                    name=name,
                    bell=bell,
                    slots=theirs.fileno(),
                    heartbeat=heartbeat,
                    hibernates=hibernates,
                )
                return self.program.run(start)

            child = self.fork(run, close=(own.fileno(),))
            return child, own.detach()

    def _signal(self, life: Life, number: signal.Signals) -> None:
        if life.child is not None:
            self.journal.note("signalled", name=life.name, signal=number.name)
            life.child.signal(number)

    def _report(self, life: Life, action: Action, reason: str) -> None:
        """Report that a teammate is stuck, or has recovered."""
        life.due = None
        if action is Action.RELIEVE:
            self.roster.relieved(life.name)
            return
        restart = self.heartbeats.restart
        if restart:
            life.due = Deadline.after(0.0)
        self.roster.stuck(life.name, reason, restart=restart)

    def _settle(self, life: Life, *, forced: bool) -> None:
        self.roster.ended(life.name)
        life.due = None
        waiting, life.when_ended = life.when_ended, []
        for then in waiting:
            then(forced)
        again, life.again = life.again, False
        if again:
            self._step(life, LifeEvent.WANTED)


def _why_not_forked(error: OSError | TeamError) -> str:
    if isinstance(error, OSError):
        return f"no process could be forked: {error.strerror}"
    return str(error)
