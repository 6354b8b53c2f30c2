"""The accounts of a team: usage, reservations, limits and refusals; no file is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from teamd.budget import days
from teamd.budget.account import NOTHING, Account, Reservation, exactly
from teamd.budget.limits import LIMITS, Limit, Raise, Refusal, refuse, refuse_unpriced
from teamd.model_server.connection import server_address
from teamd.model_server.pages import is_local
from teamd.process_id import Identity

if TYPE_CHECKING:
    from teamd.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The limits in force (0 for no limit) and the prices that the person has set.

    Attributes:
        usd_per_day_is_default: whether the person has not set that limit and the server is on this
            machine or its network. Then the limit ignores calls whose price is unknown.
    """

    teammate_tokens: int = 0
    teammate_usd: Decimal = Decimal(0)
    team_tokens: int = 0
    team_usd: Decimal = Decimal(0)
    team_tokens_per_day: int = 0
    team_usd_per_day: Decimal = Decimal(0)
    team_usd_per_month: Decimal = Decimal(0)
    usd_per_day_is_default: bool = False
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Terms:
        """Return the limits and prices of the settings."""
        prices = {model: asdict(price) for model, price in settings.prices.items()}
        unset = "limits.team_usd_per_day" not in settings.given
        default = unset and is_local(server_address(settings.model.base_url))
        limits = asdict(settings.limits)
        return cls.decode({**limits, "usd_per_day_is_default": default, "prices": prices})

    @property
    def of_money(self) -> str | None:
        """The first limit on money that needs every price to be known, if any."""
        named = {"teammate_usd": self.teammate_usd, "team_usd": self.team_usd}
        named["team_usd_per_month"] = self.team_usd_per_month
        if not self.usd_per_day_is_default:
            named["team_usd_per_day"] = self.team_usd_per_day
        return next((f"limits.{key}" for key, most in named.items() if most), None)

    @property
    def unpriced_limit(self) -> str | None:
        """The limit on money that forbids a call with an unknown price, if any.

        If a limit on tokens bounds such calls as well, they are allowed.
        """
        tokens = (self.teammate_tokens, self.team_tokens, self.team_tokens_per_day)
        return None if any(tokens) else self.of_money

    def bound(self, wanted: Reservation) -> bool:
        """Return whether a limit applies to a call."""
        return any(getattr(self, one.name) and _amount(wanted, one.unit) for one in LIMITS)

    def encode(self) -> dict[str, Any]:
        """Return the terms as the ledger stores them."""
        return dict(json.loads(json.dumps(asdict(self), default=float)))

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Terms:
        """Read terms; those of earlier versions have no daily limits."""
        values: dict[str, Any] = {
            key: int(record[key]) for key in ("teammate_tokens", "team_tokens")
        }
        values |= {key: exactly(record[key]) for key in ("teammate_usd", "team_usd")}
        return cls(
            **values,
            team_tokens_per_day=int(record.get("team_tokens_per_day", 0)),
            team_usd_per_day=exactly(record.get("team_usd_per_day", 0)),
            team_usd_per_month=exactly(record.get("team_usd_per_month", 0)),
            usd_per_day_is_default=record.get("usd_per_day_is_default") is True,
            prices=dict(record["prices"]),
        )


