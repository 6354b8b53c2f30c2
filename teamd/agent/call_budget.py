"""The budget of model calls: one count for a wake, and for all that is done within it."""

from __future__ import annotations


class CallBudget:
    """So many model calls, taken one by one, by a teammate and its foreground subagents alike.

    Attributes:
        most: how many there are.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most

    def renew(self) -> None:
        """Begin a wake: all of them are left."""
        self._left = self.most

    def take(self) -> bool:
        """Take one for the call that comes next; return whether there was one."""
        if not self._left:
            return False
        self._left -= 1
        return True
