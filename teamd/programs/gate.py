"""A gate that holds a command in a sandbox back until all around it is ready."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress


class Gate:
    """Holds a command back until it is opened: bubblewrap's `--info-fd` and `--block-fd`."""

    def __init__(self) -> None:
        self._info, info = os.pipe()
        block, self._block = os.pipe()
        self.theirs: tuple[int, ...] = (info, block)
        self.options = ("--info-fd", str(info), "--block-fd", str(block))

    def wait(self) -> int:
        """Return the pid of the first process of the namespace.

        Raises:
            OSError: bubblewrap has ended without one.
        """
        self._close_theirs()
        said = b""
        while chunk := os.read(self._info, 1 << 10):
            said += chunk
            with suppress(ValueError, KeyError):
                return int(json.loads(said)["child-pid"])
        raise OSError(errno.EPERM, "the sandbox could not be made")

    def open(self) -> None:
        """Let the command begin."""
        self._close_theirs()
        for fd in (self._info, self._block):  # the end of the pipe lets it go
            os.close(fd)

    def _close_theirs(self) -> None:
        for fd in self.theirs:
            os.close(fd)
        self.theirs = ()
