"""How full a context is."""

from __future__ import annotations

import pytest

from teamd.agent.conversation.context import Context


@pytest.mark.parametrize(
    ("measured", "in_bytes", "tokens"),
    [
        (None, 4000, 1100),  # nothing was asked yet: all is estimated, tools and prompt too
        ((0, 2000), 4000, 1100),  # a server that does not count
        ((900, 2000), 4000, 1400),  # what was counted, and what came since
        ((900, 2000), 1000, 650),  # and what was taken away
        ((100, 8000), 0, 0),
    ],
)
def test_what_the_server_counted_goes_before_estimates(
    measured: tuple[int, int] | None, in_bytes: int, tokens: int
) -> None:
    context = Context()
    if measured is not None:
        counted, context.bytes = measured
        context.measure(counted)
    context.bytes = in_bytes
    assert context.estimate(400) == tokens
