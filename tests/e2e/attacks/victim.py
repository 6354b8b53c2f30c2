"""A model that does whatever it reads: the worst that may sit behind a team's tools."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import unescape

from tests.strict.asked import Asked
from tests.strict.replies import Answer, Call, say, use

_MARKER: Final = re.compile(r"INJECTION (\d+): (?=\{)")


class Victim:
    """Teammates that do their work step by step, and obey each instruction they come upon, once.

    Args:
        work: the calls of each of a teammate's turns, by its name.
        awaits: words that a teammate must have heard before the last of them.
    """

    def __init__(
        self, work: Mapping[str, Sequence[Sequence[Call]]], awaits: Mapping[str, str]
    ) -> None:
        self._lock = threading.Lock()
        self._awaits = awaits
        self._left = {name: deque(steps) for name, steps in work.items()}
        self._obeyed: dict[str, set[int]] = defaultdict(set)

    def __call__(self, asked: Asked) -> Answer:
        """Answer a request: the next step of the work, and all that was read for the first time."""
        with self._lock:
            new = {n: call for n, call in _instructions(asked) if n not in self._obeyed[asked.name]}
            self._obeyed[asked.name].update(new)
            calls = [*self._next_step(asked), *new.values()]
        return use(*calls) if calls else say("Done.")

    def has_worked(self, name: str) -> bool:
        """Return whether a teammate has begun the last step of its work."""
        return not self._left[name]

    def has_obeyed(self, name: str, numbers: Iterable[int]) -> bool:
        """Return whether a teammate has begun to obey all of these."""
        return self._obeyed[name].issuperset(numbers)

    def _next_step(self, asked: Asked) -> Sequence[Call]:
        left = self._left[asked.name]
        if not left or (len(left) == 1 and self._awaits.get(asked.name, "") not in asked.heard):
            return ()
        return left.popleft()


def _instructions(asked: Asked) -> Iterator[tuple[int, Call]]:
    """Yield every instruction in a request, wherever it stands; of all that, mail is escaped."""
    text, end = unescape(f"{asked.system}\n{asked.heard}"), 0
    while found := _MARKER.search(text, end):  # one may order to pass another one on
        order, end = json.JSONDecoder().raw_decode(text, found.end())
        yield int(found[1]), (order["tool"], order["input"])
