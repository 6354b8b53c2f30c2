"""A poison message, which crashes its reader again and again: it is found, and rejected.

What is known of a batch's readers stands with its position, in the header of the taken file. They
end for many reasons: most of them are outside, and no message's fault. So what two of them ended
with in hand, in whatever way, is only delivered singly from then on. Whoever reaps a process knows
whether it crashed by itself, and says so (`Mailbox.blame`): two such crashes with one and the same
message alone in hand convict it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

_WIDTHS: Final = {"at": 15, "tries": 3, "singly": 15, "holder": 10, "crashes": 3, "rejected": 15}
_HEADER: Final = re.compile(
    (
        r'{"batch": "([\w.-]*)"'
        + "".join(rf', "{key}": "(\d{{{width}}})"' for key, width in _WIDTHS.items())
        + r'(?:, "inbox": "(\d{15}):([0-9a-f]{32})")?}\n'
    ).encode()
)
_WRITTEN: Final = "".join(f', "{key}": "%0{width}d"' for key, width in _WIDTHS.items())
_MOST: Final = tuple(10**width - 1 for width in _WIDTHS.values())
_LENGTH: Final = len(_WRITTEN % _MOST)
_figures: Final = attrgetter(*_WIDTHS)
_SINGLY_AFTER: Final = 2  # readers that ended, in whatever way, with the same delivery in hand
_CONVICTED_AFTER: Final = 2  # readers that crashed by themselves with this one message in hand


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position where a batch's next delivery begins, and what is known of it.

    Attributes:
        at: an offset into the file, or into the inbox, where the batch is still in that.
        tries: how many readers have ended with this delivery in hand.
        singly: messages up to this offset are delivered one at a time.
        holder: the process that has, or had, the delivery in hand; 0 for none so far.
        crashes: how many processes crashed by themselves with one such message in hand.
        rejected: how long the file of rejected lines was before this delivery; 0 in an inbox, where
            none is rejected before the batch is set aside.
        end: where a batch ends that is still in the inbox; 0 for one that is not.
        content: the digest of an inbox up to there.
    """

    batch: str
    at: int
    tries: int = 0
    singly: int = 0
    holder: int = 0
    crashes: int = 0
    rejected: int = 0
    end: int = 0
    content: str = ""

    @property
    def in_inbox(self) -> bool:
        """Return whether the inbox holds the batch, of which nothing else is written down."""
        return self.end > 0

    @property
    def alone(self) -> bool:
        """Return whether the next message is delivered without others."""
        return self.at < self.singly

    @property
    def verdict(self) -> str | None:
        """Why the next message is rejected, if it is."""
        if not self.alone or self.crashes < _CONVICTED_AFTER:
            return None
        return f"{self.crashes} processes crashed with this message in hand"

    def handed_over(self, whole: Callable[[], int]) -> Position:
        """Count the readers that ended with this delivery in hand; note that this one has it now.

        Args:
            whole: returns where the delivery ends.
        """
        tries = self.tries + 1 if self.holder else self.tries
        taken = replace(self, tries=tries, holder=os.getpid())
        if tries < _SINGLY_AFTER or self.alone:
            return taken
        # From now on a crash tells which message it was: those before do not.
        return replace(taken, singly=whole(), crashes=0)

    def advanced(self, end: int, *, rejected: int) -> Position:
        """Return the position behind a delivery that stands where it belongs."""
        return replace(self, at=end, rejected=rejected, tries=0, holder=0, crashes=0)

    def header(self) -> bytes:
        """The file's first line."""
        figures = _WRITTEN % _figures(self)
        if len(figures) != _LENGTH:
            figures = _WRITTEN % tuple(map(min, _figures(self), _MOST))
        inbox = f', "inbox": "{self.end:015}:{self.content}"' if self.in_inbox else ""
        return f'{{"batch": "{self.batch}"{figures}{inbox}}}\n'.encode()

    @classmethod
    def decode(cls, header: bytes) -> Position | None:
        """Read the file's first line; `None` where it is damaged."""
        found = _HEADER.fullmatch(header)
        if found is None:
            return None
        batch, *numbers, end, content = found.groups(b"")
        figures = dict(zip(_WIDTHS, map(int, numbers), strict=True))
        return cls(batch=batch.decode(), **figures, end=int(end or 0), content=content.decode())


def first_position(batch: str, *, rejected: int = 0) -> Position:
    """The position of a batch of which nothing has been delivered."""
    return Position(batch=batch, at=len(Position(batch=batch, at=0).header()), rejected=rejected)
