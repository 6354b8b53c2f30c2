"""Signals as something to wait for: a handler only remembers, the loop acts."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


class Signals:
    """Catches signals. It is readable while a signal has not been taken."""

    def __init__(self, *caught: signal.Signals) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        for number in caught:
            signal.signal(number, _remember)
        # The interpreter writes each signal's number here, even in the middle of a system call.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that a forked child must close."""
        return (self._reader, self._writer)

    def take(self) -> list[signal.Signals]:
        """Return the signals since the last call, in the order in which they came."""
        with suppress(BlockingIOError):
            return [signal.Signals(number) for number in os.read(self._reader, 4096)]
        return []


def _remember(number: int, frame: FrameType | None) -> None:
    """The byte in the pipe is the memory."""
