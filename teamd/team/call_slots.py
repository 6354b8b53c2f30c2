"""The words between a teammate and its supervisor about slots for model calls.

A teammate asks for one slot at a time, is granted one under a number, says when the reply begins,
and gives the slot back. One that rests may be offered a slot with the bell that wakes it, for a
request like its last; that is another word, since a question may be on its way. Each word is one
datagram of a socket pair that is made before the fork.
Its end says that no more is granted: the teammate has written what no word is.
"""

from __future__ import annotations

import math
import socket
import sys
from dataclasses import dataclass
from typing import Final

# Of plain datagrams nobody sees that the other end has closed; only Linux has the better ones.
CHANNEL: Final = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
ASK: Final = b"ask"  # and the digest of what the request begins with, where that is cached
BEGUN: Final = b"begun"  # and the number of the slot
OFFER: Final = b"offer"  # the same; a grant that was asked for is the number alone
LONGEST_WORD: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRelease:
    """A slot that is given back, and what its call met.

    Attributes:
        number: as it was granted.
        served: whether there was a reply.
        refused: whether the server takes no more calls at the moment.
        retry_after_seconds: how long it asks to wait then, if it does.
    """

    number: int
    served: bool = False
    refused: bool = False
    retry_after_seconds: float | None = None

    def encode(self) -> bytes:
        """Return the word for it."""
        met = "served" if self.served else "refused" if self.refused else "ended"
        asked = self.retry_after_seconds
        return f"{self.number} {met} {'' if asked is None else asked}".encode()

    @classmethod
    def decode(cls, word: bytes) -> SlotRelease:
        """Read such a word.

        Raises:
            ValueError: it is none.
        """
        number, met, asked = word.decode("ascii").split(" ")
        seconds = float(asked) if asked else None
        if met not in ("served", "refused", "ended") or (seconds and math.isnan(seconds)):
            raise ValueError(f"no such end of a call: {word!r}")
        return cls(
            number=int(number),
            served=met == "served",
            refused=met == "refused",
            retry_after_seconds=seconds,
        )
