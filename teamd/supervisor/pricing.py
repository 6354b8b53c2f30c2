"""The cost of model calls as the supervisor sees it: at prices of now, or not known."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from teamd.budget.accounts import Terms
from teamd.errors import TeamError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from teamd.budget.account import Reservation
    from teamd.models.prices import Price
    from teamd.supervisor.team_context import TeamContext
    from teamd.team.member import Member


def at_price_of_now(wanted: Reservation, terms: Terms) -> Reservation:
    """Return a call at the price that its model has now; what nobody charges for stays free."""
    if wanted.usd == 0:
        return wanted
    price = _find_price(wanted.model, terms)
    usd = None if price is None else price.most(wanted.input_tokens, wanted.output_tokens)
    return replace(wanted, usd=usd)


def warn_of_price(context: TeamContext, member: Member) -> str | None:
    """Return what a person should know of a teammate whose calls no limit counts, in a sentence.

    They pass the limit on money that holds where none is set: whatever a model on the machine
    itself costs, nobody wrote down its price.
    """
    settings = context.settings.now
    terms = Terms.of(settings)
    tokens = (terms.teammate_tokens, terms.team_tokens, terms.team_tokens_per_day)
    if settings.model.script is not None or terms.of_money or any(tokens):
        return None
    role = None
    with suppress(TeamError):  # its process will say what is wrong with it
        role = context.program.find_role(member.role)
    model = member.model or (role.model if role else None) or settings.model.name
    if not terms.team_usd_per_day or _find_price(model, terms) is not None:
        return None
    return (
        f"what {model} costs is not known, so limits.team_usd_per_day does not count the calls of "
        f"{member.name}; set limits.team_tokens_per_day in team.toml to bound them"
    )


def _find_price(model: str, terms: Terms) -> Price | None:
    from teamd.models.prices import Prices  # noqa: PLC0415 -- not before requests are taken

    return Prices(terms.prices).find(model)
