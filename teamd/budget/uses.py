"""What each teammate has used: all of the ledger that those need who only show it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from teamd.budget.account import NOTHING, Account, Reservation
from teamd.files import files
from teamd.process_id import Identity

# What a line may cause that is no record, or one of a later kind.
DAMAGED: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


@dataclass(slots=True)
class Uses:
    """What was used by calls, and what is kept back for those under way.

    Attributes:
        used: by each teammate, in all time.
        held: calls under way, by their ids.
    """

    used: dict[str, Account] = field(default_factory=dict)
    held: dict[str, Reservation] = field(default_factory=dict)

    def charge(self, name: str, account: Account) -> None:
        """Add to what a teammate has used."""
        self.used[name] = self.used.get(name, NOTHING) + account

    def close(self, reservation: Reservation, account: Account) -> None:
        """Put what a call has taken in the place of what was kept back for it."""
        del self.held[reservation.id]
        self.charge(reservation.teammate, account)

    def orphans(self, is_alive: Callable[[Identity], bool]) -> list[Reservation]:
        """Reservations of processes that are gone."""
        return [kept for kept in self.held.values() if not is_alive(kept.process)]

    def apply(self, record: Mapping[str, Any]) -> None:
        """Apply a record of the ledger, if it is about use."""
        match record.get("record"):
            case "account":
                self.charge(str(record["teammate"]), Account.decode(record))
            case "reserve":
                reservation = Reservation.decode(record)
                self.held[reservation.id] = reservation
            case "settle":
                self.close(self.held[str(record["id"])], Account.decode(record))


def read_used(
    path: Path, is_alive: Callable[[Identity], bool] = attrgetter("alive")
) -> dict[str, Account]:
    """Return what each teammate has used; calls of dead processes count in full.

    Raises:
        StoreError: it cannot be read.
    """
    uses = Uses()
    for line in (files.read(path) or b"").split(b"\n"):
        with suppress(*DAMAGED):
            uses.apply(json.loads(line))
    for kept in uses.orphans(is_alive):
        uses.close(kept, kept.in_full())
    return uses.used
