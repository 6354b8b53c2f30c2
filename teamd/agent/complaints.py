"""What the lead is told when a teammate cannot go on: the same once, until it could again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from teamd.models import UnusableError

if TYPE_CHECKING:
    from collections.abc import Callable

_DIGITS: Final = re.compile(r"\d+")


class Complaints:
    """The complaints of one teammate.

    Args:
        name: the teammate's.
        tell: reaches the lead.
    """

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        self._name = name
        self._tell = tell
        self._told: str | None = None

    def make(self, error: UnusableError) -> None:
        """Tell the lead, unless that is what was told last."""
        if (gist := _gist(error)) != self._told:
            self._told = gist
            self._tell(f"{self._name} is paused: {error}")

    def settled(self) -> None:
        """It could go on: what comes now is news."""
        self._told = None


def context_full(model: str) -> UnusableError:
    """A reply that filled the context to its end: the next request would be too long."""
    return UnusableError(
        f"the conversation is too long for {model}, whose last reply had no room to end; "
        "begin anew with --fresh"
    )


def _gist(error: UnusableError) -> str:
    """What two sentences on the same trouble have in common."""
    if error.again_in_seconds is not None:
        return ""  # an outage: it fails in another way each time, and ends without anybody's help
    return _DIGITS.sub("0", str(error))  # a conversation that is too long grows with each mail
