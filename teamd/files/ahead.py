"""A sync that goes on in a thread while its process does other things, until it waits for it.

The thread does little but system calls, without Python's lock. It has a descriptor of its own:
the other one may be closed meanwhile, and its number be another file's.
"""

from __future__ import annotations

import _thread  # threads of `threading` are waited for as they start: another switch of tasks
import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from teamd.files import directories, files


class SyncAhead:
    """The sync of one open file; it begins as this is made.

    Args:
        fd: the file's; it may be closed then.
        folder: in which the file's name is, where that is not on the disk yet: it comes first.
        safe: how many bytes of it are on the disk by now. The others go if the disk fails; `None`
            for a file that others write to as well, of which nothing is taken back.

    Raises:
        OSError: there are no more descriptors.
        RuntimeError: there are no more threads.
    """

    def __init__(self, fd: int, *, safe: int | None, folder: Path | None = None) -> None:
        self._safe, self._folder = safe, folder
        self._error: OSError | None = OSError(errno.EIO, os.strerror(errno.EIO))  # until it is done
        self._fd = os.dup(fd)
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        _thread.start_new_thread(self._sync, ())

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        with suppress(OSError, AttributeError):  # none, where it was never made
            fd, self._fd = self._fd, -1
            os.close(fd)

    @classmethod
    def begin(cls, fd: int, *, safe: int | None, folder: Path | None = None) -> Self | None:
        """Begin one; `None` where that cannot be: whoever needs it syncs later, as without it."""
        with suppress(OSError, RuntimeError):
            return cls(fd, safe=safe, folder=folder)
        return None

    def wait(self) -> None:
        """Return once what the file held at the begin is on the disk.

        Raises:
            OSError: the disk failed; what was to be taken back is. To sync again says nothing: the
                kernel tells of a failure once.
        """
        with self._ended:
            if self._error is None:
                return
        if self._safe is not None and os.fstat(self._fd).st_size > self._safe:
            os.ftruncate(self._fd, self._safe)
        raise self._error

    def _sync(self) -> None:
        try:
            if self._folder is not None:
                directories.sync_directory(self._folder)
            files.sync(self._fd)
            self._error = None
        except OSError as error:
            self._error = error
        finally:
            if self._safe is None:  # nothing will be taken back
                self._close()
            self._ended.release()
