"""The size of a context in tokens."""

from __future__ import annotations

import pytest

from teamd.agent.conversation.context import Context


@pytest.mark.parametrize(
    ("measured", "in_bytes", "tokens"),
    [
        (None, 4000, 1100),  # before the first request: an estimate that includes tools and prompt
        ((0, 2000), 4000, 1100),  # a server that does not count
        ((900, 2000), 4000, 1400),  # the count, and an estimate for later content
        ((900, 2000), 1000, 650),  # the count, minus an estimate for removed content
        ((100, 8000), 0, 0),
    ],
)
def test_the_servers_count_is_preferred_to_an_estimate(
    measured: tuple[int, int] | None, in_bytes: int, tokens: int
) -> None:
    context = Context()
    if measured is not None:
        counted, context.bytes = measured
        context.measure(counted, "f")
    context.bytes = in_bytes
    assert context.estimate(400) == tokens
