"""Who has used how much, and whether a call still fits under the limits; no file is touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from teamd.budget.records import NOTHING, Account, Reservation, Terms

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.process_id import Identity

_CENT: Final = Decimal("0.01")
_FINE: Final = Decimal("0.000001")


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
        found = (
            self._over(who, unit, wanted)
            for who in ("teammate", "team")
            for unit in ("tokens", "usd")
        )
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
        show = _usd if unit == "usd" else _count
        return Refusal(
            key=key,
            why=f"{key} is reached: {spender} has used {show(_amount(used, unit))} of "
            f"{show(most)}, and the next call may take {show(_amount(wanted, unit))}",
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


def _usd(amount: Decimal) -> str:
    return f"${_rounded(amount):f}"


def _count(amount: Decimal) -> str:
    return f"{int(amount):,} tokens"


def _figure(amount: Decimal, unit: str) -> str:
    """As `team.toml` takes it."""
    return f"{_rounded(amount):f}" if unit == "usd" else str(int(amount))


def _rounded(amount: Decimal) -> Decimal:
    """Up: a limit of what is said must do. Small sums are told to a millionth."""
    return amount.quantize(_CENT if amount >= 1 or not amount else _FINE, rounding=ROUND_UP)
