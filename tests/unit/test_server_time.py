"""The time at which a server accepts requests again, from its headers or its message."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.models.errors import LONGEST_SECONDS, find_wait_seconds

NOW = 1_795_000_000.0  # 2026-11-18, 11:06:40 UTC
DATE = {"date": formatdate(NOW, usegmt=True)}
DAY = 86400.0
# From then to the next midnight, UTC.
REST_OF_DAY = 46_400.0


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        ({"retry-after": "7"}, "", 7.0),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after": "-3"}, "", 0.0),
        ({"retry-after-ms": "90500", "retry-after": "91"}, "", 90.5),
        ({"retry-after": "nan"}, "", 0.0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, "", 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, "", 0.0),
        ({"retry-after": "7"}, "You will regain access on 2026-11-19 at 00:00 UTC.", 7.0),
        ({}, "You will regain access on 2026-11-19 at 00:00 UTC.", REST_OF_DAY),
        ({}, "Resets at 2026-11-19T00:00:30Z", REST_OF_DAY + 30),
        ({}, "Your limit resets at 2026-11-19 00:00:00", None),
        ({}, "You will regain access on 2026-13-41 at 00:00 UTC.", None),
        (
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(NOW + 60) * 1000:.0f}"},
            "",
            60.0,
        ),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}, "", 30.0),
        ({"x-ratelimit-remaining": "12", "x-ratelimit-reset": "30"}, "", None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "4",
                "anthropic-ratelimit-requests-reset": "2026-11-18T13:00:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-18T11:07:00Z",
            },
            "",
            20.0,
        ),
        (
            {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": f"{NOW + 3600:.0f}",
                "anthropic-ratelimit-unified-7d-status": "allowed",
                "anthropic-ratelimit-unified-7d-reset": f"{NOW + 3 * DAY:.0f}",
            },
            "",
            3600.0,
        ),
        (  # both are exhausted: the last reset counts
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-18T11:07:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-18T11:08:00Z",
            },
            "",
            80.0,
        ),
    ],
)
def test_the_server_s_time_is_found(
    headers: dict[str, str], said: str, seconds: float | None
) -> None:
    assert find_wait_seconds({**DATE, **headers}, said) == seconds


@pytest.mark.parametrize(
    "asked", ["inf", "1e999", "4000000", "soon", "", "Wed, 21 Oct 2099 07:28:00 GMT"]
)
def test_an_implausible_time_is_ignored(asked: str) -> None:
    assert find_wait_seconds({"retry-after": asked}, "") is None


def test_the_server_s_own_clock_is_used() -> None:
    """A machine with a wrong clock would wait for days, or not at all."""
    headers = {"date": formatdate(NOW - DAY, usegmt=True)}
    said = "You will regain access on 2026-11-19 at 00:00 UTC."
    assert find_wait_seconds(headers, said) == REST_OF_DAY + DAY


def test_without_a_date_the_machine_s_clock_is_used() -> None:
    later = formatdate(time.time() + 600, usegmt=True)
    found = find_wait_seconds({"retry-after": later}, "")
    assert found is not None
    assert 590 < found <= 600


@given(
    st.dictionaries(
        st.sampled_from(
            ["date", "retry-after", "x-ratelimit-reset", "x-ratelimit-remaining",
             "anthropic-ratelimit-unified-reset", "anthropic-ratelimit-unified-status"]
        ),
        st.text() | st.sampled_from(["0", "rejected", "1e308", "-inf", "9999-12-31T23:59:59Z"]),
    ),
    st.text() | st.sampled_from(["on 9999-12-31 at 23:59 UTC", "on 0001-01-01 at 00:00 UTC"]),
)  # fmt: skip
def test_any_answer_of_a_server_yields_a_time_within_a_month_or_none(
    headers: dict[str, str], said: str
) -> None:
    found = find_wait_seconds(headers, said)
    assert found is None or 0 <= found <= LONGEST_SECONDS
