"""A service on a bad day: each turn of each teammate meets faults of its own before it is played.

What comes depends on the seed, the teammate and the turn alone, not on who asks first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from tests.strict.asked import Asked
from tests.strict.faults import (
    SPOILT,
    Cut,
    ErrorEvent,
    Fault,
    Malformed,
    Reset,
    Stall,
    Status,
    Trickle,
)
from tests.strict.misshapen import MISSHAPEN
from tests.strict.plan import Plan
from tests.strict.replies import Answer, say, use

SPOILT_FILE: Final = "spoilt"  # made by whoever runs half a call
HALF: Final = use(("bash", {"command": f"touch {SPOILT_FILE}"}))
TRACES: Final = (SPOILT.text, SPOILT_FILE)
TURNS_A_WAKE: Final = 4
_MOST_IN_A_ROW: Final = 4
_TOO_LONG: Final = "4000000"  # seconds, 46 days: no service means that
_DATE: Final = "Wed, 21 Oct 2099 07:28:00 GMT"
_STREAMS: Final = (Cut, Malformed, ErrorEvent, Reset)
_MAKERS: Final[tuple[Callable[[], Fault], ...]] = (
    *(lambda s=status: Status(s) for status in (408, 409, 429, 500, 503, 504, 529)),
    *(
        lambda a=asked: Status(429, retry_after=a)
        for asked in (0.01, 0, "-5", "soon", "nan", "1e999", _TOO_LONG, "", _DATE)
    ),
    lambda: Status(529, retry_after=_TOO_LONG),
    lambda: Status(502, html=True),
    lambda: Status(503, html=True, retry_after=_DATE),
    Reset,
    Stall,
    lambda: Stall(after=4),
    lambda: Stall(after=6, answer=HALF),
    lambda: ErrorEvent(type="api_error"),
    *(lambda k=kind, a=after: k(after=a) for kind in _STREAMS for after in (0, 1, 4)),
    *(lambda k=kind: k(after=6, answer=HALF) for kind in _STREAMS),
    *(lambda f=fault: f for fault in MISSHAPEN),
)


class Weather(Plan):
    """The faults that each turn meets; a turn that was lost on its way is served again.

    Attributes:
        struck: how often each kind did.
    """

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._seed = seed
        self._coming: dict[tuple[str, int], list[Fault]] = {}
        self.struck: Counter[str] = Counter()

    def take(self, asked: Asked) -> Fault | None:
        """Return the fault that this request meets."""
        with self._lock:
            turn = asked.name, turn_of(asked)
            if turn not in self._coming:
                self._coming[turn] = self._forecast(*turn)
                self._watch(*self._coming[turn])
            coming = self._coming[turn]
            fault = coming.pop(0) if coming else None
            if fault is not None:
                self.struck[type(fault).__name__] += 1
            return fault

    @property
    def left(self) -> int:
        """How many of those that were drawn no request has met."""
        with self._lock:
            return sum(map(len, self._coming.values()))

    def _forecast(self, name: str, turn: int) -> list[Fault]:
        chance = Random(f"{self._seed} {name} {turn}")
        faults: list[Fault] = []
        for _ in range(chance.randrange(_MOST_IN_A_ROW + 1)):
            faults.append(chance.choice(_MAKERS)())
            if isinstance(faults[-1], Cut | Malformed):  # two of these in a row are a pause
                faults.append(Status(503))
        return [*faults, Trickle()] if chance.random() < 0.2 else faults


def turn_of(asked: Asked) -> int:
    """Which of a teammate's turns is asked for, counted from 0."""
    return sum(turn.role == "assistant" for turn in asked.turns)


def words(name: str, turn: int) -> str:
    """What a teammate says in a turn, and in no other."""
    return f"{name} has come to turn {turn}."


def play(asked: Asked) -> Answer:
    """A wake: a command, a mail to the lead, both at once, and the end."""
    name, turn = asked.name, turn_of(asked)
    mark = f"{name}-{turn}"
    bash = ("bash", {"command": f"echo {mark} >> done"})
    send = ("send_message", {"to": "lead", "content": mark})
    calls = ((bash,), (send,), (bash, send), ())[turn % TURNS_A_WAKE]
    return say(words(name, turn), calls=calls)
