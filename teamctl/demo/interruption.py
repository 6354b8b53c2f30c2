"""Signals that end the demo: remembered, and heeded only where it can be left in good order."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import FrameType

_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHELL_BASE: Final = 128  # as shells tell the end by a signal


class Interrupted(Exception):
    """The person, or the system, wants the demo to end.

    Attributes:
        exit_status: what to end with.
    """

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"the demo was ended by {number.name}")
        self.exit_status: Final = _SHELL_BASE + number


class Interruption:
    """Catches the signals inside its `with` block; one that is ignored, as by nohup, stays so."""

    def __init__(self) -> None:
        self._came: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def check(self) -> None:
        """Go on unless such a signal has come.

        Raises:
            Interrupted: one has.
        """
        if self._came is not None:
            raise Interrupted(self._came)

    def __enter__(self) -> Self:
        for number in _ENDINGS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type] # what `signal` gave

    def _remember(self, number: int, _: FrameType | None) -> None:
        self._came = self._came or signal.Signals(number)
