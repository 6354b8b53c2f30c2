"""Somebody who reads the roster all the time, as `cat` does: without any lock."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Final, Self

_PAUSE_SECONDS: Final = 0.001


class RosterReader:
    """Reads from `with` to its end.

    Attributes:
        reads: how many so far.
        torn: what it found that was no roster.
    """

    def __init__(self, config: Path) -> None:
        self._config = config
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.reads = 0
        self.torn: list[bytes] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            content = b"(gone)"
            try:
                content = self._config.read_bytes()
                assert json.loads(content)["members"]
            except (OSError, ValueError, KeyError, AssertionError):
                self.torn.append(content)
            self.reads += 1
