"""The teammates' processes: forked, rung, ended and reaped as their table of states says."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from teamd.states import ChildExit
from teamd.supervisor.child import fork
from teamd.supervisor.lifecycle import TABLE, Action, Event, State
from teamd.supervisor.restarts import Crashes, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from teamd.identity import Identity
    from teamd.journal import Journal
    from teamd.supervisor.child import Child

KILL_AGAIN_SECONDS: Final = 1.0
# A full disk or a full process table is the machine's trouble: however long it lasts, the teammate
# is not given up for it, and goes on once it is over.
TROUBLE_SECONDS: Final = 5.0

Run: TypeAlias = Callable[[str, int], int]


class Register(Protocol):
    """Where it is written down how the teammates are."""

    def begun(self, name: str, process: Identity) -> None:
        """A teammate has a process now."""

    def ended(self, name: str) -> None:
        """A teammate has no process any more, as was wanted."""

    def crashed(self, name: str, reason: str) -> None:
        """A teammate has no process for a moment, and is started again."""

    def failed(self, name: str, reason: str) -> None:
        """A teammate has crashed too often, or for good, and is given up."""


@dataclass(slots=True)
class Life:
    """One teammate's process over time."""

    name: str
    state: State = State.ABSENT
    child: Child | None = None
    due_at: float | None = None  # when to start again, or to use force
    crashes: Crashes = field(default_factory=Crashes)
    when_ended: list[Callable[[bool], None]] = field(default_factory=list)


class Teammates:
    """All of them.

    Args:
        run: what a child does: gets name and bell, returns its exit code.
        register: told of every change.
        tolerance: how many crashes of one teammate are borne.
        blame: told of every end before the next start: name, pid and exit code.
        private: the supervisor's own descriptors, which no child may keep.
    """

    def __init__(
        self,
        *,
        run: Run,
        register: Register,
        journal: Journal,
        tolerance: Callable[[], Tolerance],
        blame: Callable[[str, int, int], None],
        private: Callable[[], list[int]],
    ) -> None:
        self._run = run
        self._register = register
        self._tolerance = tolerance
        self._blame = blame
        self._journal = journal
        self._private = private
        self._lives: dict[str, Life] = {}

    def start(self, name: str) -> None:
        """Give a teammate a process, unless it has one; earlier crashes count no more."""
        life = self._lives.setdefault(name, Life(name))
        life.crashes.forgive()
        self._step(life, Event.WANTED)

    def stop(
        self, name: str, *, seconds: float, then: Callable[[bool], None] | None = None
    ) -> None:
        """End a teammate's process: politely, and by force when the time is over.

        Args:
            name: the teammate's.
            seconds: until force is used, from now; an earlier bound stays.
            then: called when it has ended, with whether it took force.
        """
        life = self._lives.setdefault(name, Life(name))
        if then is not None:
            life.when_ended.append(then)
        due_at = time.monotonic() + seconds
        already = life.state in (State.STOPPING, State.KILLED)
        life.due_at = min(life.due_at or due_at, due_at) if already else due_at
        self._step(life, Event.UNWANTED)

    def ring(self, names: Iterable[str]) -> None:
        """Wake those of the names that have a process."""
        for name in names:
            life = self._lives.get(name)
            if life is not None and life.child is not None:
                life.child.ring()

    def reap(self) -> bool:
        """Take note of every process that has ended; returns whether there was one."""
        ended = False
        for life in list(self._lives.values()):
            if life.child is not None and (code := life.child.reap()) is not None:
                pid = life.child.identity.pid
                self._journal.note("exited", name=life.name, code=code, pid=pid)
                self._blame(life.name, pid, code)
                life.child = None
                ended = True
                self._crash(life, code)
        return ended

    def do_due(self) -> None:
        """Start those again whose delay is over, and use force on those whose time is over."""
        now = time.monotonic()
        for life in list(self._lives.values()):
            if life.due_at is not None and now >= life.due_at:
                life.due_at = now + KILL_AGAIN_SECONDS
                self._step(life, Event.DUE)

    def next_due_seconds(self) -> float | None:
        """How long until `do_due` has something to do."""
        moments = [life.due_at for life in self._lives.values() if life.due_at is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def kill(self, name: str) -> None:
        """Kill a teammate's process; it counts as a crash."""
        life = self._lives.get(name)
        if life is not None:
            self._signal(life, signal.SIGKILL)

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
        if code == ChildExit.IO:
            delay = TROUBLE_SECONDS
        elif code != ChildExit.SETTINGS:
            delay = life.crashes.note(time.monotonic(), self._tolerance())
        event = Event.HOPELESS if delay is None else Event.CRASHED
        self._step(life, event, _reason(code), delay or 0.0)

    def _step(self, life: Life, event: Event, reason: str = "", delay: float = 0.0) -> None:
        forced = life.state is State.KILLED
        life.state, action = TABLE[life.state, event]
        match action:
            case Action.FORK:
                self._fork(life)
            case Action.DELAY:
                life.due_at = time.monotonic() + delay
                self._register.crashed(life.name, reason)
            case Action.TERMINATE:
                self._signal(life, signal.SIGTERM)
            case Action.KILL:
                self._signal(life, signal.SIGKILL)
            case Action.SETTLE:
                self._settle(life, forced=forced)
            case Action.FAIL:
                life.due_at = None
                self._register.failed(life.name, reason)
            case Action.NOTHING:
                return

    def _fork(self, life: Life) -> None:
        bells = [other.child.bell for other in self._lives.values() if other.child is not None]
        name = life.name
        life.due_at = None
        try:
            life.child = fork(lambda bell: self._run(name, bell), close=self._private() + bells)
        except OSError as error:
            reason = f"no process could be forked: {error.strerror}"
            self._step(life, Event.CRASHED, reason, TROUBLE_SECONDS)
            return
        self._journal.note("forked", name=name, pid=life.child.identity.pid)
        self._register.begun(name, life.child.identity)

    def _signal(self, life: Life, number: signal.Signals) -> None:
        if life.child is not None:
            self._journal.note("signalled", name=life.name, signal=number.name)
            life.child.signal(number)

    def _settle(self, life: Life, *, forced: bool) -> None:
        self._register.ended(life.name)
        life.due_at = None
        waiting, life.when_ended = life.when_ended, []
        for then in waiting:
            then(forced)


def _reason(code: int) -> str:
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    if code == ChildExit.STOPPED:
        return "its process ended although nobody had asked for it"
    if code == ChildExit.IO:
        return "a file of its could not be read or written"
    return f"its process ended with exit code {code}"
