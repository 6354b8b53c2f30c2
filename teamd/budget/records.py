"""The records of the ledger: one JSON object per line.

`terms`: the limits in force. `reserve`: the most that a call may use, before it is made. `settle`:
its use. `refused`: a call was not made. `resumed`: it may be tried again. `raised`: a person has
raised a limit. `account` and `day`: the sums of one teammate, and of the whole team on one day.

A call counts for the local day on which it was reserved. The record contains that day, so that
readers in another time zone, or after a change of the clock, agree.
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
_STRAY_NEWLINE: Final = re.compile(rb"\n(?:(?<!}\n)|(?!{|\Z))")  # not between objects


def encode(record: dict[str, Any]) -> bytes:
    """Return the line of a record, including its newline."""
    return json.dumps(record).encode() + b"\n"


def apply(accounts: Accounts, lines: bytes) -> None:
    """Apply the records of whole lines; damaged lines and later kinds are skipped."""
    if not lines:
        return
    if _MODULE not in sys.modules:
        _apply_each(accounts, lines)
    elif (calls := _parse_calls(lines)) is not None:
        accounts.apply_calls(calls)
    elif middle := lines.rfind(b"\n", 0, len(lines) // 2) + 1 or lines.find(b"\n", 0, -1) + 1:
        apply(accounts, lines[:middle])  # isolates a record of another kind
        apply(accounts, lines[middle:])
    else:
        _apply_each(accounts, lines)


@cache
def load_decoder() -> Callable[[bytes], list[Any]]:
    """Load a decoder for many records of calls at once, ten times as fast as one by one.

    Each teammate reads the records of all others, and nearly all of them are about calls.
    """
    import msgspec  # noqa: PLC0415 -- short commands do not need it

    count = Annotated[int, msgspec.Meta(ge=0)]
    texts = [(name, str) for name in ("id", "teammate", "model")]
    whose = [("pid", int), ("started", float)]
    most = [("input_tokens", count), ("output_tokens", count), ("usd", Decimal | None)]
    taken = [*((name, count, 0) for name in COUNTS), ("usd", Decimal, Decimal(0))]
    kinds: dict[str, list[Any]] = {
        "reserve": [*texts, *whose, *most, ("day", str, "")],
        "settle": [("id", str), *taken],
        "account": [("teammate", str), *taken],
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
    """Return the records of whole lines; `None` if one is of another kind or damaged.

    The decoder does not check that the text of unknown keys is UTF-8; our records are ASCII.
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
    """Return whether each line of a block holds exactly one of its `count` objects.

    JSON escapes newlines in text, so a newline between two objects separates them.
    """
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    return lines == count and not _STRAY_NEWLINE.search(block)


def _apply_each(accounts: Accounts, lines: bytes) -> None:
    for line in lines.split(b"\n"):
        with suppress(*DAMAGED):
            _apply(accounts, _DECODER.decode(line.decode()))


def summarise(accounts: Accounts, *, kept_days: int) -> Iterator[dict[str, Any]]:
    """Yield records that lead to the same accounts, with the last `kept_days` days."""
    yield {"record": "terms", **accounts.terms.encode()}
    for day, account in sorted(accounts.days.items())[-kept_days:]:
        yield {"record": "day", "day": day, **account.encode()}
    for (limit, of), amount in accounts.raised.items():
        yield {"record": "raised", **Raise(limit=limit, of=of, amount=amount).encode()}
    for name, account in accounts.used.items():
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
