"""A process of which there is one at a time; before the next there is a pause, which grows."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from teamd.clocks import Deadline
from teamd.errors import TeamError
from teamd.journal import Journal
from teamd.supervisor.children import Children
from teamd.supervisor.fork import Child, fork

TROUBLE_SECONDS: Final = 5.0  # of the machine: a full disk, no processes left
_FIRST_PAUSE_SECONDS: Final = 0.1


@dataclass(slots=True)
class SingleProcess:
    """Forks a process, kills it and reaps it.

    Attributes:
        name: what the log calls it.
        children: the other processes, which keep no descriptor of this.
        longest_pause_seconds: between two that each ended at once.
        closing: whether none is forked any more.
    """

    name: str
    children: Children
    journal: Journal
    longest_pause_seconds: float
    closing: bool = False
    _child: Child | None = None
    _pause_seconds: float = 0.0
    _pause: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    @property
    def runs(self) -> bool:
        """Whether it has begun and was not reaped yet."""
        return self._child is not None

    @property
    def may_begin(self) -> bool:
        """Whether it may be forked now."""
        return not (self.runs or self.closing) and self._pause.left <= 0

    @property
    def pause_seconds(self) -> float:
        """The seconds until it may begin."""
        return self._pause.left

    def fork(self, run: Callable[[], int], *, load: Callable[[], object] | None = None) -> bool:
        """Fork a process that runs this and exits with what it returns.

        Args:
            run: in the process.
            load: what it needs, before the fork, so that the next has it as well.

        Returns:
            Whether that was possible; otherwise it is tried again in a while.
        """
        try:
            if load is not None:
                load()
            self._child = fork(lambda _: run(), close=self.children.descriptors())
        except (OSError, TeamError) as error:
            self.journal.error(f"{self.name} not forked", error)
            self._pause = Deadline.after(TROUBLE_SECONDS)
            return False
        self.children.private.append(self._child.bell)
        self.journal.note(f"{self.name} begins", pid=self._child.identity.pid)
        return True

    def reap(self) -> int | None:
        """Return the exit code if it has ended, `None` otherwise; `rest` comes next."""
        if self._child is None or (code := self._child.reap()) is None:
            return None
        self.journal.note(f"{self.name} ended", code=code, pid=self._child.identity.pid)
        self.children.private.remove(self._child.bell)
        self._child = None
        return code

    def rest(self, *, anew: bool, trouble: bool) -> None:
        """Begin the pause before the next.

        Args:
            anew: whether the one that ended has got somewhere, so that the pause is short again.
            trouble: whether the machine has some.
        """
        doubled = 0.0 if anew else 2 * self._pause_seconds
        self._pause_seconds = min(max(doubled, _FIRST_PAUSE_SECONDS), self.longest_pause_seconds)
        seconds = max(self._pause_seconds, TROUBLE_SECONDS if trouble else 0.0)
        self._pause = Deadline.after(seconds)

    def hurry(self) -> None:
        """End the pause."""
        self._pause = Deadline.after(0.0)

    def kill(self) -> None:
        """Kill it at once."""
        if self._child is not None:
            self._child.signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill it, and fork no more."""
        self.closing = True
        self.kill()

    def pids(self) -> set[int]:
        """Return its pid."""
        return set() if self._child is None else {self._child.identity.pid}
