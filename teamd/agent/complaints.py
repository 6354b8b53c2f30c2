"""What a pause is about: the lead is told of each trouble once, however it is worded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from teamd.models import LimitError, UnusableError
from teamd.remedies import again

if TYPE_CHECKING:
    from teamd.models import Ask

_DIGITS: Final = re.compile(r"\d+")
_OUTAGE: Final = "an outage"


def gist(error: UnusableError) -> str:
    """What two sentences on the same trouble have in common."""
    if isinstance(error, LimitError):
        return error.key  # others' calls change its figures
    if error.again_in_seconds is not None:
        return _OUTAGE  # it fails in another way each time, and ends without anybody's help
    return _DIGITS.sub("0", str(error))  # a conversation that is too long grows with each mail


def context_full(ask: Ask) -> UnusableError:
    """A reply that filled the context to its end: the next request would be too long."""
    return UnusableError(
        f"the conversation is too long for {ask.model}, whose last reply had no room to end; "
        f"begin anew with {again(ask.asker, '--fresh')}"
    )
