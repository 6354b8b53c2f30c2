"""The server of a model: its address, key, models and usage; the requests are in `teamd.models`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one reply. Its whole input is the sum of input, cache read and cache write.

    Attributes:
        cache_hour_tokens: those of `cache_write_tokens` that the cache keeps for an hour.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_hour_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_input_tokens(self) -> int:
        """All input, whether it came from the cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.total_input_tokens + self.output_tokens
