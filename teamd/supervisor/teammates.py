"""The teammates' processes: forked, rung, ended and reaped as their table of states says."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from teamd import clocks
from teamd.clocks import Deadline
from teamd.states import ChildExit
from teamd.supervisor.child import fork
from teamd.supervisor.life import Life, how_it_ended, no_progress
from teamd.supervisor.lifecycle import TABLE, Action, Event, State
from teamd.supervisor.vigil import Vigil
from teamd.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Iterable

    from teamd.identity import Identity
    from teamd.journal import Journal
    from teamd.supervisor.life import Register
    from teamd.supervisor.restarts import Tolerance
    from teamd.supervisor.vigil import Silence

KILL_AGAIN_SECONDS: Final = 1.0
# A full disk or a full process table is the machine's trouble: however long it lasts, the teammate
# is not given up for it, and goes on once it is over.
TROUBLE_SECONDS: Final = 5.0
_HEALTHY_SECONDS: Final = 60.0  # who has lived for so long was not hindered from the start
_HINDRANCES: Final = 3  # in a row, and somebody is told: it may not pass by itself
_SIGNALS: Final = {Action.TERMINATE: signal.SIGTERM, Action.KILL: signal.SIGKILL}

Run: TypeAlias = Callable[[str, int, Vitals], int]


class Teammates:
    """All of them.

    Args:
        run: what a child does: gets name, bell and vitals, returns its exit code.
        load: loads what the next child needs, unless it is loaded; nobody is forked before `begin`.
        register: told of every change.
        tolerance: how many crashes of one teammate are borne.
        blame: told of every end before the next start: name, pid and exit code.
        silence: what is made of one that shows no sign of life.
        private: the supervisor's own descriptors, which no child may keep.
    """

    def __init__(
        self,
        *,
        run: Run,
        load: Callable[[], None],
        register: Register,
        journal: Journal,
        tolerance: Callable[[], Tolerance],
        blame: Callable[[str, int, int], None],
        silence: Silence,
        private: list[int],
    ) -> None:
        self._run = run
        self._load = load
        self._begun = False
        self._register = register
        self._tolerance = tolerance
        self._blame = blame
        self._silence = silence
        self._journal = journal
        self._private = private
        self._lives: dict[str, Life] = {}

    def begin(self) -> None:
        """Load what children need; whoever was to start before is forked in the next round."""
        self._load()
        self._begun = True

    def start(self, name: str) -> None:
        """Give a teammate a process, unless it has one; earlier crashes count no more."""
        life = self._lives.setdefault(name, Life(name))
        life.forgive()
        self._step(life, Event.WANTED)

    def restart(self, name: str, *, seconds: float) -> None:
        """Give a teammate a new process; a `stop` that comes meanwhile is the last word."""
        self._lives.setdefault(name, Life(name)).forgive()
        self.stop(name, seconds=seconds, again=True)

    def stop(
        self,
        name: str,
        *,
        seconds: float,
        then: Callable[[bool], None] | None = None,
        again: bool = False,
    ) -> None:
        """End a teammate's process: politely, and by force when the time is over.

        Args:
            name: the teammate's.
            seconds: until force is used, from now; an earlier bound stays.
            then: called when it has ended, with whether it took force.
            again: whether to start it then.
        """
        life = self._lives.setdefault(name, Life(name))
        life.again = again
        if then is not None:
            life.when_ended.append(then)
        due = Deadline.after(seconds, clocks.awake)  # asleep, it could not end
        already = life.state in (State.STOPPING, State.KILLED)
        if not (already and life.due is not None and life.due.left < seconds):
            life.due = due
        self._step(life, Event.UNWANTED)

    def kill_all(self) -> None:
        """Kill every process at once; nobody is told, and nothing is written down."""
        for life in self._lives.values():
            if life.child is not None:
                life.child.signal(signal.SIGKILL)

    def ring(self, names: Iterable[str]) -> None:
        """Wake those of the names that have a process."""
        for name in names:
            life = self._lives.get(name)
            if life is not None and life.child is not None and life.vigil is not None:
                life.child.ring()
                life.vigil.ring(clocks.awake())

    def reap(self) -> bool:
        """Take note of every process that has ended; returns whether there was one."""
        ended = False
        for life in list(self._lives.values()):
            if life.child is not None and (code := life.child.reap()) is not None:
                pid = life.child.identity.pid
                self._journal.note("exited", name=life.name, code=code, pid=pid)
                self._blame(life.name, pid, code)
                life.child = None
                life.vigil = None
                ended = True
                self._crash(life, code)
        return ended

    def do_due(self) -> None:
        """Start those again whose delay is over, and use force on those whose time is over."""
        for life in list(self._lives.values()):
            if life.due is not None and life.due.left <= 0:
                life.due = Deadline.after(KILL_AGAIN_SECONDS)
                self._step(life, Event.DUE)

    def look_after(self) -> None:
        """See who shows no sign of life for too long, and who does so again."""
        now = clocks.awake()
        for life in self._lives.values():
            if life.vigil is not None:
                silent = life.vigil.silent(now, self._silence)
                reason = no_progress(self._silence.seconds)
                self._step(life, Event.SILENT if silent else Event.HEARD, reason)

    def next_due_seconds(self) -> float | None:
        """How long until `do_due` or `look_after` has something to do."""
        left = min((life.left(self._silence) for life in self._lives.values()), default=math.inf)
        return None if left == math.inf else max(0.0, left)

    def kill(self, name: str) -> None:
        """Kill a teammate's process; it counts as a crash."""
        life = self._lives.get(name)
        if life is not None:
            self._signal(life, signal.SIGKILL)

    def interrupt(self, name: str) -> None:
        """Have a teammate break off its turn; its process goes on."""
        life = self._lives.get(name)
        if life is not None:
            self._signal(life, signal.SIGINT)

    def process(self, name: str) -> Identity | None:
        """The process of a teammate, if it has one."""
        life = self._lives.get(name)
        return life.child.identity if life is not None and life.child is not None else None

    def state(self, name: str) -> State:
        """How the process of a teammate is."""
        life = self._lives.get(name)
        return State.ABSENT if life is None else life.state

    def active(self) -> list[str]:
        """Those that have a process, or are about to have one again."""
        return [life.name for life in self._lives.values() if life.state is not State.ABSENT]

    def names(self) -> list[str]:
        """Those that have a process."""
        return [life.name for life in self._lives.values() if life.child is not None]

    def pids(self) -> set[int]:
        """Their processes."""
        return {life.child.identity.pid for life in self._lives.values() if life.child is not None}

    def _crash(self, life: Life, code: int) -> None:
        """A process ended by itself."""
        delay: float | None = None  # wrong settings are as wrong a second later
        lived = clocks.elapsed() - life.begun_at
        counts = code == ChildExit.IO and lived < _HEALTHY_SECONDS and life.state is State.RUNNING
        life.hindrances = life.hindrances + 1 if counts else 0
        if code == ChildExit.IO:
            delay = TROUBLE_SECONDS
            if life.hindrances == _HINDRANCES:
                self._register.hindered(life.name, how_it_ended(code))
        elif code != ChildExit.SETTINGS:
            delay = life.crashes.note(clocks.elapsed(), self._tolerance())
        event = Event.HOPELESS if delay is None else Event.CRASHED
        reason = how_it_ended(code)
        if life.state is State.STUCK:
            reason = f"{no_progress(self._silence.seconds)}, and {reason}"
        self._step(life, event, reason, delay or 0.0)

    def _step(self, life: Life, event: Event, reason: str = "", delay: float = 0.0) -> None:
        forced = life.state is State.KILLED
        life.state, action = TABLE[life.state, event]
        match action:
            case Action.FORK:
                self._fork(life)
            case Action.DELAY:
                life.due = Deadline.after(delay)
                self._register.crashed(life.name, reason)
            case Action.TERMINATE | Action.KILL:
                self._signal(life, _SIGNALS[action])
            case Action.SETTLE:
                self._settle(life, forced=forced)
            case Action.FAIL:
                life.due = None
                self._register.failed(life.name, reason)
            case Action.REPORT | Action.RELIEVE:
                self._tell_of(life, action, reason)
            case Action.NOTHING:
                pass

    def _fork(self, life: Life) -> None:
        if not self._begun:
            life.state, life.due = State.WAITING, Deadline.after(0.0)
            self._register.awaited(life.name)
            return
        bells = [other.child.bell for other in self._lives.values() if other.child is not None]
        name = life.name
        life.due = None
        self._load()  # settings that were read again may want more
        try:
            vitals = Vitals()
            life.child = fork(
                lambda bell: self._run(name, bell, vitals), close=self._private + bells
            )
        except OSError as error:
            reason = f"no process could be forked: {error.strerror}"
            self._step(life, Event.CRASHED, reason, TROUBLE_SECONDS)
            return
        life.vigil = Vigil(vitals)
        life.begun_at = clocks.elapsed()
        self._journal.note("forked", name=name, pid=life.child.identity.pid)
        self._register.begun(name, life.child.identity)

    def _signal(self, life: Life, number: signal.Signals) -> None:
        if life.child is not None:
            self._journal.note("signalled", name=life.name, signal=number.name)
            life.child.signal(number)

    def _tell_of(self, life: Life, action: Action, reason: str) -> None:
        """Somebody is stuck, or not any more."""
        life.due = None
        if action is Action.RELIEVE:
            self._register.relieved(life.name)
            return
        if self._silence.restart:
            life.due = Deadline.after(0.0)
        self._register.stuck(life.name, reason, restart=self._silence.restart)

    def _settle(self, life: Life, *, forced: bool) -> None:
        self._register.ended(life.name)
        life.due = None
        waiting, life.when_ended = life.when_ended, []
        for then in waiting:
            then(forced)
        again, life.again = life.again, False
        if again:
            self._step(life, Event.WANTED)
