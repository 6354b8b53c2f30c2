"""The ends of processes: described, and noted in the mail that may be to blame."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError
from teamd.mail.mailbox import Mailbox
from teamd.states import ChildExit

if TYPE_CHECKING:
    from teamd.files.paths import TeamPaths
    from teamd.journal import Journal

# What a process does to itself. SIGKILL and SIGTERM come from outside: a person, a full memory.
_FATAL: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
)


def describe_exit(code: int) -> str:
    """Say why a process ended, by its exit code (negative: the signal)."""
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    if code == ChildExit.STOPPED:
        return "its process ended although nobody had asked for it"
    if code == ChildExit.IO:
        return "a file of its could not be read or written"
    return f"its process ended with exit code {code}"


def crashed_by_itself(code: int) -> bool:
    """Return whether an exit code proves that the process itself went wrong."""
    return code == ChildExit.CRASHED or -code in _FATAL


def blame_delivery(paths: TeamPaths, journal: Journal, name: str, pid: int, code: int) -> None:
    """Note in a teammate's mail that its process crashed with a delivery in hand.

    The note is evidence, no more: where it cannot be written, the message is delivered once more.
    """
    if not crashed_by_itself(code):
        return
    try:
        if Mailbox(paths, name, durable=False).blame(pid):
            journal.warn("crashed with mail in hand", name=name, pid=pid)
    except StoreError as error:
        journal.error("blame not noted", error, name=name, pid=pid)
