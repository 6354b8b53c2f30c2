"""What the page shows of tokens and cost: of each member, of the team, and of each day."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from teamd.budget.ledger import Ledger
from teamd.files.paths import TeamPaths
from teamd.overview.usage import Use, read_uses


def read_usage(paths: TeamPaths) -> dict[str, Any]:
    """Return what everybody has used, what all have, and what each day has cost."""
    accounts = Ledger(paths.ledger).read()
    members, total = read_uses(paths, accounts)
    return {
        "members": [{"name": one.name, **_to_json(one)} for one in members],
        "total": _to_json(total),
        "days": [
            {"day": day, **used.encode(), "tokens": used.tokens, "usd": used.known_usd}
            for day, used in sorted(accounts.days.items())
        ],
    }


def _to_json(use: Use) -> dict[str, Any]:
    limits = [{**asdict(one), "most": float(one.most)} for one in use.shares]
    return {**use.to_json(), "limits": limits}
