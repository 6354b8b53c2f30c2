"""Who has used how much, what is kept back, and whether a call still fits; no file is touched."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import ROUND_UP, Decimal
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from teamd.process_id import Identity
from teamd.tokens import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from teamd.settings import Settings

_CENT: Final = Decimal("0.01")
_FINE: Final = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What was used, by one teammate or by all.

    Attributes:
        input_tokens: all of them; those read from and written to the cache are among them.
        usd: of those calls whose price was known.
        assumed_calls: those of which nobody told what they took: counted in full.
        unpriced_calls: those whose model had no known price.
    """

    calls: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    assumed_calls: int = 0
    unpriced_calls: int = 0
    usd: Decimal = Decimal(0)

    @classmethod
    def of_call(cls, usage: Usage, usd: Decimal | None) -> Account:
        """What one call has taken; its cost is `None` where no price is known."""
        return cls(
            calls=1,
            input_tokens=usage.total_input_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            unpriced_calls=int(usd is None),
            usd=usd or Decimal(0),
        )

    @property
    def tokens(self) -> int:
        """What the limits on tokens count."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Account) -> Account:
        sums = {key: getattr(self, key) + getattr(other, key) for key in _COUNTS}
        return Account(**sums, usd=self.usd + other.usd)

    def encode(self) -> dict[str, Any]:
        """The account as it stands in the ledger."""
        return {**{key: getattr(self, key) for key in _COUNTS}, "usd": float(self.usd)}

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Account:
        """Read an account; what is missing is 0."""
        counts = {key: int(record.get(key, 0)) for key in _COUNTS}
        return cls(**counts, usd=Decimal(record.get("usd", 0)))


NOTHING: Final = Account()
_COUNTS: Final = tuple(one.name for one in fields(Account) if one.name != "usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The most that a call may take, kept back while it is under way.

    Attributes:
        process: whose call it is; if that has died, nobody will tell what it took.
        usd: `None` where the model's price is not known.
    """

    id: str
    teammate: str
    process: Identity
    model: str
    input_tokens: int
    output_tokens: int
    usd: Decimal | None

    @property
    def tokens(self) -> int:
        """What the limits on tokens count."""
        return self.input_tokens + self.output_tokens

    def in_full(self) -> Account:
        """All of it, as used."""
        usage = Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        return replace(Account.of_call(usage, self.usd), assumed_calls=1)

    def encode(self) -> dict[str, Any]:
        """The reservation as it stands in the ledger."""
        values = asdict(self)
        process: dict[str, Any] = values.pop("process")
        return {**values, **process, "usd": None if self.usd is None else float(self.usd)}

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Reservation:
        """Read a reservation."""
        values: dict[str, Any] = {key: str(record[key]) for key in ("id", "teammate", "model")}
        values |= {key: int(record[key]) for key in ("input_tokens", "output_tokens")}
        process = Identity(pid=int(record["pid"]), started=float(record["started"]))
        usd = None if record["usd"] is None else Decimal(record["usd"])
        return cls(**values, process=process, usd=usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The limits in force, 0 for none, and the prices that the person has set."""

    teammate_tokens: int = 0
    teammate_usd: Decimal = Decimal(0)
    team_tokens: int = 0
    team_usd: Decimal = Decimal(0)
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Terms:
        """What the settings say of limits and prices."""
        prices = {model: asdict(price) for model, price in settings.prices.items()}
        return cls.decode({**asdict(settings.limits), "prices": prices})

    @property
    def of_money(self) -> str | None:
        """A limit on money, if there is one."""
        named = {"teammate_usd": self.teammate_usd, "team_usd": self.team_usd}
        return next((f"limits.{key}" for key, most in named.items() if most), None)

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return bool(self.teammate_tokens or self.team_tokens or self.of_money)

    def encode(self) -> dict[str, Any]:
        """The terms as they stand in the ledger."""
        encoded: dict[str, Any] = json.loads(json.dumps(asdict(self), default=float))
        return encoded

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Terms:
        """Read terms."""
        values: dict[str, Any] = {
            key: int(record[key]) for key in ("teammate_tokens", "team_tokens")
        }
        values |= {key: Decimal(str(record[key])) for key in ("teammate_usd", "team_usd")}
        return cls(**values, prices=dict(record["prices"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call is not made.

    Attributes:
        key: the limit's, such as `limits.team_usd`.
        why: a sentence without what to do about it.
        remedy: what to write into `team.toml`.
        passing: whether it may fit in a moment, when calls under way have taken less than what is
            kept back for them.
    """

    key: str
    why: str
    remedy: str
    passing: bool = False

    def sentence(self, name: str) -> str:
        """Why, and what to do."""
        return f"{self.why}; {self.remedy} in team.toml, then `teamctl resume {name}`"


@dataclass(slots=True)
class Accounts:
    """All accounts, and what is kept back for calls under way."""

    terms: Terms = field(default_factory=Terms)
    used: dict[str, Account] = field(default_factory=dict)
    held: dict[str, Reservation] = field(default_factory=dict)
    refused: dict[str, Reservation] = field(default_factory=dict)

    def total(self) -> Account:
        """What all have used."""
        return sum(self.used.values(), NOTHING)

    def charge(self, name: str, account: Account) -> None:
        """Add to what a teammate has used."""
        self.used[name] = self.used.get(name, NOTHING) + account

    def orphans(self, is_alive: Callable[[Identity], bool]) -> list[Reservation]:
        """Reservations of processes that are gone."""
        return [kept for kept in self.held.values() if not is_alive(kept.process)]

    def refusal(self, wanted: Reservation) -> Refusal | None:
        """Why a call must not be made now, if it must not."""
        if wanted.usd is None and (money := self.terms.of_money):
            return _unpriced(wanted, money)
        limits = product(("teammate", "team"), ("tokens", "usd"))
        found = (self._over(who, unit, wanted) for who, unit in limits)
        # One that does not pass by itself counts for more than one that does.
        return min(filter(None, found), key=attrgetter("passing"), default=None)

    def _over(self, who: str, unit: str, wanted: Reservation) -> Refusal | None:
        """Why one limit forbids a call, if it does."""
        key = f"limits.{who}_{unit}"
        most = Decimal(getattr(self.terms, f"{who}_{unit}"))
        mine = who == "teammate"
        used = self.used.get(wanted.teammate, NOTHING) if mine else self.total()
        held = (kept for kept in self.held.values() if not mine or kept.teammate == wanted.teammate)
        needed = _amount(used, unit) + _amount(wanted, unit)
        if not most or needed + sum(_amount(kept, unit) for kept in held) <= most:
            return None
        spender = wanted.teammate if mine else "the team"
        return Refusal(
            key=key,
            why=f"{key} is reached: {spender} has used {_words(_amount(used, unit), unit)} of "
            f"{_words(most, unit)}, and the next call may take "
            f"{_words(_amount(wanted, unit), unit)}",
            remedy=f"raise {key} to at least {_figure(needed, unit)}",
            passing=needed <= most,
        )


def _amount(taken: Account | Reservation, unit: str) -> Decimal:
    """What was used or is kept back; a price that is not known counts for nothing."""
    return Decimal(getattr(taken, unit) or 0)


def _unpriced(wanted: Reservation, key: str) -> Refusal:
    quoted = '"' + wanted.model.replace("\\", r"\\").replace('"', r"\"") + '"'
    return Refusal(
        key=key,
        why=f"{key} is set, and what {wanted.model} costs is not known",
        remedy=f"write [prices.{quoted}] with input and output, in USD per million tokens,",
    )


def _words(amount: Decimal, unit: str) -> str:
    return f"${_rounded(amount):f}" if unit == "usd" else f"{int(amount):,} tokens"


def _figure(amount: Decimal, unit: str) -> str:
    """As `team.toml` takes it."""
    return f"{_rounded(amount):f}" if unit == "usd" else str(int(amount))


def _rounded(amount: Decimal) -> Decimal:
    """Up: a limit of what is said must do. Small sums are told to a millionth."""
    return amount.quantize(_CENT if amount >= 1 or not amount else _FINE, rounding=ROUND_UP)
