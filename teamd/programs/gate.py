"""A gate that holds a command in a sandbox back until all around it is ready.

bubblewrap says there who the first process of the sandbox is. That comes to it once every mount
stands, and goes on when it is let. The same socket takes its report at the end.
"""

from __future__ import annotations

import errno
import json
import socket
from contextlib import suppress
from typing import Final

# In the first process, where the socket is descriptor 9.
WAIT: Final = "echo ready >&9\nread -r _ <&9 || exit 1\n"
_READY: Final = b"ready\n"
_FIRST: Final = b"}\n"  # the end of what bubblewrap says, see `--info-fd` in bwrap(1)
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

    def first(self) -> int:
        """Wait for the first process of the sandbox; its pid.

        Raises:
            OSError: bubblewrap has ended without one, or takes too long.
        """
        self.theirs.close()
        return int(json.loads(self._heard(_FIRST))["child-pid"])

    def wait(self) -> None:
        """Wait until the command could begin.

        Raises:
            OSError: the sandbox has ended before, or takes too long.
        """
        self._heard(_READY)

    def _heard(self, end: bytes) -> bytes:
        """Wait for words that end so."""
        while end not in self._said:
            chunk = self._ours.recv(1 << 10)
            if not chunk:
                raise OSError(errno.EPERM, "the sandbox could not be made")
            self._said += chunk
        words, _, self._said = self._said.partition(end)
        return words + end

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
