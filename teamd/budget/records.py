"""The records of the ledger: one JSON object a line.

`terms` are the limits in force; `reserve` keeps back the most that a call may take, before it is
made; `settle` says what it took; `refused` that one was not made, and `resumed` that it may be
tried again; `raised` that a person lets a limit go further. `account` and `day` are sums: of one
teammate, and of all on one day.

A call counts on the local day on which it was reserved, and its record names that day: readers in
another time zone, or after a change of the clock, count it there as well.
"""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal

from teamd.budget.account import Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.refusals import Raise
from teamd.budget.uses import DAMAGED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from teamd.budget.accounts import Accounts


_DECODER: Final = json.JSONDecoder(parse_float=Decimal)  # each reads the records of all


def encode(record: dict[str, Any]) -> bytes:
    """Return the line of a record, newline included."""
    return json.dumps(record).encode() + b"\n"


def apply(accounts: Accounts, line: bytes) -> None:
    """Apply a record; what is none, or of a later kind, is passed over."""
    with suppress(*DAMAGED):
        _apply(accounts, _DECODER.decode(line.decode()))


def summarise(accounts: Accounts, *, kept_days: int) -> Iterator[dict[str, Any]]:
    """Yield records that come to the same accounts; of days, to the last ones."""
    yield {"record": "terms", **accounts.terms.encode()}
    for name, account in accounts.used.items():
        yield {"record": "account", "teammate": name, **account.encode()}
    for day, account in sorted(accounts.days.items())[-kept_days:]:
        yield {"record": "day", "day": day, **account.encode()}
    for (limit, of), amount in accounts.raised.items():
        yield {"record": "raised", **Raise(limit=limit, of=of, amount=amount).encode()}
    for kind, kept in (("reserve", accounts.held), ("refused", accounts.refused)):
        yield from ({"record": kind, **other.encode()} for other in kept.values())


def _apply(accounts: Accounts, record: dict[str, Any]) -> None:
    match record.get("record"):
        case "terms":
            accounts.terms = Terms.decode(record)
        case "day":
            accounts.charge_day(str(record["day"]), Account.decode(record))
        case "raised":
            accounts.lift(Raise.decode(record))
        case "reserve":
            accounts.apply(record)
            accounts.refused.pop(str(record["teammate"]), None)
        case "refused":
            refused = Reservation.decode(record)
            accounts.refused[refused.teammate] = refused
        case "resumed":
            del accounts.refused[str(record["teammate"])]
        case _:
            accounts.apply(record)
