"""Who has used how much, and whether a call still fits under the limits; no file is touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal
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
        found = None
        name = wanted.teammate
        mine = [kept for kept in self.held.values() if kept.teammate == name]
        for who, used, kept in (
            ("teammate", self.used.get(name, NOTHING), mine),
            ("team", self.total(), list(self.held.values())),
        ):
            for limit in (
                _tokens(self.terms, who, used, kept, wanted),
                _money(self.terms, who, used, kept, wanted),
            ):
                refusal = limit.refusal(name)
                # One that does not pass by itself counts for more than one that does.
                if refusal and (found is None or (found.passing and not refusal.passing)):
                    found = refusal
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    who: str
    unit: str
    most: Decimal
    used: Decimal
    kept: Decimal
    wanted: Decimal

    def refusal(self, name: str) -> Refusal | None:
        needed = self.used + self.wanted
        if not self.most or needed + self.kept <= self.most:
            return None
        key = f"limits.{self.who}_{self.unit}"
        spender = name if self.who == "teammate" else "the team"
        show = _usd if self.unit == "usd" else _count
        return Refusal(
            key=key,
            why=f"{key} is reached: {spender} has used {show(self.used)} of {show(self.most)}, "
            f"and the next call may take {show(self.wanted)}",
            remedy=f"raise {key} to at least {_figure(needed, self.unit)}",
            passing=needed <= self.most,
        )


def _tokens(
    terms: Terms, who: str, used: Account, kept: list[Reservation], wanted: Reservation
) -> _Limit:
    return _Limit(
        who=who,
        unit="tokens",
        most=Decimal(getattr(terms, f"{who}_tokens")),
        used=Decimal(used.tokens),
        kept=Decimal(sum(other.tokens for other in kept)),
        wanted=Decimal(wanted.tokens),
    )


def _money(
    terms: Terms, who: str, used: Account, kept: list[Reservation], wanted: Reservation
) -> _Limit:
    return _Limit(
        who=who,
        unit="usd",
        most=getattr(terms, f"{who}_usd"),
        used=used.usd,
        kept=sum((other.usd or Decimal(0) for other in kept), Decimal(0)),
        wanted=wanted.usd or Decimal(0),
    )


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
