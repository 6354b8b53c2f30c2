"""Log why a child process ends with an error, and choose its exit code."""

from __future__ import annotations

import errno
from typing import Final

from teamd.errors import StoreError, TeamError
from teamd.journal import Journal, LoggedEvent
from teamd.team.states import ChildExit

# Errors of the machine, not of the child, however long and often they occur.
_FAULTS_OF_THE_MACHINE: Final = (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EROFS,
)  # fmt: skip


def explain_exit(journal: Journal, error: Exception) -> ChildExit:
    """Log why a child process ends, and return the matching exit code."""
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
