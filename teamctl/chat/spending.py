"""The time and cost since a given moment."""

from __future__ import annotations

import time
from dataclasses import replace

from teamctl.render import output
from teamd.budget.account import NOTHING, Account
from teamd.budget.ledger import Ledger
from teamd.errors import TeamError
from teamd.files.file_stamp import remember
from teamd.files.paths import TeamPaths


class Spending:
    """The time and the cost of the whole team since this object was made."""

    def __init__(self, paths: TeamPaths) -> None:
        self._ledger = Ledger(paths.ledger)
        self._account = remember(paths.ledger, self._read)
        self._began = time.monotonic()
        self._before = self._account()

    def describe(self) -> str:
        """Return the time and, if a model was called, the cost, such as `2m, $0.0310`."""
        now, before = self._account(), self._before
        spent = replace(
            now,
            usd=now.usd - before.usd,
            unpriced_calls=max(0, now.unpriced_calls - before.unpriced_calls),
        )
        seconds = output.duration(time.monotonic() - self._began)
        return f"{seconds}, {output.cost(spent)}" if now.calls > before.calls else seconds

    def _read(self) -> Account:
        try:
            return self._ledger.read().total()
        except TeamError:  # a later look may read it
            return NOTHING
