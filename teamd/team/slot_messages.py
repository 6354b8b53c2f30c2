"""The datagrams between a teammate and its supervisor about slots for model calls.

A teammate asks for one slot at a time, gets the slot's number, reports when the reply begins, and
releases the slot. The socket pair is made before the fork. The supervisor closes its end if the
teammate sends an invalid datagram.
"""

from __future__ import annotations

import math
import socket
import sys
from dataclasses import dataclass
from typing import Final

# With SOCK_DGRAM neither end notices that the other one has closed; only Linux has SOCK_SEQPACKET.
CHANNEL: Final = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
ASK: Final = b"ask"  # followed by the digest of the request's prefix, if the server caches that
BEGUN: Final = b"begun"  # followed by the number of the slot
LONGEST_WORD: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRelease:
    """A slot that is released, and how its call ended.

    Attributes:
        number: as it was granted.
        served: whether there was a reply.
        refused: whether the server accepts no further calls at the moment.
        retry_after_seconds: how long the server asks to wait, if it says so.
    """

    number: int
    served: bool = False
    refused: bool = False
    retry_after_seconds: float | None = None

    def encode(self) -> bytes:
        end = "served" if self.served else "refused" if self.refused else "ended"
        asked = self.retry_after_seconds
        return f"{self.number} {end} {'' if asked is None else asked}".encode()

    @classmethod
    def decode(cls, word: bytes) -> SlotRelease:
        """Read a datagram.

        Raises:
            ValueError: it is not a release.
        """
        number, end, asked = word.decode("ascii").split(" ")
        seconds = float(asked) if asked else None
        if end not in ("served", "refused", "ended") or (seconds and math.isnan(seconds)):
            raise ValueError(f"a call cannot end so: {word!r}")
        return cls(
            number=int(number),
            served=end == "served",
            refused=end == "refused",
            retry_after_seconds=seconds,
        )
