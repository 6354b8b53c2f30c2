"""Which ends of a process are its own doing, and what it had in hand then."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError
from teamd.states import ChildExit
from teamd.store.mailbox import Mailbox

if TYPE_CHECKING:
    from teamd.journal import Journal
    from teamd.store.paths import TeamPaths

# What a process does to itself. SIGKILL and SIGTERM come from outside: a person, a full memory.
_FATAL: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
)


def crashed_by_itself(code: int) -> bool:
    """Whether an exit code (negative: the signal) proves that the process itself went wrong."""
    return code == ChildExit.CRASHED or -code in _FATAL


class Blame:
    """Notes in a teammate's mail that its process crashed with a delivery in hand.

    It is evidence, no more: where it cannot be noted, or nobody is there to note it, the message
    is delivered once more.
    """

    def __init__(self, paths: TeamPaths, journal: Journal) -> None:
        self._paths = paths
        self._journal = journal

    def __call__(self, name: str, process: int, code: int) -> None:
        """Take note of how a process of a teammate has ended."""
        if not crashed_by_itself(code):
            return
        try:
            if Mailbox(self._paths, name, durable=False).blame(process):
                self._journal.warn("crashed with mail in hand", name=name, pid=process)
        except StoreError as error:
            self._journal.error("blame not noted", error, name=name, pid=process)
