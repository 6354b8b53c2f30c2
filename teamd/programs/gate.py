"""A gate that holds a command in a sandbox back until all around it is ready.

The first process of the sandbox comes to it once every mount stands, and goes on when it is let.
The same socket takes its report at the end.
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import Final

# In the first process, where the socket is descriptor 9.
WAIT: Final = "echo ready >&9\nread -r _ <&9 || exit 1\n"
_READY: Final = b"ready\n"
_SECONDS: Final = 60.0  # a sandbox takes milliseconds


class Gate:
    """One command's gate.

    Attributes:
        theirs: the end that is the first process's standard input.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.settimeout(_SECONDS)
        self._said = b""

    def wait(self) -> None:
        """Wait until the command could begin.

        Raises:
            OSError: the sandbox has ended before, or takes too long.
        """
        self.theirs.close()
        while _READY not in self._said:
            chunk = self._ours.recv(len(_READY))
            if not chunk:
                raise OSError(errno.EPERM, "the sandbox could not be made")
            self._said += chunk
        self._said = self._said.removeprefix(_READY)

    def open(self) -> None:
        """Let the command begin."""
        self._ours.setblocking(False)
        with suppress(OSError):  # it has just been killed
            self._ours.send(b"\n")

    def report(self) -> bytes:
        """Return what the first process has said since it began."""
        with suppress(OSError):
            self._said += self._ours.recv(1 << 10)
        return self._said

    def close(self) -> None:
        """Give the sockets back; a command that has not begun ends instead."""
        self.theirs.close()
        self._ours.close()
