"""Plays for a model that wakes when it wants: a line is said when what it answers has come."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable

from tests.strict.asked import Asked, Model
from tests.strict.replies import Answer, say

Line = tuple[str, Answer | Callable[[re.Match[str]], Answer]]


def told(*lines: Line) -> Model:
    """Return a model that says its lines in their order, each once.

    Args:
        lines: a pattern and what is answered as soon as the conversation holds it; a function
            is given the last place that does. Whoever waits for its next line ends its turn.
    """
    left = deque(lines)
    lock = threading.Lock()

    def answer(asked: Asked) -> Answer:
        with lock:
            found = [*re.finditer(left[0][0], asked.heard)] if left else []
            if not found:
                return say("I wait.")
            _, line = left.popleft()
        return line if isinstance(line, Answer) else line(found[-1])

    return answer
