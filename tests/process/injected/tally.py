"""The count of all failures that were injected."""

from __future__ import annotations

import threading
from collections import Counter


class Tally:
    """How often each failure was injected into each operation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: Counter[tuple[str, str]] = Counter()

    def note(self, operation: str, failure: str) -> None:
        """Count one."""
        with self._lock:
            self._made[operation, failure.partition("=")[2] or failure] += 1

    @property
    def total(self) -> int:
        """All of them."""
        return self._made.total()

    @property
    def operations(self) -> set[str]:
        """Those into which any was injected."""
        return {operation for operation, _ in self._made}

    def table(self) -> str:
        """Operations down, failures across, and the sums."""
        failures = sorted({failure for _, failure in self._made})
        rows = [["", *failures, "all"]]
        for operation in sorted(self.operations):
            figures = [self._made[operation, failure] for failure in failures]
            rows.append([operation, *map(str, figures), str(sum(figures))])
        sums = [
            sum(self._made[operation, failure] for operation in self.operations)
            for failure in failures
        ]
        rows.append(["all", *map(str, sums), str(self.total)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True))
            for row in rows
        )
