"""What goes wrong with a shared file, as a sentence that says what to do."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from teamd.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` about `path` into a `StoreError` whose sentence says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(_sentence(error, path)) from error


def check_regular(fd: int) -> None:
    """Refuse a folder or a FIFO, which would let its reader wait for ever.

    Raises:
        OSError: it is one.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _sentence(error: OSError, path: Path) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return f"no space left for {path}; free some and try again"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"{path} may not be accessed ({error.strerror}); check its owner and mode"
        case errno.ENOENT | errno.ENOTDIR:
            return f"{path} has gone; is the team directory still there?"
        case errno.EMFILE | errno.ENFILE:
            return f"too many open files to open {path}; raise `ulimit -n`"
        case _:
            return f"{path}: {error.strerror or error}; `teamctl doctor` checks the machine"
