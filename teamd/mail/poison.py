"""Which message may have ended its readers, and when that is certain.

Readers end for many reasons: most of them are outside, and no message's fault. So what two of them
ended with in hand, in whatever way, is only delivered singly from then on. Whoever reaps a process
knows whether it crashed by itself, and says so (`Mailbox.blame`): two such crashes with one and
the same message alone in hand convict it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from teamd.mail.spool import BatchLimit, Position, Spool

_SINGLY_AFTER: Final = 2  # readers that ended, in whatever way, with the same delivery in hand
_CONVICTED_AFTER: Final = 2  # readers that crashed by themselves with this one message in hand


def note_reader(spool: Spool, position: Position, limit: BatchLimit) -> Position:
    """Count the readers that ended with this delivery in hand, and write down who has it now."""
    if position.holder:
        position = replace(position, tries=position.tries + 1)
    if position.tries >= _SINGLY_AFTER and not is_alone(position):
        whole = spool.find(position, limit)
        # From now on a crash tells which message it was: those before do not.
        position = replace(position, singly=whole.end, crashes=0)
    position = replace(position, holder=os.getpid())
    spool.move(position)
    return position


def is_alone(position: Position) -> bool:
    """Whether the next message is delivered without others."""
    return position.at < position.singly


def verdict(position: Position) -> str | None:
    """Why the next message is rejected, if it is."""
    if not is_alone(position) or position.crashes < _CONVICTED_AFTER:
        return None
    return f"{position.crashes} processes crashed with this message in hand"
