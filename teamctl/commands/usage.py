"""`teamctl usage`: tokens and cost of each teammate, and how much of the limits is used."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from teamctl import output
from teamctl.widths import Shape
from teamd import commandline, terminal
from teamd.budget import days
from teamd.budget.accounts import NOTHING, Account, Reservation
from teamd.budget.ledger import Ledger
from teamd.budget.refusals import LIMITS, USD
from teamd.commandline import team_options
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teamd.budget.accounts import Accounts
    from teamd.cli import Choice
    from teamd.files.paths import TeamPaths

_PER_DAY: Final = "_per_day"
_SHAPE = Shape(
    elastic={"NAME": 12},
    dispensable=("WRITTEN", "READ", "LIMIT", "CALLS", "OUT", "IN", "USED"),
)
_HEADINGS = ("NAME", "CALLS", "IN", "READ", "WRITTEN", "OUT", "COST", "LIMIT", "USED")


@commandline.command()
@output.json_option
@team_options
def command(choice: Choice, *, as_json: bool) -> None:
    """Show the tokens and the cost of each teammate and of the team, since the team began.

    IN counts all tokens sent; READ and WRITTEN count those of them that came from the prompt
    cache or went into it. LIMIT is the limit that is nearest, of tokens and money, of all time and
    of today, with what `teamctl resume` has raised it by, and USED how much of it is used. The
    command works without teamd.
    """
    paths = choice.existing()
    accounts = Ledger(paths.ledger).read()
    *members, total = _uses(paths, accounts)
    if as_json:
        named = [{"name": row.name, **row.to_json()} for row in members]
        output.print_json({"members": named, "total": total.to_json()})
        return
    rows = (row.cells() for row in (*members, total))
    output.print_table(_HEADINGS, rows, _HEADINGS[1:], _SHAPE)
    _print_notes((*members, total))


@dataclass(frozen=True, slots=True)
class _Use:
    """One line: what was used, what is kept back for calls under way, and how much there may be.

    Attributes:
        today: what was used today; `None` where no limit of a day counts it.
        limits: by their names without who they are for: `usd`, `tokens_per_day`; 0 for none.
        raised: the parts of them that are due to `teamctl resume`.
    """

    name: str
    account: Account
    held: tuple[Reservation, ...]
    today: Account | None
    limits: dict[str, Decimal]
    raised: dict[str, Decimal]

    @property
    def shares(self) -> list[tuple[float, str]]:
        """Of each limit the share that is used, from 0 to 1, and the limit in words."""
        return [
            (float(self._used(key) / most), _in_words(key, most))
            for key, most in self.limits.items()
            if most
        ]

    def to_json(self) -> dict[str, Any]:
        """The line as `--json` shows it; 0 calls of unknown price leave the cost known."""
        return {
            **self.account.encode(),
            "tokens": self.account.tokens,
            "usd": self.account.known_usd,
            "reserved_tokens": sum(kept.tokens for kept in self.held),
            "reserved_usd": float(sum(kept.usd or 0 for kept in self.held)),
            **({} if self.today is None else _of_day(self.today)),
            **{f"{key}_limit": _number(key, most) or None for key, most in self.limits.items()},
            **{f"{key}_raised": _number(key, by) for key, by in self.raised.items()},
            "share": max((share for share, _ in self.shares), default=None),
        }

    def cells(self) -> list[str]:
        """The line of the table; of all limits the one that is nearest."""
        used = self.account
        sent = (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens)
        tokens = map(output.count, (*sent, used.output_tokens))
        share, limit = max(self.shares, default=(None, "-"))
        shown = "-" if share is None else f"{share:.1%}"
        return [self.name, str(used.calls), *tokens, output.cost(used), limit, shown]

    def _used(self, key: str) -> Decimal:
        account = (self.today or NOTHING) if key.endswith(_PER_DAY) else self.account
        return Decimal(getattr(account, key.removesuffix(_PER_DAY)))


def _uses(paths: TeamPaths, accounts: Accounts) -> list[_Use]:
    """Return the use of each member, of those who once were in the team, and last of all."""
    roster = [member.name for member in Roster(paths).read().members]
    held = tuple(accounts.held.values())
    names = dict.fromkeys([*roster, *accounts.used, *(kept.teammate for kept in held)])
    members = []
    for name in names:
        own = tuple(kept for kept in held if kept.teammate == name)
        used = accounts.used.get(name, NOTHING)
        members.append(_Use(name, used, own, None, *_limits(accounts, "teammate", name)))
    today = accounts.days.get(days.today(), NOTHING)
    total = _Use("total", accounts.total(), held, today, *_limits(accounts, "team", ""))
    return [*members, total]


def _limits(
    accounts: Accounts, who: str, name: str
) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """Return what the limits on a teammate or the team allow, and by how much they are raised."""
    limits, raised = {}, {}
    for limit in LIMITS:
        if limit.who == who:
            of = days.today() if limit.daily else name
            key = limit.name.removeprefix(f"{who}_")
            limits[key] = accounts.most(limit, of)
            raised[key] = accounts.raised.get((limit.name, of), Decimal(0))
    return limits, raised


def _of_day(today: Account) -> dict[str, Any]:
    return {"tokens_today": today.tokens, "usd_today": today.known_usd}


def _number(key: str, amount: Decimal) -> float:
    return float(amount) if key.startswith(USD) else int(amount)


def _in_words(key: str, most: Decimal) -> str:
    words = f"${most:.2f}" if key.startswith(USD) else f"{output.count(int(most))} tokens"
    return f"{words} a day" if key.endswith(_PER_DAY) else words


def _print_notes(uses: Sequence[_Use]) -> None:
    for use in uses:
        for key, by in use.raised.items():
            if by:
                terminal.echo(
                    f"of the limit of {use.name}, `teamctl resume` added {_in_words(key, by)}"
                )
    total = uses[-1].account
    if total.unpriced_calls:
        hint = '[prices."model-name"] in team.toml tells it for calls to come'
        bound = "and [limits] team_tokens_per_day bounds them without it"
        terminal.echo(f"the price of {total.unpriced_calls} calls is not known; {hint}, {bound}")
    if total.assumed_calls:
        why = "were cut off, or their server did not tell what they took"
        most = "they count with the most that they may have taken"
        terminal.echo(f"{total.assumed_calls} calls {why}: {most}")
