"""Tokens and cost of each member and of the team, and their share of the limits."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from teamd.budget import days
from teamd.budget.account import NOTHING, Account, Reservation
from teamd.budget.accounts import Accounts
from teamd.budget.limits import LIMITS, USD
from teamd.files.paths import TeamPaths
from teamd.team.roster import Roster

PER_DAY: Final = "_per_day"
PER_MONTH: Final = "_per_month"


@dataclass(frozen=True, slots=True)
class LimitShare:
    """A limit in force, and its used share from 0 to 1.

    Attributes:
        name: without `team_` or `teammate_`, such as `tokens_per_day`.
    """

    name: str
    most: Decimal
    share: float


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of a member or the team, with its reservations and limits.

    Attributes:
        held: the reservations of running calls.
        today: today's usage; `None` for members, which have no limit per day.
        month: this month's usage; `None` for members.
        limits: by names as in `LimitShare`; 0 for no limit.
        raised: the part of each limit that `teamctl resume` added.
    """

    name: str
    account: Account
    held: tuple[Reservation, ...]
    today: Account | None
    month: Account | None
    limits: dict[str, Decimal]
    raised: dict[str, Decimal]

    @property
    def shares(self) -> list[LimitShare]:
        """The limits in force with their used shares."""
        return [
            LimitShare(name, most, float(self._used(name) / most))
            for name, most in self.limits.items()
            if most
        ]

    @property
    def nearest(self) -> LimitShare | None:
        """The limit with the largest used share; `None` without limits."""
        return max(self.shares, key=lambda one: one.share, default=None)

    def to_json(self) -> dict[str, Any]:
        """The usage as `--json` shows it."""
        return {
            **self.account.encode(),
            "tokens": self.account.tokens,
            "usd": self.account.known_usd,
            "reserved_tokens": sum(kept.tokens for kept in self.held),
            "reserved_usd": float(sum(kept.usd or 0 for kept in self.held)),
            **({} if self.today is None else _of_day(self.today)),
            **({} if self.month is None else {"usd_this_month": self.month.known_usd}),
            **{f"{key}_limit": _number(key, most) or None for key, most in self.limits.items()},
            **{f"{key}_raised": _number(key, by) for key, by in self.raised.items()},
            "share": None if self.nearest is None else self.nearest.share,
        }

    def _used(self, key: str) -> Decimal:
        account = self.account
        if key.endswith(PER_DAY):
            account = self.today or NOTHING
        elif key.endswith(PER_MONTH):
            account = self.month or NOTHING
        return Decimal(getattr(account, key.removesuffix(PER_DAY).removesuffix(PER_MONTH)))


def read_uses(paths: TeamPaths, accounts: Accounts) -> tuple[list[Use], Use]:
    """Return the usage of each present and former member, and the total."""
    roster = [member.name for member in Roster(paths).read().members]
    held = tuple(accounts.held.values())
    names = dict.fromkeys([*roster, *accounts.used, *(kept.teammate for kept in held)])
    members = []
    for name in names:
        own = tuple(kept for kept in held if kept.teammate == name)
        used = accounts.used.get(name, NOTHING)
        members.append(Use(name, used, own, None, None, *_limits(accounts, "teammate", name)))
    today = days.today()
    used_today, used_this_month = map(accounts.used_in, (today, days.month_of(today)))
    limits, raised = _limits(accounts, "team", "")
    total = Use("total", accounts.total(), held, used_today, used_this_month, limits, raised)
    return members, total


def _limits(
    accounts: Accounts, who: str, name: str
) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """Return the limits of a teammate or of the team, and the raise of each."""
    limits, raised = {}, {}
    for limit in LIMITS:
        if limit.who == who:
            of = limit.period_of(days.today()) or name
            key = limit.name.removeprefix(f"{who}_")
            limits[key] = accounts.most(limit, of)
            raised[key] = accounts.raised.get((limit.name, of), Decimal(0))
    return limits, raised


def _of_day(today: Account) -> dict[str, Any]:
    return {"tokens_today": today.tokens, "usd_today": today.known_usd}


def _number(key: str, amount: Decimal) -> float:
    return float(amount) if key.startswith(USD) else int(amount)
