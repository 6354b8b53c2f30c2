"""What of requests is in the server's prompt cache, so that one writes it and the others read it.

A prefix can be read from the cache once the first response that begins with it has begun. Requests
that leave before that pay for writing the same once more. Source: the API's documentation, "Prompt
caching", on concurrent requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from teamd.clocks import Deadline

KEPT_SECONDS: Final = 300.0  # by the server, since the last use
# A server that takes so long to begin is not waited for: money is not worth any time.
LONGEST_WAIT_SECONDS: Final = 10.0


@dataclass(slots=True)
class Warmth:
    """The prefixes that are in the cache, and those that a call under way puts there."""

    _warm: dict[str, Deadline] = field(default_factory=dict)
    _warming: dict[str, tuple[int, Deadline]] = field(default_factory=dict)
    _calls: dict[int, str] = field(default_factory=dict)

    def cold_seconds(self, prefix: str) -> float:
        """Return how long a request with this prefix should wait for another; 0 for not at all."""
        if prefix not in self._warming or self._is_warm(prefix):
            return 0.0
        return max(0.0, self._warming[prefix][1].left)

    def granted(self, number: int, prefix: str) -> None:
        """Take note of a call that may leave now."""
        if prefix:
            self._calls[number] = prefix
            if not self._is_warm(prefix) and prefix not in self._warming:
                self._warming[prefix] = number, Deadline.after(LONGEST_WAIT_SECONDS)

    def begun(self, number: int) -> None:
        """Take note that a reply begins."""
        if prefix := self._calls.get(number):
            self._warm[prefix] = Deadline.after(KEPT_SECONDS)
            self._warming.pop(prefix, None)

    def ended(self, number: int) -> None:
        """Take note that a call is over, begun or not."""
        prefix = self._calls.pop(number, "")
        if self._warming.get(prefix, (None, None))[0] == number:
            del self._warming[prefix]

    def _is_warm(self, prefix: str) -> bool:
        return prefix in self._warm and self._warm[prefix].left > 0
