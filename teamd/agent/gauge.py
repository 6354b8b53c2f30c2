"""How full a context is: what the server counted last, and an estimate of what came since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BYTES_PER_TOKEN: Final = 4  # of English text; what the server counts corrects it each time


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much a model takes, and from which share of it on room is made.

    Attributes:
        context_tokens: what the model takes.
        clear_at: the share from which old results of tools are cleared.
        compact_at: the share from which a summary is made.
    """

    context_tokens: int = 200_000
    clear_at: float = 0.6
    compact_at: float = 0.8


@dataclass(slots=True)
class Gauge:
    """What the last reply told.

    Attributes:
        measured: the tokens of its request and of itself, as the server counted them.
    """

    measured: int = 0
    _bytes: int = 0

    def measure(self, tokens: int, size: int) -> None:
        """Take note that so many tokens were counted when the messages had so many bytes."""
        self.measured = tokens
        self._bytes = size

    def tokens(self, size: int, fixed: int) -> int:
        """Estimate the tokens of the next request.

        Args:
            size: bytes of its messages.
            fixed: bytes of its system prompt and tools, which a measured figure holds already.
        """
        whole = (size + fixed) // BYTES_PER_TOKEN
        if not self.measured:
            return whole  # nothing was asked yet, or the server does not count
        return max(self.measured + (size - self._bytes) // BYTES_PER_TOKEN, 0)
