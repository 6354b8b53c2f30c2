"""Tokens and cost of each member and of each day, and how much of the limits that is."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from teamd.budget import days
from teamd.budget.accounts import NOTHING
from teamd.budget.ledger import Ledger
from teamd.budget.refusals import LIMITS

if TYPE_CHECKING:
    from teamd.budget.accounts import Account, Accounts
    from teamd.files.paths import TeamPaths


def read_usage(paths: TeamPaths) -> dict[str, Any]:
    """Return what everybody has used, what all have, and what each day has cost."""
    accounts = Ledger(paths.ledger).read()
    today = accounts.days.get(days.today(), NOTHING)
    total = accounts.total()
    return {
        "members": [
            {"name": name, **_to_json(used), **_limits(accounts, "teammate", name, used, NOTHING)}
            for name, used in sorted(accounts.used.items())
        ],
        "total": {**_to_json(total), **_limits(accounts, "team", "", total, today)},
        "days": [{"day": day, **_to_json(used)} for day, used in sorted(accounts.days.items())],
    }


def _to_json(account: Account) -> dict[str, Any]:
    return {**account.encode(), "tokens": account.tokens, "usd": account.known_usd}


def _limits(
    accounts: Accounts, who: str, name: str, used: Account, today: Account
) -> dict[str, Any]:
    """Return each limit in force with the share of it that is used, and the largest share."""
    limits: list[dict[str, Any]] = []
    for limit in LIMITS:
        most = accounts.most(limit, days.today() if limit.daily else name)
        if limit.who == who and most:
            taken = Decimal(getattr(today if limit.daily else used, limit.unit))
            share = float(taken / most)
            limits.append({"name": limit.name, "most": float(most), "share": share})
    return {"limits": limits, "share": max((one["share"] for one in limits), default=None)}
