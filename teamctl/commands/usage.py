"""`teamctl usage`: tokens and cost, of each teammate and of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from teamctl import output
from teamd.budget.ledger import Ledger
from teamd.budget.records import NOTHING, Account, Reservation
from teamd.cli import Choice, team_options
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from teamd.budget.accounts import Accounts
    from teamd.files.paths import TeamPaths

HEADINGS = ("NAME", "CALLS", "IN", "READ", "WRITTEN", "OUT", "COST", "LIMIT", "USED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: what was used, what is kept back for calls under way, and how much there may be.

    Attributes:
        tokens_limit: 0 for none.
        usd_limit: 0 for none.
    """

    name: str
    account: Account
    held: tuple[Reservation, ...]
    tokens_limit: int
    usd_limit: float

    @property
    def shares(self) -> list[tuple[float, str]]:
        """Of each limit the share that is used, from 0 to 1, and the limit in words."""
        tokens = self.tokens_limit and self.account.tokens / self.tokens_limit
        usd = self.usd_limit and float(self.account.usd) / self.usd_limit
        return [
            (share, words)
            for limit, share, words in (
                (self.tokens_limit, tokens, f"{output.count(self.tokens_limit)} tokens"),
                (self.usd_limit, usd, f"${self.usd_limit:.2f}"),
            )
            if limit
        ]

    def to_json(self) -> dict[str, Any]:
        """The line as `--json` shows it; 0 calls of unknown price leave the cost known."""
        used = self.account
        return {
            "calls": used.calls,
            "input_tokens": used.input_tokens,
            "cache_read_tokens": used.cache_read_tokens,
            "cache_write_tokens": used.cache_write_tokens,
            "output_tokens": used.output_tokens,
            "tokens": used.tokens,
            "usd": output.known_usd(used),
            "unpriced_calls": used.unpriced_calls,
            "assumed_calls": used.assumed_calls,
            "reserved_tokens": sum(kept.tokens for kept in self.held),
            "reserved_usd": float(sum(kept.usd or 0 for kept in self.held)),
            "tokens_limit": self.tokens_limit or None,
            "usd_limit": self.usd_limit or None,
            "share": max((share for share, _ in self.shares), default=None),
        }

    def cells(self) -> list[str]:
        """The line of the table; of two limits the one that is nearer."""
        used = self.account
        share, limit = max(self.shares, default=(None, "-"))
        counts = (
            used.input_tokens,
            used.cache_read_tokens,
            used.cache_write_tokens,
            used.output_tokens,
        )
        return [
            self.name,
            str(used.calls),
            *map(output.count, counts),
            output.cost(used),
            limit,
            "-" if share is None else f"{share:.1%}",
        ]


@click.command()
@output.json_option
@team_options
def command(choice: Choice, *, as_json: bool) -> None:
    """Show the tokens and the cost of each teammate and of the team, since the team began.

    IN counts all tokens sent; READ and WRITTEN count those of them that came from the prompt
    cache or went into it. LIMIT is the limit that is nearer, of tokens and money, and USED how
    much of it is used. The command works without teamd.
    """
    paths = choice.existing()
    accounts = Ledger(paths.ledger).read()
    members, total = _members(paths, accounts), _total(accounts)
    if as_json:
        named = [{"name": row.name, **row.to_json()} for row in members]
        output.print_json({"members": named, "total": total.to_json()})
        return
    table = output.table(HEADINGS, numbers=HEADINGS[1:])
    for row in (*members, total):
        table.add_row(*row.cells())
    output.console().print(table)
    for note in _notes(total.account):
        click.echo(note)


def _members(paths: TeamPaths, accounts: Accounts) -> list[Row]:
    """Return a row for each of the roster, in its order, and for those who once were in it."""
    roster = [member.name for member in Roster(paths).read().members]
    names = dict.fromkeys([*roster, *accounts.used, *_bearers(accounts.held.values())])
    terms = accounts.terms
    return [
        Row(
            name=name,
            account=accounts.used.get(name, NOTHING),
            held=tuple(kept for kept in accounts.held.values() if kept.teammate == name),
            tokens_limit=terms.teammate_tokens,
            usd_limit=float(terms.teammate_usd),
        )
        for name in names
    ]


def _bearers(held: Iterable[Reservation]) -> list[str]:
    return [kept.teammate for kept in held]


def _total(accounts: Accounts) -> Row:
    return Row(
        name="total",
        account=accounts.total(),
        held=tuple(accounts.held.values()),
        tokens_limit=accounts.terms.team_tokens,
        usd_limit=float(accounts.terms.team_usd),
    )


def _notes(total: Account) -> list[str]:
    notes = []
    if total.unpriced_calls:
        notes.append(
            f"the price of {total.unpriced_calls} calls is not known; "
            '[prices."model-name"] in team.toml tells it for calls to come'
        )
    if total.assumed_calls:
        notes.append(
            f"{total.assumed_calls} calls were cut off, or their server did not tell what they "
            "took: they count with the most that they may have taken"
        )
    return notes
