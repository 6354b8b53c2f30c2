"""Kills processes at chosen places, and counts the kills."""

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
    """Kill a process at a place, or at any place if `place` is not given.

    It is stopped at random moments and goes on where the place is another one.

    Args:
        who: the process as it is now; it may be started again meanwhile.
        place_of: where the stopped process of that pid is.
        wanted: the place.
        chance: decides about the moments.
        patience_seconds: how long to try.
        comes_back: whether to go on trying when it has ended.
        along: who is to be killed at the same moment; neither sees the other's end.
        between: says whether it may be killed just now, and keeps that so until all under it have
            ended.

    Returns:
        Where it was killed; `None` if it did not come to the place in time.
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
    """Kill processes, and wait until those have ended that do not outlive them."""
    under = [one for victim in victims for one in psutil.Process(victim.pid).children()]
    for victim in victims:
        victim.signal(signal.SIGKILL)
    psutil.wait_procs(under, _STOP_SECONDS)


def _stop(process: Identity) -> bool:
    """Stop a process; return whether it has stopped, which waits for its system call."""
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
    """Kills at places, and counts where it did.

    Attributes:
        hits: the kills by place.
        killed: the kills by process.
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
        """Kill one of a kind, see `kill_at`; whether it came to the place."""
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
