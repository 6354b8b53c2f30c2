"""Fairness: a hundred teammates at a service that answers 429 to more than `room` calls at once.

No call may be lost, no teammate should wait much longer than others, and few calls more than needed
should be made. The limit is the time of a service that is never idle: calls / room * seconds.

There is no other program to compare with: those that share a limit among processes are servers.
"""

from __future__ import annotations

import statistics

from tests.bench.crowd import crowd
from tests.bench.ruler import machine, options, table

_HEAD = ("slots", "retry-after", "calls / needed", "slowest / mean", "time / limit", "most", "lost")


def measure(
    size: int, *, slots: int, room: int, calls: int, seconds: float, retry_after: str
) -> tuple[str, ...]:
    """Wake a team of this size at once; return a row of the table."""
    settings = f"[model]\nconcurrent_calls = {slots}\nattempts = 1000\n"
    terms = {"room": room, "calls": calls, "seconds": seconds, "retry_after": retry_after}
    with crowd(size, settings, **terms) as team:
        refused = team.service.counts().refused
        took = team.broadcast()
        counts = team.service.counts()
        made = size * calls + counts.refused - refused
        lost = 2 * size * calls - sum(times for times, _ in counts.served.values())
        assert lost == 0, f"{lost} calls more or less than there should be"
        assert team.crashes() == 0
        figures = (
            made / (size * calls),
            max(took) / statistics.mean(took),
            max(took) / (size * calls / min(slots, room) * seconds),
        )
        ratios = (f"{figure:.2f}" for figure in figures)
        return (str(slots), retry_after or "none", *ratios, str(counts.most), str(lost))


def main() -> None:
    short = options(__doc__).short
    size, room, calls, seconds = (12, 4, 3, 0.1) if short else (100, 20, 4, 0.5)
    cases = [(room, ""), (size, "1")] if short else [(room, ""), (size, ""), (size, "1")]
    rows = [
        measure(size, slots=slots, room=room, calls=calls, seconds=seconds, retry_after=later)
        for slots, later in cases
    ]
    print(machine())
    title = f"{size} teammates, {calls} calls each of {seconds:g} s, {room} at once"
    print(table(title, [_HEAD, *rows]))


if __name__ == "__main__":
    main()
