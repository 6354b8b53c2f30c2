"""Whether a teammate that has something to do still shows signs of life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from teamd.vitals import Vitals

BEATS: Final = 4  # signs of life in the time that one may be silent: a busy machine swallows some
LONGEST_BEAT_SECONDS: Final = 60.0
# Whoever looks later than this was stopped itself, and maybe with all it watches (a container can
# be frozen): what it finds then proves nothing.
_LATE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """What is made of silence.

    Attributes:
        seconds: how long one may be silent; 0: for ever.
        restart: whether who is silent for longer is killed, and so started again.
    """

    seconds: float
    restart: bool

    @property
    def beat_seconds(self) -> float:
        """How often to show life."""
        return min(self.seconds / BEATS or LONGEST_BEAT_SECONDS, LONGEST_BEAT_SECONDS)


class Vigil:
    """The watch over one process. Moments are those of the clock `awake`."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals
        self._awaited: float | None = None  # it rested, and was rung at that moment
        self._unproven = 0.0  # what was silent until then is excused
        self._looked = 0.0

    def ring(self, now: float) -> None:
        """Expect a sign of life from now on, also of one that rests."""
        if self._awaited is None:
            self._awaited = now

    def due(self, silence: Silence) -> float | None:
        """When its silence will be too long; `None` while it may be silent."""
        heard = self._vitals.heard
        if self._awaited is not None and heard > self._awaited:
            self._awaited = None
        if self._vitals.resting:
            if self._awaited is None:
                return None
            heard = self._awaited
        return max(heard, self._unproven) + silence.seconds if silence.seconds else None

    def silent(self, now: float, silence: Silence) -> bool:
        """Whether its silence is too long."""
        looked, self._looked = self._looked, now
        due = self.due(silence)
        if due is None or now < due:
            return False
        if looked < due < now - _LATE_SECONDS:
            self._unproven = now
            return False
        return True