@dataclass(slots=True)
class Accounts:
    """All accounts, and the reservations of calls under way.

    Attributes:
        terms: the limits and prices in force.
        used: the usage of each teammate, for all time.
        days: the usage of the whole team on each day.
        held: the reservations, by the ids of the calls.
        refused: the last call of each teammate whose call was refused.
        raised: by how much a person has raised a limit, by its name and its teammate, day or month.
    """

    terms: Terms = field(default_factory=Terms)
    used: dict[str, Account] = field(default_factory=dict)
    days: dict[str, Account] = field(default_factory=dict)
    held: dict[str, Reservation] = field(default_factory=dict)
    refused: dict[str, Reservation] = field(default_factory=dict)
    raised: dict[tuple[str, str], Decimal] = field(default_factory=dict)

    def total(self) -> Account:
        """Return the usage of the whole team."""
        return sum(self.used.values(), NOTHING)

    def orphans(self, is_alive: Callable[[Identity], bool]) -> list[Reservation]:
        """Return the reservations of dead processes."""
        return [kept for kept in self.held.values() if not is_alive(kept.process)]

    def charge(self, name: str, account: Account) -> None:
        """Add to a teammate's usage."""
        self.used[name] = self.used.get(name, NOTHING) + account

    def charge_day(self, day: str, account: Account) -> None:
        """Add to the team's usage on a day; calls of earlier versions have no day."""
        if day:
            self.days[day] = self.days.get(day, NOTHING) + account

    def hold(self, reservation: Reservation) -> None:
        """Reserve the most that a call may take, and clear an earlier refusal of its teammate."""
        self.held[reservation.id] = reservation
        self.refused.pop(reservation.teammate, None)

    def close(self, reservation: Reservation, account: Account) -> None:
        """Replace the reservation of a call by its usage."""
        del self.held[reservation.id]
        self.charge(reservation.teammate, account)
        self.charge_day(reservation.day, account)

    def lift(self, raised: Raise) -> None:
        """Raise a limit."""
        place = (raised.limit, raised.of)
        self.raised[place] = self.raised.get(place, Decimal(0)) + raised.amount

    def with_raised(self, raises: Iterable[Raise]) -> Accounts:
        """Return a copy with these limits raised."""
        lifted = replace(self, raised=dict(self.raised))
        for one in raises:
            lifted.lift(one)
        return lifted

    def refusal(self, wanted: Reservation) -> Refusal | None:
        """Return why a call must not be made now, or `None`."""
        return next(iter(self.refusals(wanted)), None)

    def refusals(self, wanted: Reservation) -> list[Refusal]:
        """Return all reasons against a call; those that time does not resolve come first."""
        if wanted.usd is None and (money := self.terms.unpriced_limit):
            return [refuse_unpriced(wanted.model, money)]
        found = (self._over(limit, wanted) for limit in LIMITS if getattr(self.terms, limit.name))
        return sorted(filter(None, found), key=attrgetter("rank"))

    def most(self, limit: Limit, of: str) -> Decimal:
        """Return the amount that a limit allows, including raises; 0 for no limit."""
        most = Decimal(getattr(self.terms, limit.name))
        return most + self.raised.get((limit.name, of), Decimal(0)) if most else most

    def _over(self, limit: Limit, wanted: Reservation) -> Refusal | None:
        """Return why one limit forbids a call, or `None`."""
        of, unit = _whom(limit, wanted), limit.unit
        most, asked = self.most(limit, of), _amount(wanted, unit)
        if not asked:
            return None
        account = self._used(limit, of)
        used = _amount(account, unit)
        held = self._held(limit, of)
        if used + asked + held <= most:
            return None
        spender = of if limit.who == "teammate" else "the team"
        raised = self.raised.get((limit.name, of), Decimal(0))
        return refuse(
            limit,
            of,
            spender=spender,
            used=used,
            most=most,
            raised=raised,
            wanted=asked,
            assumed_calls=account.assumed_calls,
        )

    def _used(self, limit: Limit, of: str) -> Account:
        if limit.period:
            return self.used_in(of)
        if limit.who != "teammate":
            return self.total()
        return self.used.get(of, NOTHING)

    def used_in(self, period: str) -> Account:
        """Return the team's usage on a day or in a month."""
        if period in self.days:
            return self.days[period]
        parts = [used for day, used in self.days.items() if days.month_of(day) == period]
        return sum(parts, NOTHING)

    def _held(self, limit: Limit, of: str) -> Decimal:
        """Return the amount that is reserved for calls under way."""
        kept = [one for one in self.held.values() if _whom(limit, one) == of]
        return sum(filter(None, map(attrgetter(limit.unit), kept)), Decimal(0))


def _whom(limit: Limit, call: Reservation) -> str:
    """Return the teammate, day or month to which a limit counts a call; empty for the team."""
    if limit.period:
        return limit.period_of(call.day)
    return call.teammate if limit.who == "teammate" else ""


def _amount(taken: Account | Reservation, unit: str) -> Decimal:
    """Return the amount that was used or is reserved; an unknown price counts as 0."""
    return Decimal(getattr(taken, unit) or 0)
