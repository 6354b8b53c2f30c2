"""Kills processes and counts the kills."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import psutil

from teamd.process_id import Identity
from tests.process.campaign.places import Place

_LONGEST_PAUSE_SECONDS: Final = 0.003
_STOP_SECONDS: Final = 2.0


def kill_at(
    who: Callable[[], Identity | None],
    place_of: Callable[[int], Place],
    wanted: Place | None,
    *,
    chance: Random,
    patience_seconds: float,
    comes_back: bool = True,
    along: Callable[[], Identity | None] | None = None,
    between: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True),
) -> Place | None:
    """Kill a process at a place, or at any place if `wanted` is None.

    The process is stopped at random moments, and continued if it is at another place.

    Args:
        who: returns the current process, which may restart meanwhile.
        place_of: returns the place of the stopped process with that pid.
        wanted: the place.
        chance: decides about the moments.
        patience_seconds: the time limit.
        comes_back: whether to keep trying after the process has ended.
        along: returns a process to kill at the same moment; neither sees the other's end.
        between: reports whether the process may be killed now, and keeps that true until all its
            children have ended.

    Returns:
        The place of the kill; `None` if the process did not reach `wanted` in time.
    """
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0, _LONGEST_PAUSE_SECONDS))
        process = who()
        if process is None and not comes_back:
            return None
        if process is None or not _stop(process):
            continue
        place = place_of(process.pid)
        others = [] if along is None else [along()]
        if wanted in (None, place) and all(other is not None and _stop(other) for other in others):
            with between() as may_die:
                if may_die:
                    _kill([*filter(None, others), process])
                    return place
            for other in filter(None, others):
                other.signal(signal.SIGCONT)
        process.signal(signal.SIGCONT)
    return None


def _kill(victims: list[Identity]) -> None:
    """Kill processes, then wait for the end of those children that do not outlive them."""
    under = [one for victim in victims for one in psutil.Process(victim.pid).children()]
    for victim in victims:
        victim.signal(signal.SIGKILL)
    psutil.wait_procs(under, _STOP_SECONDS)


def _stop(process: Identity) -> bool:
    """Stop a process; return whether it has stopped, which happens after its system call."""
    if not process.signal(signal.SIGSTOP):
        return False
    deadline = time.monotonic() + _STOP_SECONDS
    while (state := _state(process.pid)) not in ("T", "Z", "X", ""):
        assert time.monotonic() < deadline, f"{process} does not stop, it is in state {state}"
    return state == "T"


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat[stat.rindex(")") + 2]


Between: TypeAlias = Callable[[], AbstractContextManager[bool]]

_PATIENCE_SECONDS: Final = 3.0


class Killer:
    """Kills processes at places and counts the kills.

    Attributes:
        hits: the number of kills by place.
        killed: the number of kills by kind of process.
        between: see `kill_at`.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.between: Between = lambda: nullcontext(True)
        self.hits: Counter[Place] = Counter()
        self.killed: Counter[str] = Counter()

    def kill(
        self,
        kind: str,
        who: Callable[[], Identity | None],
        place_of: Callable[[int], Place],
        wanted: Place | None,
        **options: Any,
    ) -> bool:
        """Kill a process of a kind, see `kill_at`; return whether it was killed."""
        place = kill_at(
            who,
            place_of,
            wanted,
            chance=self._chance,
            patience_seconds=_PATIENCE_SECONDS,
            between=self.between,
            **options,
        )
        if place is not None:
            self.hits[place] += 1
            self.killed[kind] += 1
        return place is not None
