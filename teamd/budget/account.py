"""The usage of finished calls, and the reservations of calls under way; no file access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, Final

from teamd.model_server import Usage
from teamd.process_id import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The usage of one teammate or of the whole team.

    Attributes:
        input_tokens: all input tokens, including those read from and written to the cache.
        usd: the exact cost of the calls with a known price; a plain 0 without such calls.
        assumed_calls: calls whose reply broke off: the output, and the input unless the server
            reported it, count as the most that the request allowed.
        unpriced_calls: calls of a model without a known price.
    """

    calls: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    assumed_calls: int = 0
    unpriced_calls: int = 0
    usd: Decimal | int = 0

    @classmethod
    def of_call(cls, usage: Usage, usd: Decimal | None) -> Account:
        """Return the usage of one call; its cost is `None` if the price is unknown."""
        return cls(
            calls=1,
            input_tokens=usage.total_input_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            unpriced_calls=int(usd is None),
            usd=usd or 0,
        )

    @property
    def tokens(self) -> int:
        """The tokens that limits count."""
        return self.input_tokens + self.output_tokens

    @property
    def known_usd(self) -> float | None:
        """The cost of the calls with a known price; `None` if there are only others."""
        return None if self.unpriced_calls and not self.usd else float(self.usd)

    def __add__(self, other: Account) -> Account:
        return Account(
            **{key: getattr(self, key) + getattr(other, key) for key in (*COUNTS, "usd")}
        )

    def encode(self) -> dict[str, Any]:
        """Return the account as the ledger stores it."""
        usd = float(min(self.usd, _MOST_MONEY))  # a sum may exceed what `exactly` accepts
        return {**{key: getattr(self, key) for key in COUNTS}, "usd": usd}

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Account:
        """Read an account; a missing figure is 0."""
        counts = {key: _count(record.get(key, 0)) for key in COUNTS}
        return cls(**counts, usd=exactly(record.get("usd", 0)))


_MOST_MONEY: Final = 10**15
NOTHING: Final = Account()
COUNTS: Final = tuple(one.name for one in fields(Account) if one.name != "usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The most that a call may use, reserved while it is under way.

    Attributes:
        process: the process that makes the call; if it has died, the call's usage stays unknown.
        usd: `None` if the model's price is unknown.
        day: the local day that the call counts for; the ledger sets it. For a refused call it is
            the day or month whose limit refused it, empty for a limit without a period.
    """

    id: str
    teammate: str
    process: Identity
    model: str
    input_tokens: int
    output_tokens: int
    usd: Decimal | None
    day: str = ""

    @property
    def tokens(self) -> int:
        """The tokens that limits count."""
        return self.input_tokens + self.output_tokens

    def in_full(self) -> Account:
        """Return the whole reservation as if it was used."""
        usage = Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        return replace(Account.of_call(usage, self.usd), assumed_calls=1)

    def encode(self) -> dict[str, Any]:
        """Return the reservation as the ledger stores it."""
        return {
            "id": self.id,
            "teammate": self.teammate,
            "model": self.model,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "usd": None if self.usd is None else float(self.usd),
            "day": self.day,
            "pid": self.process.pid,
            "started": self.process.started,
        }

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Reservation:
        values: dict[str, Any] = {key: str(record[key]) for key in ("id", "teammate", "model")}
        values |= {key: _count(record[key]) for key in ("input_tokens", "output_tokens")}
        process = Identity(pid=int(record["pid"]), started=float(record["started"]))
        usd = None if record["usd"] is None else exactly(record["usd"])
        return cls(**values, process=process, usd=usd, day=str(record.get("day", "")))


def _count(value: Any) -> int:
    count = int(value)
    if count < 0:
        raise ValueError(f"{value} is not a count")
    return count


def exactly(amount: Any) -> Decimal:
    """Read a sum of money.

    Raises:
        ValueError: it is not a valid amount. NaN and infinity would corrupt every sum; a negative
            amount would cancel out the usage of others.
        ArithmeticError: it is not a number.
    """
    exact = Decimal(str(amount) if isinstance(amount, float) else amount)
    if not (exact.is_finite() and 0 <= exact <= _MOST_MONEY):
        raise ValueError(f"{amount} is not a sum of money")
    return exact
