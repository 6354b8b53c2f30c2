"""The accounts: who has used how much, what is kept back, what still fits; no file is touched."""

from __future__ import annotations

import json
from decimal import Decimal
from operator import attrgetter

from teamd.budget.refusals import LIMITS, Figures, refuse, refuse_unpriced
from teamd.dataclass import asdict, dataclass, field, fields, replace
from teamd.process_id import Identity
from teamd.tokens import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, Final

    from teamd.budget.refusals import Limit, Raise, Refusal
    from teamd.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The amounts that were used, by one teammate or by all.

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
        """Return what one call has taken; its cost is `None` where no price is known."""
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
        """The tokens that limits count."""
        return self.input_tokens + self.output_tokens

    @property
    def known_usd(self) -> float | None:
        """The cost as far as it is known; `None` where nothing of it is."""
        return None if self.unpriced_calls and not self.usd else float(self.usd)

    def __add__(self, other: Account) -> Account:
        return Account(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            assumed_calls=self.assumed_calls + other.assumed_calls,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            usd=self.usd + other.usd,
        )

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
        day: the local day that it counts for, which is the ledger's to say. Of a call that was
            refused, the day whose limit refused it: empty where that does not pass by itself.
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
        return cls(**values, process=process, usd=usd, day=str(record.get("day", "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The limits in force, 0 for none, and the prices that the person has set.

    Attributes:
        usd_per_day_is_default: whether the person has not set that limit. Then it lets calls pass
            whose price is not known, such as those of a model on the machine itself.
    """

    teammate_tokens: int = 0
    teammate_usd: Decimal = Decimal(0)
    team_tokens: int = 0
    team_usd: Decimal = Decimal(0)
    team_tokens_per_day: int = 0
    team_usd_per_day: Decimal = Decimal(0)
    usd_per_day_is_default: bool = False
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Terms:
        """Return what the settings say of limits and prices."""
        prices = {model: asdict(price) for model, price in settings.prices.items()}
        default = "limits.team_usd_per_day" not in settings.given
        limits = asdict(settings.limits)
        return cls.decode({**limits, "usd_per_day_is_default": default, "prices": prices})

    @property
    def of_money(self) -> str | None:
        """A limit on money for which every price must be known, if there is one."""
        named = {"teammate_usd": self.teammate_usd, "team_usd": self.team_usd}
        if not self.usd_per_day_is_default:
            named["team_usd_per_day"] = self.team_usd_per_day
        return next((f"limits.{key}" for key, most in named.items() if most), None)

    def bound(self, wanted: Reservation) -> bool:
        """Return whether there is a limit that counts what such a call takes."""
        return any(getattr(self, one.name) and _amount(wanted, one.unit) for one in LIMITS)

    def encode(self) -> dict[str, Any]:
        """The terms as they stand in the ledger."""
        return dict(json.loads(json.dumps(asdict(self), default=float)))

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> Terms:
        """Read terms; those of earlier versions know no limits by the day."""
        values: dict[str, Any] = {
            key: int(record[key]) for key in ("teammate_tokens", "team_tokens")
        }
        values |= {key: Decimal(str(record[key])) for key in ("teammate_usd", "team_usd")}
        return cls(
            **values,
            team_tokens_per_day=int(record.get("team_tokens_per_day", 0)),
            team_usd_per_day=Decimal(str(record.get("team_usd_per_day", 0))),
            usd_per_day_is_default=record.get("usd_per_day_is_default") is True,
            prices=dict(record["prices"]),
        )


@dataclass(slots=True)
class Accounts:
    """All accounts, and what is kept back for calls under way.

    Attributes:
        used: by each teammate, in all time.
        days: what all have used on each day.
        held: calls under way, by their ids.
        refused: of each teammate that was refused one, its last call.
        raised: by how much more a person lets a limit go, by its name and whom or when it is for.
    """

    terms: Terms = field(default_factory=Terms)
    used: dict[str, Account] = field(default_factory=dict)
    days: dict[str, Account] = field(default_factory=dict)
    held: dict[str, Reservation] = field(default_factory=dict)
    refused: dict[str, Reservation] = field(default_factory=dict)
    raised: dict[tuple[str, str], Decimal] = field(default_factory=dict)

    def total(self) -> Account:
        """The sum of what all have used."""
        return sum(self.used.values(), NOTHING)

    def charge(self, name: str, account: Account) -> None:
        """Add to what a teammate has used."""
        self.used[name] = self.used.get(name, NOTHING) + account

    def charge_day(self, day: str, account: Account) -> None:
        """Add to what all have used on a day; calls of earlier versions name none."""
        if day:
            self.days[day] = self.days.get(day, NOTHING) + account

    def close(self, reservation: Reservation, account: Account) -> None:
        """Put what a call has taken in the place of what was kept back for it."""
        del self.held[reservation.id]
        self.charge(reservation.teammate, account)
        self.charge_day(reservation.day, account)

    def lift(self, raised: Raise) -> None:
        """Let a limit go further."""
        place = (raised.limit, raised.of)
        self.raised[place] = self.raised.get(place, Decimal(0)) + raised.amount

    def with_raised(self, raises: Iterable[Raise]) -> Accounts:
        """The accounts as they would be with limits raised."""
        lifted = replace(self, raised=dict(self.raised))
        for one in raises:
            lifted.lift(one)
        return lifted

    def orphans(self, is_alive: Callable[[Identity], bool]) -> list[Reservation]:
        """Reservations of processes that are gone."""
        return [kept for kept in self.held.values() if not is_alive(kept.process)]

    def refusal(self, wanted: Reservation) -> Refusal | None:
        """Why a call must not be made now, if it must not."""
        return next(iter(self.refusals(wanted)), None)

    def refusals(self, wanted: Reservation) -> list[Refusal]:
        """All reasons why a call must not be made now, first what does not pass by itself."""
        if wanted.usd is None and (money := self.terms.of_money):
            return [refuse_unpriced(wanted.model, money)]
        found = (self._over(limit, wanted) for limit in LIMITS)
        return sorted(filter(None, found), key=attrgetter("rank"))

    def most(self, limit: Limit, of: str) -> Decimal:
        """Return what a limit allows, with what it was raised by; 0 for no limit."""
        most = Decimal(getattr(self.terms, limit.name))
        return most + self.raised.get((limit.name, of), Decimal(0)) if most else most

    def _over(self, limit: Limit, wanted: Reservation) -> Refusal | None:
        """Why one limit forbids a call, if it does."""
        of, unit = _whom(limit, wanted), limit.unit
        most, asked = self.most(limit, of), _amount(wanted, unit)
        if not most or not asked:
            return None
        used = _amount(self._used(limit, of), unit)
        held = sum((_amount(kept, unit) for kept in self._held(limit, of)), Decimal(0))
        if used + asked + held <= most:
            return None
        spender = of if limit.who == "teammate" else "the team"
        raised = self.raised.get((limit.name, of), Decimal(0))
        figures = Figures(spender=spender, used=used, most=most, raised=raised, wanted=asked)
        return refuse(limit, of, figures)

    def _used(self, limit: Limit, of: str) -> Account:
        if limit.daily:
            return self.days.get(of, NOTHING)
        return self.used.get(of, NOTHING) if limit.who == "teammate" else self.total()

    def _held(self, limit: Limit, of: str) -> Iterator[Reservation]:
        return (kept for kept in self.held.values() if _whom(limit, kept) == of)


def _whom(limit: Limit, call: Reservation) -> str:
    """Return whose use, or that of which day, a limit counts a call to; empty for all together."""
    if limit.daily:
        return call.day
    return call.teammate if limit.who == "teammate" else ""


def _amount(taken: Account | Reservation, unit: str) -> Decimal:
    """Return what was used or is kept back; a price that is not known counts for nothing."""
    return Decimal(getattr(taken, unit) or 0)
