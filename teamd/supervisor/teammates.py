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

if TYPE_CHECKING:
    from collections.abc import Iterable

    from teamd.identity import Identity
    from teamd.journal import Journal
    from teamd.supervisor.child import Child

KILL_AGAIN_SECONDS: Final = 1.0

Run: TypeAlias = Callable[[str, int], int]


class Register(Protocol):
    """Where it is written down how the teammates are."""

    def begun(self, name: str, process: Identity) -> None:
        """A teammate has a process now."""

    def ended(self, name: str) -> None:
        """A teammate has no process any more, as was wanted."""

    def failed(self, name: str, reason: str) -> None:
        """A teammate's process ended by itself, or could not be forked."""


@dataclass(slots=True)
class Life:
    """One teammate's process over time."""

    name: str
    state: State = State.ABSENT
    child: Child | None = None
    overdue_at: float | None = None
    when_ended: list[Callable[[bool], None]] = field(default_factory=list)


class Teammates:
    """All of them.

    Args:
        run: what a child does: gets name and bell, returns its exit code.
        register: told of every change.
        private: the supervisor's own descriptors, which no child may keep.
    """

    def __init__(
        self, *, run: Run, register: Register, journal: Journal, private: Callable[[], list[int]]
    ) -> None:
        self._run = run
        self._register = register
        self._journal = journal
        self._private = private
        self._lives: dict[str, Life] = {}

    def start(self, name: str) -> None:
        """Give a teammate a process, unless it has one; a failure to fork is registered."""
        self._step(self._lives.setdefault(name, Life(name)), Event.WANTED)

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
        overdue_at = time.monotonic() + seconds
        life.overdue_at = min(life.overdue_at or overdue_at, overdue_at)
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
                self._journal.note("exited", name=life.name, code=code, pid=life.child.identity.pid)
                life.child = None
                ended = True
                self._step(life, Event.ENDED, code)
        return ended

    def end_overdue(self) -> None:
        """Use force on those whose time is over."""
        now = time.monotonic()
        for life in self._lives.values():
            if life.child is not None and life.overdue_at is not None and now >= life.overdue_at:
                life.overdue_at = now + KILL_AGAIN_SECONDS
                self._step(life, Event.OVERDUE)

    def next_overdue_seconds(self) -> float | None:
        """How long until `end_overdue` has something to do."""
        moments = [life.overdue_at for life in self._lives.values() if life.overdue_at is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def process(self, name: str) -> Identity | None:
        """The process of a teammate, if it has one."""
        life = self._lives.get(name)
        return life.child.identity if life is not None and life.child is not None else None

    def state(self, name: str) -> State:
        """How the process of a teammate is."""
        life = self._lives.get(name)
        return State.ABSENT if life is None else life.state

    def names(self) -> list[str]:
        """Those that have a process."""
        return [life.name for life in self._lives.values() if life.child is not None]

    def pids(self) -> set[int]:
        """Their processes."""
        return {life.child.identity.pid for life in self._lives.values() if life.child is not None}

    def _step(self, life: Life, event: Event, code: int = 0) -> None:
        forced = life.state is State.KILLED
        life.state, action = TABLE[life.state, event]
        match action:
            case Action.FORK:
                self._fork(life)
            case Action.TERMINATE:
                self._signal(life, signal.SIGTERM)
            case Action.KILL:
                self._signal(life, signal.SIGKILL)
            case Action.SETTLE:
                self._settle(life, forced=forced)
            case Action.FAIL:
                self._register.failed(life.name, _reason(code))
            case Action.NOTHING:
                return

    def _fork(self, life: Life) -> None:
        bells = [other.child.bell for other in self._lives.values() if other.child is not None]
        name = life.name
        try:
            life.child = fork(lambda bell: self._run(name, bell), close=self._private() + bells)
        except OSError as error:
            life.state = State.ABSENT
            self._register.failed(name, f"no process could be forked: {error.strerror}")
            return
        self._journal.note("forked", name=name, pid=life.child.identity.pid)
        self._register.begun(name, life.child.identity)

    def _signal(self, life: Life, number: signal.Signals) -> None:
        if life.child is not None:
            self._journal.note("signalled", name=life.name, signal=number.name)
            life.child.signal(number)

    def _settle(self, life: Life, *, forced: bool) -> None:
        self._register.ended(life.name)
        life.overdue_at = None
        waiting, life.when_ended = life.when_ended, []
        for then in waiting:
            then(forced)


def _reason(code: int) -> str:
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    if code == ChildExit.STOPPED:
        return "its process ended although nobody had asked for it"
    return f"its process ended with exit code {code}"
