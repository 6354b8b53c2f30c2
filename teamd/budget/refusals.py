"""Why a call is not made, in figures and in a sentence that says what to do."""

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
        who: whose use it bounds: a `teammate`'s, or the `team`'s.
        unit: what it counts: `tokens` or `usd`.
        period: the local `day` or `month` that it counts; empty for all time.
    """

    name: str
    who: str
    unit: str
    period: str = ""

    @property
    def key(self) -> str:
        """The setting."""
        return f"limits.{self.name}"

    def period_of(self, day: str) -> str:
        """Return the period of a day whose use it counts; empty for all time."""
        if self.period == "month":
            return days.month_of(day)
        return day if self.period else ""


LIMITS: Final = (
    Limit("teammate_tokens", "teammate", TOKENS),
    Limit("teammate_usd", "teammate", USD),
    Limit("team_tokens", "team", TOKENS),
    Limit("team_usd", "team", USD),
    Limit("team_usd_per_month", "team", USD, period="month"),  # what lasts longer comes first
    Limit("team_tokens_per_day", "team", TOKENS, period="day"),
    Limit("team_usd_per_day", "team", USD, period="day"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """A raise: how much more than `team.toml` says a limit allows, because a person said so.

    Attributes:
        limit: the limit's name.
        of: the teammate, day or month that it is raised for; empty for the team and all time.
    """

    limit: str
    of: str
    amount: Decimal

    @property
    def unit(self) -> str:
        """The unit that the limit counts."""
        return next(one.unit for one in LIMITS if one.name == self.limit)

    def encode(self) -> dict[str, Any]:
        """The raise as it stands in the ledger."""
        return {"limit": self.limit, "of": self.of, "amount": float(self.amount)}

    @classmethod
    def decode(cls, record: dict[str, Any]) -> Raise:
        """Read a raise."""
        amount = exactly(record["amount"])
        return cls(limit=str(record["limit"]), of=str(record["of"]), amount=amount)

    def sentence(self) -> str:
        """Say what was raised, by how much and for whom or when."""
        scope = f" for {self.of}" if self.of else ""
        return f"limits.{self.limit} is raised by {in_words(self.amount, self.unit)}{scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call is not made.

    Attributes:
        key: the limit's, such as `limits.team_usd`.
        why: a sentence without what to do about it.
        remedy: what to write into `team.toml`.
        limit: the limit; `None` where raising none would help.
        of: the teammate, day or month that it is about; empty for the team and all time.
        lacking: by how much it is too low.
        until: when it passes by itself, in seconds since the epoch; `None` for never.
        passing: whether it may fit in a moment, when calls under way have taken less than what is
            kept back for them.
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
        """A higher one passes sooner by itself, and counts for less."""
        return 2 if self.passing else int(self.until is not None)

    @property
    def unit(self) -> str:
        """The unit that the limit counts; empty where raising none would help."""
        return self.limit.unit if self.limit else ""

    def raised_by(self, amount: Decimal) -> Raise:
        """Return the raise of this limit by so much."""
        assert self.limit is not None  # noqa: S101 -- `unit` is looked at first
        return Raise(limit=self.limit.name, of=self.of, amount=amount)

    def sentence(self, name: str) -> str:
        """Why, and what to do."""
        resume = f"teamctl resume {name}"
        in_file = f"{self.remedy} in team.toml, then `{resume}`"
        if self.limit is None:
            return f"{self.why}; {in_file}"
        today = _RAISED_FOR[self.limit.period]
        raising = f"`{resume} --{self.unit} {_round_up(self.lacking, self.unit)}` raises it{today}"
        return f"{self.why}; {raising}, or {in_file}{self._by_itself(name)}"

    def _by_itself(self, name: str) -> str:
        if self.until is None:
            return ""
        return f"; otherwise {name} goes on at 00:00 on {days.day_after(self.of)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one limit: what is used, allowed and wanted.

    Attributes:
        spender: who has used it.
        most: what the limit allows, with what it was raised by.
        raised: that part of it.
    """

    spender: str
    used: Decimal
    most: Decimal
    raised: Decimal
    wanted: Decimal

    @property
    def needed(self) -> Decimal:
        """The amount that the limit would have to allow."""
        return self.used + self.wanted


def refuse(limit: Limit, of: str, figures: Figures) -> Refusal:
    """Make the refusal of a call for which a limit is too low."""
    unit, needed, most = limit.unit, figures.needed, figures.most
    when = _USED_IN[limit.period]
    used = f"{figures.spender} has used {in_words(figures.used, unit)}"
    so_far = f"{used} of {in_words(most, unit)}{when}"
    wanted = f"may take {in_words(figures.wanted, unit)}"
    why = f"the next call does not fit into what is left of {limit.key}: {so_far}, and it {wanted}"
    if figures.used >= most:
        why = f"{limit.key} is reached: {so_far}, and the next call {wanted}"
    # What does not fit into a whole day will not fit into the next one.
    passes = bool(limit.period) and figures.wanted <= most - figures.raised
    return Refusal(
        key=limit.key,
        why=why,
        remedy=f"raise {limit.key} to at least {_figure(needed - figures.raised, unit)}",
        limit=limit,
        of=of,
        lacking=needed - most,
        until=days.end_of(of) if passes else None,
        passing=needed <= most,
    )


def refuse_unpriced(model: str, key: str) -> Refusal:
    """Make the refusal of a call whose price is not known, under a limit on money."""
    quoted = '"' + model.replace("\\", r"\\").replace('"', r"\"") + '"'
    return Refusal(
        key=key,
        why=f"{key} is set, and what {model} costs is not known",
        remedy=f"write [prices.{quoted}] with input and output, in USD per million tokens, "
        "or set limits.team_tokens_per_day,",
    )


def in_words(amount: Decimal, unit: str) -> str:
    """An amount of money or tokens, rounded up."""
    return f"${_rounded(amount):f}" if unit == USD else f"{int(amount):,} tokens"


def _figure(amount: Decimal, unit: str) -> str:
    """As `team.toml` takes it."""
    return f"{_rounded(amount):f}" if unit == USD else str(int(amount))


def _round_up(amount: Decimal, unit: str) -> str:
    """As a person types it: whole dollars last for a few calls, and are no sum to type wrongly."""
    return str(amount.quantize(_WHOLE, rounding=ROUND_UP) if unit == USD else int(amount))


def _rounded(amount: Decimal) -> Decimal:
    """Up: a limit of what is said must do. Small sums are told to a millionth."""
    return amount.quantize(_CENT if amount >= 1 or not amount else _FINE, rounding=ROUND_UP)
