"""The pause of one teammate: from `teamctl pause` until `teamctl resume`, as the roster says."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from teamd.errors import StoreError
from teamd.team.roster import Roster


@dataclass(slots=True)
class Pause:
    """The pause that somebody has asked for, if one has."""

    name: str
    roster: Roster
    _why: str | None = None

    def why(self) -> str | None:
        """Return why the teammate rests, in a sentence; `None` where it may work."""
        with suppress(StoreError):  # a damaged roster is mended soon, and says then what it said
            member = self.roster.find(self.name)
            self._why = None if member is None else member.pause
        return self._why
