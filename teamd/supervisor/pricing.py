"""Prices of model calls, for spawns and raised limits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from teamd.budget.account import Reservation
from teamd.budget.accounts import Terms
from teamd.budget.limits import refuse_unpriced
from teamd.budget.prices import Price, Prices
from teamd.errors import TeamError
from teamd.supervisor.team_context import TeamContext
from teamd.team.member import Member


def current_price(wanted: Reservation, terms: Terms) -> Reservation:
    """Return a call at the current price of its model; a free call stays free."""
    if wanted.usd == 0:
        return wanted
    price = _find_price(wanted.model, terms)
    usd = None if price is None else price.most(wanted.input_tokens, wanted.output_tokens)
    return replace(wanted, usd=usd)


def check_price(context: TeamContext, role: str, model: str | None) -> None:
    """Check that the cost of a teammate's calls is known if there is a limit on money.

    Args:
        context: the team.
        role: the teammate's.
        model: its own; `None` for that of its role or of the settings.

    Raises:
        TeamError: the price of its model is not known, and no limit on tokens bounds it.
    """
    terms = Terms.of(context.settings.now)
    limit = terms.unpriced_limit
    if limit is None or not context.settings.now.model.asks_server:
        return
    model = model or _usual_model(context, role)
    if _find_price(model, terms) is None:
        refusal = refuse_unpriced(model, limit)
        raise TeamError(f"{refusal.why}; {refusal.remedy} in team.toml, then try again")


def warn_of_price(context: TeamContext, member: Member) -> str | None:
    """Return a warning if the default limit on money does not count the calls of a teammate.

    The price of a local model, for example, is not known.
    """
    settings = context.settings.now
    terms = Terms.of(settings)
    tokens = (terms.teammate_tokens, terms.team_tokens, terms.team_tokens_per_day)
    if not settings.model.asks_server or terms.of_money or any(tokens):
        return None
    model = member.model or _usual_model(context, member.role)
    if not terms.team_usd_per_day or _find_price(model, terms) is not None:
        return None
    return (
        f"what {model} costs is not known, so limits.team_usd_per_day does not count the calls of "
        f"{member.name}; set limits.team_tokens_per_day in team.toml to bound them"
    )


def _usual_model(context: TeamContext, name: str) -> str:
    """Return the model of a role, or else of the settings."""
    role = None
    with suppress(TeamError):  # an invalid file; the teammate's process reports it
        role = context.program.find_role(name)
    return (role.model if role else None) or context.settings.now.model.name


def _find_price(model: str, terms: Terms) -> Price | None:
    return Prices(terms.prices).find(model)
