"""The reason of a pause: the lead is told of each trouble once, however it is worded."""

from __future__ import annotations

import re
from typing import Final

from teamd.models import LimitError, UnusableError

_DIGITS: Final = re.compile(r"\d+")
_OUTAGE: Final = "an outage"


def pause_reason(error: UnusableError) -> str:
    """Return what all sentences about the same trouble have in common."""
    if isinstance(error, LimitError):
        return error.key  # others' calls change its figures
    if error.again_in_seconds is not None:
        return _OUTAGE  # it fails in another way each time, and ends without anybody's help
    return _DIGITS.sub("0", str(error))  # a conversation that is too long grows with each mail
