"""Refusals of calls: the figures, and a sentence with the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import Any, Final

from teamd.budget import days
from teamd.budget.account import exactly

USD: Final = "usd"
TOKENS: Final = "tokens"
_CENT: Final = Decimal("0.01")
_FINE: Final = Decimal("0.000001")
_WHOLE: Final = Decimal(1)
_RAISED_FOR: Final = {"": "", "day": " for today", "month": " for this month"}
_USED_IN: Final = {"": "", "day": " today", "month": " this month"}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of `[limits]`.

    Attributes:
        who: the spender that it bounds: each `teammate`, or the `team`.
        unit: `tokens` or `usd`.
        period: `day` or `month`, in local time; empty for all time.
    """

    name: str
    who: str
    unit: str
    period: str = ""

    @property
    def key(self) -> str:
        """The key in team.toml."""
        return f"limits.{self.name}"

    def period_of(self, day: str) -> str:
        """Return the period that contains a day; empty for all time."""
        if self.period == "month":
            return days.month_of(day)
        return day if self.period else ""


LIMITS: Final = (
    Limit("teammate_tokens", "teammate", TOKENS),
    Limit("teammate_usd", "teammate", USD),
    Limit("team_tokens", "team", TOKENS),
    Limit("team_usd", "team", USD),
    Limit("team_usd_per_month", "team", USD, period="month"),  # the longest period comes first
    Limit("team_tokens_per_day", "team", TOKENS, period="day"),
    Limit("team_usd_per_day", "team", USD, period="day"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """A person's raise of a limit above the value in `team.toml`.

    Attributes:
        limit: the name of the limit.
        of: the teammate, day or month whose limit is raised; empty for the team and all time.
    """

    limit: str
    of: str
    amount: Decimal

    @property
    def unit(self) -> str:
        """`tokens` or `usd`."""
        return next(one.unit for one in LIMITS if one.name == self.limit)

    def encode(self) -> dict[str, Any]:
        """Return the raise as the ledger stores it."""
        return {"limit": self.limit, "of": self.of, "amount": float(self.amount)}

    @classmethod
    def decode(cls, record: dict[str, Any]) -> Raise:
        amount = exactly(record["amount"])
        return cls(limit=str(record["limit"]), of=str(record["of"]), amount=amount)

    def sentence(self) -> str:
        """Describe the raise: the limit, the amount, and the teammate or period."""
        scope = f" for {self.of}" if self.of else ""
        return f"limits.{self.limit} is raised by {in_words(self.amount, self.unit)}{scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call is not made.

    Attributes:
        key: the key of the limit, such as `limits.team_usd`.
        why: the reason, without a remedy.
        remedy: the change of `team.toml` that would help.
        limit: the limit; `None` if raising a limit would not help.
        of: the teammate, day or month that it is about; empty for the team and all time.
        lacking: the amount by which the limit is too low.
        until: the end of the limit's period, in seconds since the epoch, if the call fits then.
        passing: whether the call may fit soon, when calls under way have used less than reserved.
    """

    key: str
    why: str
    remedy: str
    limit: Limit | None = None
    of: str = ""
    lacking: Decimal = Decimal(0)
    until: float | None = None
    passing: bool = False

    @property
    def rank(self) -> int:
        """The order of refusals: 0 for those that time does not resolve."""
        return 2 if self.passing else int(self.until is not None)

    @property
    def unit(self) -> str:
        """`tokens` or `usd`; empty if raising a limit would not help."""
        return self.limit.unit if self.limit else ""

    def raised_by(self, amount: Decimal) -> Raise:
        """Return the raise of this limit by an amount."""
        assert self.limit is not None  # noqa: S101 -- callers check `unit` first
        return Raise(limit=self.limit.name, of=self.of, amount=amount)

    def command(self, name: str) -> str:
        """Return the command that lets a teammate continue; it raises the limit if there is one."""
        resume = f"teamctl resume {name}"
        if self.limit is None:
            return resume
        return f"{resume} --{self.unit} {_round_up(self.lacking, self.unit)}"

    def sentence(self, name: str) -> str:
        """Return the reason and the remedies."""
        in_file = f"{self.remedy} in team.toml, then `teamctl resume {name}`"
        if self.limit is None:
            return f"{self.why}; {in_file}"
        raising = f"`{self.command(name)}` raises it{_RAISED_FOR[self.limit.period]}"
        return f"{self.why}; {raising}, or {in_file}{self._by_itself(name)}"

    def _by_itself(self, name: str) -> str:
        if self.until is None:
            return ""
        return f"; otherwise {name} goes on at 00:00 on {days.day_after(self.of)}"


def refuse(
    limit: Limit,
    of: str,
    *,
    spender: str,
    used: Decimal,
    most: Decimal,
    raised: Decimal,
    wanted: Decimal,
    assumed_calls: int,
) -> Refusal:
    """Make the refusal of a call for which a limit is too low.

    Args:
        limit: the limit.
        of: the teammate, day or month; empty for the team and all time.
        spender: the teammate, or `the team`.
        used: the amount that it has used.
        most: the amount that the limit allows, including raises.
        raised: the raises.
        wanted: the amount that the call may take.
        assumed_calls: see `Account`.
    """
    unit, needed = limit.unit, used + wanted
    figures = f"{in_words(used, unit)} of {in_words(most, unit)}{_USED_IN[limit.period]}"
    figures += _assumed(assumed_calls)
    so_far, takes = f"{spender} has used {figures}", f"may take {in_words(wanted, unit)}"
    why = f"the next call does not fit into what is left of {limit.key}: {so_far}, and it {takes}"
    if used >= most:
        why = f"{limit.key} is reached: {so_far}, and the next call {takes}"
    # A call that does not fit into a whole day will not fit tomorrow either.
    passes = bool(limit.period) and wanted <= most - raised
    return Refusal(
        key=limit.key,
        why=why,
        remedy=f"raise {limit.key} to at least {_figure(needed - raised, unit)}",
        limit=limit,
        of=of,
        lacking=needed - most,
        until=days.end_of(of) if passes else None,
        passing=needed <= most,
    )


def _assumed(calls: int) -> str:
    if not calls:
        return ""
    what = "1 call that broke off counts" if calls == 1 else f"{calls} calls that broke off count"
    return f" ({what} in full)"


def refuse_unpriced(model: str, key: str) -> Refusal:
    """Make the refusal of a call with an unknown price, under a limit on money."""
    quoted = '"' + model.replace("\\", r"\\").replace('"', r"\"") + '"'
    return Refusal(
        key=key,
        why=f"{key} is set, and the price of {model} is not known",
        remedy=f"write [prices.{quoted}] with input and output, in USD per million tokens, "
        "or set limits.team_tokens_per_day,",
    )


def in_words(amount: Decimal, unit: str) -> str:
    """Return an amount of money or tokens, rounded up."""
    return f"${_rounded(amount):f}" if unit == USD else f"{int(amount):,} tokens"


def _figure(amount: Decimal, unit: str) -> str:
    """Return an amount for `team.toml`."""
    return f"{_rounded(amount):f}" if unit == USD else str(int(amount))


def _round_up(amount: Decimal, unit: str) -> str:
    """Round an amount up for a command: whole dollars are easy to type and last a few calls."""
    return str(amount.quantize(_WHOLE, rounding=ROUND_UP) if unit == USD else int(amount))


def _rounded(amount: Decimal) -> Decimal:
    """Round up to a cent, or below a dollar to a millionth: the amount must suffice as a limit."""
    fine = amount.quantize(_CENT if amount >= 1 or not amount else _FINE, rounding=ROUND_UP)
    cents = fine.quantize(_CENT, rounding=ROUND_UP)
    return cents if cents == fine else fine.normalize()
