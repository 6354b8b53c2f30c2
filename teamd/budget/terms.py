"""From the settings to the terms of the ledger."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING

from teamd.budget.records import Terms

if TYPE_CHECKING:
    from teamd.settings import Settings


def terms_of(settings: Settings) -> Terms:
    """What the settings say of limits and prices."""
    limits = settings.limits
    return Terms(
        teammate_tokens=limits.teammate_tokens,
        teammate_usd=Decimal(str(limits.teammate_usd)),
        team_tokens=limits.team_tokens,
        team_usd=Decimal(str(limits.team_usd)),
        prices={model: asdict(price) for model, price in settings.prices.items()},
    )
