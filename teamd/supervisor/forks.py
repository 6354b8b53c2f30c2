"""The forks of teammates' processes, one of which is ready before anybody wants it.

Most of what a new process takes until its first model call goes into copying the pages that it
shares with the supervisor. So one is forked ahead, and does to nobody what every teammate does
first. It has no name, no lock and no file, and is nobody's until it is told a name: then it is as
good as forked in that moment. Where there is none, or one of other settings, one is forked.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from teamd.call_slots import CHANNEL
from teamd.clocks import Deadline
from teamd.heartbeat import HeartbeatMemory
from teamd.states import ChildExit
from teamd.supervisor.fork import ChildStart, fork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Final

    from teamd.heartbeat import Heartbeat
    from teamd.settings import Settings
    from teamd.supervisor.fork import Child, ChildProgram
    from teamd.supervisor.live_settings import LiveSettings

_QUIET_SECONDS: Final = 0.5  # since the last fork: who starts a whole team waits for nothing else
_LONGEST_NAME: Final = 4096


@dataclass(frozen=True, slots=True)
class Forked:
    """A process that was forked for a teammate, and what the supervisor shares with it.

    Attributes:
        slots: the supervisor's end of the channel for slots of model calls.
    """

    child: Child
    slots: int
    heartbeat: Heartbeat


@dataclass(slots=True)
class Forks:
    """Forks teammates, and keeps one process ready where its program rehearses anything.

    Attributes:
        descriptors: returns those that no process may keep which is forked now.
    """

    program: ChildProgram
    settings: LiveSettings
    descriptors: Callable[[], Iterable[int]]
    _memory: HeartbeatMemory = field(default_factory=HeartbeatMemory)
    _ready: Forked | None = None
    _settings: Settings | None = None  # those that it has
    _due: Deadline | None = None
    _ended: bool = False

    @property
    def next_due_seconds(self) -> float:
        """Return the seconds until `do_due` has something to do."""
        return math.inf if self._due is None else self._due.left

    def fork(self, name: str, heartbeat: Heartbeat | None, *, hibernates: bool) -> Forked:
        """Return a process that has just become a teammate.

        Args:
            name: the teammate's.
            heartbeat: that of its process before, if it had one.
            hibernates: whether it waits for a reason to wake before it loads anything.

        Raises:
            OSError: there are no processes or descriptors left.
        """
        self.want()
        if not hibernates and (ready := self._take(name)) is not None:
            return ready
        heartbeat = heartbeat or self._memory.make()
        return self._fork(self.program.run, name, heartbeat, hibernates=hibernates)

    def want(self) -> None:
        """Have one ready once nobody was forked for a moment."""
        if self.program.rehearse is not None and not self._ended:
            self._due = Deadline.after(_QUIET_SECONDS)

    def do_due(self) -> None:
        """Fork the one that is to be ready; where it cannot be, the next `want` is for it, too."""
        if self._due is None or self._due.left > 0:
            return
        self._due = None
        if self._ready is None:
            self._settings = self.settings.now
            with suppress(OSError):
                be = partial(_await_name, self.program)
                self._ready = self._fork(be, "", self._memory.make(), hibernates=False)

    def end(self) -> None:
        """End the one that is ready, for good; `reap` tells when it has ended."""
        self._due, self._ended = None, True
        if self._ready is not None:
            self._ready.child.signal(signal.SIGKILL)

    def reap(self) -> None:
        """Forget the one that was ready, if it has ended."""
        if self._ready is not None and self._ready.child.reap() is not None:
            os.close(self._ready.slots)
            self._ready = None

    def pids(self) -> set[int]:
        """Return the pid of the one that is ready."""
        return set() if self._ready is None else {self._ready.child.identity.pid}

    def own_descriptors(self) -> list[int]:
        """Return the descriptors that are shared with it alone."""
        return [] if self._ready is None else [self._ready.child.bell, self._ready.slots]

    def _take(self, name: str) -> Forked | None:
        ready = self._ready
        if ready is None or self._ended:
            return None
        if self._settings is not self.settings.now:
            ready.child.signal(signal.SIGKILL)
            return None
        ready.heartbeat.beat()
        fd = ready.child.bell
        try:
            os.write(fd, b"%b\n" % name.encode())
        except OSError:  # it has been killed, and is reaped in a moment
            return None
        self._ready = None
        return ready

    def _fork(
        self,
        run: Callable[[ChildStart], int],
        name: str,
        heartbeat: Heartbeat,
        *,
        hibernates: bool,
    ) -> Forked:
        self.program.load()  # settings that were read again may want more, or name other secrets
        heartbeat.beat()
        own, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
        with own, theirs:
            own.setblocking(False)
            theirs.setblocking(False)
            start = partial(
                ChildStart,
                name=name,
                slots=theirs.fileno(),
                heartbeat=heartbeat,
                hibernates=hibernates,
            )
            close = (*self.descriptors(), own.fileno())
            child = fork(lambda bell: run(start(bell=bell)), close=close)
            return Forked(child, own.detach(), heartbeat)


def _await_name(program: ChildProgram, start: ChildStart) -> int:
    """Be the process that is ready, then the teammate whose name comes through its bell."""
    if program.rehearse is not None:
        program.rehearse()
    named = select.poll()  # takes descriptors of any number
    named.register(start.bell, select.POLLIN)
    named.poll()
    name, _, _ = os.read(start.bell, _LONGEST_NAME).partition(b"\n")
    if not name:  # the supervisor has gone
        return ChildExit.STOPPED
    return program.run(replace(start, name=name.decode()))
