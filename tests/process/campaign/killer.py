"""Who kills, and keeps count of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any, Final, TypeAlias

from teamd.process_id import Identity
from tests.process.campaign.places import Place
from tests.process.campaign.target import kill_at

Between: TypeAlias = Callable[[], AbstractContextManager[bool]]

_PATIENCE_SECONDS: Final = 3.0


class Killer:
    """Kills at places, and counts where it did.

    Attributes:
        hits: the kills by place.
        killed: the kills by whom they hit.
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
