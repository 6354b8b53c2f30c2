"""A sync that goes on in a thread while its process does other things, until it waits for it.

The thread does nothing but one system call, without Python's lock. It has a descriptor of its own:
the other one may be closed meanwhile, and its number be another file's.
"""

from __future__ import annotations

import _thread  # threads of `threading` are waited for as they start: another switch of tasks
import os
from contextlib import suppress

from teamd.files import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class SyncAhead:
    """The sync of one open file, begun as this is made."""

    def __init__(self, fd: int) -> None:
        """Begin.

        Raises:
            OSError: there are no more descriptors.
            RuntimeError: there are no more threads.
        """
        self._fd = os.dup(fd)
        self._error: OSError | None = None
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        try:
            _thread.start_new_thread(self._sync, ())
        except RuntimeError:
            os.close(self._fd)
            raise

    @classmethod
    def begin(cls, fd: int) -> Self | None:
        """Begin one; `None` where that cannot be: whoever needs it syncs later, as without it."""
        with suppress(OSError, RuntimeError):
            return cls(fd)
        return None

    def wait(self) -> None:
        """Return once what the file held at the begin is on the disk.

        Raises:
            OSError: the disk failed. To sync again says nothing: the kernel tells of it once.
        """
        with self._ended:
            if self._error is not None:
                raise self._error

    def _sync(self) -> None:
        try:
            files.sync(self._fd)
        except OSError as error:
            self._error = error
        finally:
            with suppress(OSError):
                os.close(self._fd)
            self._ended.release()
