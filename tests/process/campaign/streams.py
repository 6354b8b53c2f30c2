"""The streams of the server's answers: each takes a while, and it is known whose is open."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from tests.strict.asked import Asked
from tests.strict.exchange import Exchange
from tests.strict.faults import Fault
from tests.strict.plan import Plan
from tests.strict.wire import Wire

_PAUSE_SECONDS: Final = 0.003  # between two events of a stream


class Streams(Plan):
    """Lets every answer drip, and knows which stream has begun and not ended."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, _Drip] = {}
        self._guard = threading.Lock()

    def take(self, asked: Asked) -> Fault | None:
        """No fault, but a slow answer."""
        return super().take(asked) or _Drip(self, asked.name)

    def open_for(self, name: str) -> bool:
        """Whether a teammate is in the middle of an answer."""
        with self._guard:
            return name in self._open

    def begin(self, drip: _Drip) -> None:
        """An answer has begun."""
        with self._guard:
            self._open[drip.name] = drip

    def end(self, drip: _Drip) -> None:
        """An answer has ended, or its reader has gone; a later one of the name stays open."""
        with self._guard:
            if self._open.get(drip.name) is drip:
                del self._open[drip.name]

    def forget(self, name: str) -> None:
        """A teammate was killed: what is still sent to it nobody reads."""
        with self._guard:
            self._open.pop(name, None)


@dataclass(frozen=True, eq=False)
class _Drip:
    streams: Streams
    name: str

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send the model's own answer, an event at a time."""
        events = exchange.events()
        wire.start()
        try:
            for data in events:
                wire.send(data)
                self.streams.begin(self)
                time.sleep(_PAUSE_SECONDS)
        finally:
            self.streams.end(self)
        wire.finish()
