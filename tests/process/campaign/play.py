"""What the teammates' model does in a campaign: commands, mail to each other, ends of turns."""

from __future__ import annotations

import random
import threading
from typing import Final

from tests.strict.asked import Asked
from tests.strict.replies import Answer, Call, say, use

RUNAWAY: Final = ["sleep", "1000"]  # gets away from the process group of its command
_LONG: Final = f"setsid {' '.join(RUNAWAY)} & sleep 60"


class Play:
    """A model that is never done, until it is told to be quiet.

    Attributes:
        quiet: whether it has been told so.
        long_for: whose commands are long ones, with a child that gets away.

    Args:
        names: the teammates.
        chance: what it decides by.
        rests: how often, of 1, it ends its turn instead of doing something.
    """

    def __init__(self, names: tuple[str, ...], chance: random.Random, rests: float = 0.2) -> None:
        self._names = names
        self._chance = chance
        self._rests = rests
        self._count = 0
        self._lock = threading.Lock()
        self.quiet = False
        self.long_for: str | None = None

    def __call__(self, asked: Asked) -> Answer:
        """Answer one request."""
        with self._lock:
            if self.quiet:
                return say("That is all for now.")
            if asked.name == self.long_for:
                return use(("bash", {"command": _LONG}))
            if self._chance.random() < self._rests:
                return say("That is all for now.")
            return use(*(self._call(asked.name) for _ in range(self._chance.choice((1, 1, 2, 3)))))

    def _call(self, name: str) -> Call:
        self._count += 1
        if self._chance.random() < 0.4:
            seconds = self._chance.choice(("0.01", "0.02", "0.05"))
            unlike = f"# {self._count}"  # a call that is repeated is answered as an error
            return "bash", {"command": f"echo begun; sleep {seconds}; echo done {unlike}"}
        to = self._chance.choice([other for other in (*self._names, "lead") if other != name])
        return "send_message", {"to": to, "content": f"tool-{name}-{self._count}"}
