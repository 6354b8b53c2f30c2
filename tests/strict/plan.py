"""The plan of faults: which request meets which."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tests.strict.asked import Asked
from tests.strict.faults import Fault, Stall


class Plan:
    """The faults to come. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Fault | None] = deque()
        self._rules: list[tuple[Callable[[Asked], bool], deque[Fault]]] = []
        self._stalls: list[Stall] = []
        self._lasting: list[tuple[Callable[[], bool], Fault]] = []

    def push(self, *faults: Fault | None) -> None:
        """Let the next good requests meet these, one each, in order; None spares one."""
        with self._lock:
            self._queue.extend(faults)
            self._watch(*faults)

    def when(self, fits: Callable[[Asked], bool], *faults: Fault) -> None:
        """Let the next requests that fit meet these, one each; asked before the queue is."""
        with self._lock:
            self._rules.append((fits, deque(faults)))
            self._watch(*faults)

    def during(self, holds: Callable[[], bool], fault: Fault) -> None:
        """Let all requests meet this one as long as something holds; asked before the others."""
        with self._lock:
            self._lasting.append((holds, fault))

    @property
    def left(self) -> int:
        """How many faults no request has met yet."""
        with self._lock:
            return len(self._queue) + sum(len(faults) for _, faults in self._rules)

    def take(self, asked: Asked) -> Fault | None:
        """Return the fault that this request meets, and cross it out."""
        with self._lock:
            for holds, fault in self._lasting:
                if holds():
                    return fault
            for fits, faults in self._rules:
                if faults and fits(asked):
                    return faults.popleft()
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """Release whatever stalls, now or later."""
        with self._lock:
            for stall in self._stalls:
                stall.released.set()

    def _watch(self, *faults: Fault | None) -> None:
        self._stalls += [fault for fault in faults if isinstance(fault, Stall)]
