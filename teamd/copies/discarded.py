"""The refs that keep what was discarded, for as long as the person may want it back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from teamd.copies.source import Source

DISCARDED: Final = "refs/teamd/discarded"
_KEPT_DAYS: Final = 30
_TIME: Final = "%Y%m%dT%H%M%SZ"
_TIME_IN_REF: Final = re.compile(r".*/(\d{8}T\d{6}Z)")  # in the order of their letters


def now_in_refs() -> str:
    """Return the time as it stands in the name of a ref, in UTC."""
    return datetime.now(UTC).strftime(_TIME)


def sweep_discarded(source: Source) -> None:
    """Remove the refs to what was discarded more than 30 days ago."""
    oldest = (datetime.now(UTC) - timedelta(days=_KEPT_DAYS)).strftime(_TIME)
    for ref in source.ask("for-each-ref", "--format=%(refname)", DISCARDED).splitlines():
        when = _TIME_IN_REF.match(ref)  # the last: a name may look like one
        if when and when[1] < oldest:
            source.remove_ref(ref)
