"""A gate that holds a command in a sandbox back until all around it is ready.

bubblewrap says there who the first process of the sandbox is. That comes to it once every mount
stands, and goes on when it is let. The same socket takes its report at the end.
"""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

# In the first process, where the socket is descriptor 9.
WAIT: Final = "echo ready >&9\nread -r _ <&9 || exit 1\n"
_READY: Final = b"ready\n"
_FIRST: Final = b"}\n"  # the end of what bubblewrap says, see `--info-fd` in bwrap(1)
_SECONDS: Final = 60.0  # a sandbox takes milliseconds
_LOOK_SECONDS: Final = 0.5  # what bubblewrap began may outlive it, and say nothing more


class Gate:
    """One command's gate.

    Attributes:
        theirs: the end that is the first process's standard input.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.settimeout(_LOOK_SECONDS)
        self._said = b""

    def first(self, runs: Callable[[], bool]) -> int:
        """Wait for the first process of the sandbox; its pid.

        Args:
            runs: tells whether bubblewrap does.

        Raises:
            OSError: bubblewrap has ended without one, or takes too long.
        """
        self.theirs.close()
        return int(json.loads(self._heard(_FIRST, runs))["child-pid"])

    def wait(self, runs: Callable[[], bool]) -> None:
        """Wait until the command could begin.

        Raises:
            OSError: the sandbox has ended before, or takes too long.
        """
        self._heard(_READY, runs)

    def _heard(self, end: bytes, runs: Callable[[], bool]) -> bytes:
        """Wait for words that end so."""
        deadline = time.monotonic() + _SECONDS
        while end not in self._said:
            went_on = runs()
            try:
                chunk = self._ours.recv(1 << 10)
            except TimeoutError:
                if went_on and time.monotonic() < deadline:
                    continue
                raise
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
