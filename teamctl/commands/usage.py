"""`teamctl usage`: tokens and cost of each teammate, and how much of the limits is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from teamctl import output
from teamd.budget.accounts import NOTHING, Account, Reservation
from teamd.budget.ledger import Ledger
from teamd.cli import Choice, team_options
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.budget.accounts import Accounts
    from teamd.files.paths import TeamPaths

_HEADINGS = ("NAME", "CALLS", "IN", "READ", "WRITTEN", "OUT", "COST", "LIMIT", "USED")


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
    *members, total = _uses(paths, accounts)
    if as_json:
        named = [{"name": row.name, **row.to_json()} for row in members]
        output.print_json({"members": named, "total": total.to_json()})
        return
    rows = (row.cells() for row in (*members, total))
    output.print_table(_HEADINGS, rows, _HEADINGS[1:])
    _print_notes(total.account)


@dataclass(frozen=True, slots=True)
class _Use:
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
        limits = (
            (self.account.tokens, self.tokens_limit, f"{output.count(self.tokens_limit)} tokens"),
            (float(self.account.usd), self.usd_limit, f"${self.usd_limit:.2f}"),
        )
        return [(used / limit, words) for used, limit, words in limits if limit]

    def to_json(self) -> dict[str, Any]:
        """The line as `--json` shows it; 0 calls of unknown price leave the cost known."""
        return {
            **self.account.encode(),
            "tokens": self.account.tokens,
            "usd": output.known_usd(self.account),
            "reserved_tokens": sum(kept.tokens for kept in self.held),
            "reserved_usd": float(sum(kept.usd or 0 for kept in self.held)),
            "tokens_limit": self.tokens_limit or None,
            "usd_limit": self.usd_limit or None,
            "share": max((share for share, _ in self.shares), default=None),
        }

    def cells(self) -> list[str]:
        """The line of the table; of two limits the one that is nearer."""
        used = self.account
        sent = (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens)
        tokens = map(output.count, (*sent, used.output_tokens))
        share, limit = max(self.shares, default=(None, "-"))
        shown = "-" if share is None else f"{share:.1%}"
        return [self.name, str(used.calls), *tokens, output.cost(used), limit, shown]


def _uses(paths: TeamPaths, accounts: Accounts) -> list[_Use]:
    """Return the use of each member, of those who once were in the team, and last of all."""
    roster = [member.name for member in Roster(paths).read().members]
    held, terms = tuple(accounts.held.values()), accounts.terms
    names = dict.fromkeys([*roster, *accounts.used, *(kept.teammate for kept in held)])
    members = []
    for name in names:
        own = tuple(kept for kept in held if kept.teammate == name)
        used = accounts.used.get(name, NOTHING)
        members.append(_Use(name, used, own, terms.teammate_tokens, float(terms.teammate_usd)))
    total = _Use("total", accounts.total(), held, terms.team_tokens, float(terms.team_usd))
    return [*members, total]


def _print_notes(total: Account) -> None:
    if total.unpriced_calls:
        hint = '[prices."model-name"] in team.toml tells it for calls to come'
        click.echo(f"the price of {total.unpriced_calls} calls is not known; {hint}")
    if total.assumed_calls:
        why = "were cut off, or their server did not tell what they took"
        most = "they count with the most that they may have taken"
        click.echo(f"{total.assumed_calls} calls {why}: {most}")
