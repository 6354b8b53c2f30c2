"""Values that pages send, and the limits on their connections."""

from __future__ import annotations

import resource
from typing import cast

import pytest

from teamctl.web.pages import Asked
from teamctl.web.server import Connection, ConnectionLimit, allow_descriptors
from teamd.errors import WrongUsage


@pytest.mark.parametrize("given", [3, 0.5, 0])
def test_an_amount_may_be_any_number(given: float) -> None:
    assert Asked({"usd": given}).amount("usd") == given
    assert Asked({}).amount("usd") is None


@pytest.mark.parametrize("given", ["3", True, [], {}])
def test_an_amount_that_is_not_a_number_is_refused(given: object) -> None:
    """`true` would count as 1."""
    with pytest.raises(WrongUsage, match=r"^usd has to be a number$"):
        Asked({"usd": given}).amount("usd")


class Counted:
    """A connection that the limit may close."""

    ended = False

    def abort(self) -> None:
        """End."""
        self.ended = True


def test_readers_are_never_closed_and_one_too_many_is_refused() -> None:
    crowd = ConnectionLimit(strangers=1, readers=1)
    first, second, third = (cast("Connection", Counted()) for _ in range(3))
    crowd.enter(first)
    assert crowd.know(first)
    crowd.enter(second)
    assert not crowd.know(second)
    assert crowd.know(first), "it asks again"
    crowd.enter(third)
    ended = [cast("Counted", one).ended for one in (first, second, third)]
    assert ended == [False, True, False]
    crowd.leave(first)
    assert crowd.know(third)


def test_a_limit_on_open_files_is_raised_as_far_as_needed_and_never_lowered() -> None:
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for soft, wanted in ((300, 1024), (1024, 1024), (1100, 1100)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            allow_descriptors()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
