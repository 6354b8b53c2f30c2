"""Random network faults in a world, by a seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from tests.hosts.campaign.relay import Wire
from tests.hosts.campaign.world import World


@dataclass(slots=True)
class Weather:
    """Cuts, half-opens and holds wires, one fault after another."""

    world: World
    chance: random.Random
    longest_seconds: float
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._blow)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self._over.set()
        self._thread.join()

    def _blow(self) -> None:
        kinds = [Wire.CUT, Wire.CUT, Wire.CUT, Wire.HALF_OPEN, Wire.HELD, None]
        while not self._over.wait(self.chance.uniform(0.0, self.longest_seconds / 2)):
            kind = self.chance.choice(kinds)
            self.world.happened["broker frozen" if kind is None else kind.name.lower()] += 1
            for _ in self._during(kind):
                self._over.wait(self.chance.uniform(0.2, self.longest_seconds))

    def _during(self, kind: Wire | None) -> Iterator[None]:
        if kind is None:
            self.world.freeze_broker(frozen=True)
            yield
            self.world.freeze_broker(frozen=False)
            return
        hosts = [*self.world.hosts.values()]
        struck = self.chance.sample(hosts, self.chance.choice((1, 1, 2)))
        for host in struck:
            host.relay.turn(kind)
        yield
        for host in struck:
            host.relay.turn(Wire.WHOLE)
