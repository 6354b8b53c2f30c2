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
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Final

from teamd.budget.account import COUNTS, Account, Reservation, is_money
from teamd.budget.accounts import DAMAGED, Accounts, Terms
from teamd.budget.refusals import Raise

_DECODER: Final = json.JSONDecoder(parse_float=Decimal)
_MODULE: Final = "msgspec"
_STRAY_NEWLINE: Final = re.compile(rb"\n(?:(?<!}\n)|(?!{|\Z))")  # not between two objects


def encode(record: dict[str, Any]) -> bytes:
    """Return the line of a record, newline included."""
    return json.dumps(record).encode() + b"\n"


def apply(accounts: Accounts, lines: bytes) -> None:
    """Apply the records of whole lines; what is none, or of a later kind, is passed over."""
    if not lines:
        return
    if _MODULE not in sys.modules:
        _apply_each(accounts, lines)
    elif (calls := _parse_calls(lines)) is not None:
        accounts.apply_calls(calls)
    elif middle := lines.rfind(b"\n", 0, len(lines) // 2) + 1 or lines.find(b"\n", 0, -1) + 1:
        apply(accounts, lines[:middle])  # only what stands around another record is read twice
        apply(accounts, lines[middle:])
    else:
        _apply_each(accounts, lines)


@cache
def load_decoder() -> Callable[[bytes], list[Any]]:
    """Load what decodes the records of calls, and no others, many at a time.

    Each teammate reads the records of all, and nearly all are these.
    """
    import msgspec  # noqa: PLC0415 -- longer to load than all that a short command needs

    count = Annotated[int, msgspec.Meta(ge=0)]
    texts = [(name, str) for name in ("id", "teammate", "model")]
    whose = [("pid", int), ("started", float)]
    most = [("input_tokens", count), ("output_tokens", count), ("usd", Decimal | None)]
    taken = [*((name, count, 0) for name in COUNTS), ("usd", Decimal, Decimal(0))]
    kinds: dict[str, list[Any]] = {
        "reserve": [*texts, *whose, *most, ("day", str, "")],
        "settle": [("id", str), *taken],
        "account": [("teammate", str), *taken],  # of many days
    }
    more: dict[str, dict[str, Any]] = {
        "reserve": {"tokens": Reservation.tokens},
        "settle": {},
        "account": {"day": ""},
    }
    structs = [
        msgspec.defstruct(
            kind.title(),
            fields,
            namespace={"kind": kind, **more[kind]},
            tag_field="record",
            tag=kind,
            gc=False,
        )
        for kind, fields in kinds.items()
    ]
    return msgspec.json.Decoder(reduce(or_, structs)).decode_lines


def _parse_calls(lines: bytes) -> list[Any] | None:
    """Return the records of whole lines; `None` where one is of another kind, or is damaged.

    A text that it passes over the decoder takes as it comes, be it UTF-8 or not; ours are ASCII.
    """
    if not lines.isascii():
        return None
    try:
        found = load_decoder()(lines)
    except (ValueError, RecursionError):
        return None
    sound = all(one.usd is None or is_money(one.usd) for one in found)
    return found if sound and _holds_one_a_line(lines, len(found)) else None


def _holds_one_a_line(block: bytes, count: int) -> bool:
    """Return whether each line of a block holds one of the `count` objects that it has.

    JSON text escapes newlines, so a newline between two objects separates them.
    """
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    return lines == count and not _STRAY_NEWLINE.search(block)


def _apply_each(accounts: Accounts, lines: bytes) -> None:
    for line in lines.split(b"\n"):
        with suppress(*DAMAGED):
            _apply(accounts, _DECODER.decode(line.decode()))


def summarise(accounts: Accounts, *, kept_days: int) -> Iterator[dict[str, Any]]:
    """Yield records that come to the same accounts; of days, to the last ones."""
    yield {"record": "terms", **accounts.terms.encode()}
    for day, account in sorted(accounts.days.items())[-kept_days:]:
        yield {"record": "day", "day": day, **account.encode()}
    for (limit, of), amount in accounts.raised.items():
        yield {"record": "raised", **Raise(limit=limit, of=of, amount=amount).encode()}
    for name, account in accounts.used.items():  # from here on nearly all are read in one go
        yield {"record": "account", "teammate": name, **account.encode()}
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
        case "refused":
            refused = Reservation.decode(record)
            accounts.refused[refused.teammate] = refused
        case "resumed":
            del accounts.refused[str(record["teammate"])]
        case "account" | "reserve" | "settle":
            accounts.apply(record)
