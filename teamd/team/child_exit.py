"""What the log and the supervisor are told by a child that ends of an error."""

from __future__ import annotations

import errno
from typing import Final

from teamd.errors import StoreError, TeamError
from teamd.journal import Journal, LoggedEvent
from teamd.team.states import ChildExit

# However long it lasts, and however often it is met: no fault of the child.
_FAULTS_OF_THE_MACHINE: Final = (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EROFS,
)  # fmt: skip


def explain_exit(journal: Journal, error: Exception) -> ChildExit:
    """Write down why a child ends, and return the exit code that says so."""
    match error:
        case StoreError():
            journal.error("a file could not be read or written", error)
            return ChildExit.IO
        case TeamError():
            journal.error("refused", error)
            return ChildExit.SETTINGS
    journal.error(LoggedEvent.CRASHED, error)
    fault = isinstance(error, OSError) and error.errno in _FAULTS_OF_THE_MACHINE
    return ChildExit.IO if fault or isinstance(error, MemoryError) else ChildExit.CRASHED
