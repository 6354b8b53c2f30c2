"""The records of many calls are read in one go as they are read one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.budget import records
from teamd.budget.accounts import Accounts, Terms
from teamd.dataclass import replace

RESERVE = {
    "record": "reserve", "id": "1", "teammate": "ann", "model": "m", "input_tokens": 7,
    "output_tokens": 5, "usd": 0.1, "day": "2026-11-25", "pid": 1, "started": 2.5, "time": 1.0,
}  # fmt: skip
SETTLE = {"record": "settle", "id": "1", "calls": 1, "input_tokens": 6, "usd": 0.0123, "time": 2.0}
ODD = [
    b"", b"{", b"null", b"[]", b"{}", b'{"record": "later"}', b'{"record": "resumed"}', b"\xff",
    b'{"record": "settle", "id": "1"', b'{"record": "account", "teammate": "bob", "calls": 2}',
    b'{"record": "day", "day": "2026-11-25", "calls": 2, "usd": 1.5}',
]  # fmt: skip
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), st.text(max_size=3),
    st.sampled_from(["1", "2", "ann", "bob", 0, 1, 0.1, 1e-9, 12345678.123456]),
)  # fmt: skip


def one_by_one(block: bytes, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    accounts = Accounts()
    with monkeypatch.context() as patched:
        patched.setattr(records, "_MODULE", "no such module")
        records.apply(accounts, block)
    return accounts


def in_one_go(block: bytes) -> Accounts:
    records.load_decoder()
    accounts = Accounts()
    records.apply(accounts, block)
    return accounts


def block_of(*lines: dict[str, Any]) -> bytes:
    return b"".join(records.encode(line) for line in lines)


def test_a_block_of_calls_is_read_in_one_go() -> None:
    block = block_of(RESERVE, RESERVE | {"id": "2"}, SETTLE)
    records.load_decoder()
    found = records._parse_calls(block)
    assert found is not None
    assert len(found) == 3


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_odd_takes_nothing_else_with_it(
    odd: bytes, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps(one).encode() for one in (RESERVE, RESERVE | {"id": "2"}, SETTLE)]
    block = b"".join(line + b"\n" for line in [*lines[:place], odd, *lines[place:]])
    accounts = in_one_go(block)
    assert accounts == one_by_one(block, monkeypatch)
    assert list(accounts.held) == ["2"]
    assert accounts.used["ann"].input_tokens == 6


def test_a_call_that_is_made_is_refused_no_more() -> None:
    accounts = in_one_go(block_of(RESERVE | {"record": "refused"}))
    assert list(accounts.refused) == ["ann"]
    records.apply(accounts, block_of(RESERVE))
    assert not accounts.refused


def test_what_is_kept_back_counts_for_its_own_day_and_teammate() -> None:
    accounts = in_one_go(block_of(RESERVE, RESERVE | {"id": "2", "teammate": "bob"}))
    accounts.terms = Terms(teammate_tokens=25, team_tokens_per_day=40)
    ann = accounts.held["1"]
    assert accounts.refusal(replace(ann, id="3")) is None, "12 of 25 of its own, 24 of 40 of all"
    accounts.held["3"] = replace(ann, id="3")
    over = accounts.refusal(replace(ann, id="4"))
    assert over is not None
    assert over.key == "limits.teammate_tokens"
    carl = replace(ann, id="4", teammate="carl")
    over = accounts.refusal(carl)
    assert over is not None
    assert over.key == "limits.team_tokens_per_day"
    assert accounts.refusal(replace(carl, day="2026-11-26")) is None


def test_two_records_on_one_line_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    block = json.dumps(RESERVE).encode() + block_of(SETTLE) + block_of(RESERVE | {"id": "2"})
    assert in_one_go(block) == one_by_one(block, monkeypatch)
    assert list(in_one_go(block).held) == ["2"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([RESERVE, SETTLE]),
            st.dictionaries(
                st.sampled_from([*RESERVE, *SETTLE, "output_tokens"]), VALUES, max_size=2
            ),
            st.sets(st.sampled_from([*RESERVE, *SETTLE]), max_size=1),
        ),
        max_size=8,
    )
)
def test_in_one_go_comes_to_the_same(
    changes: list[tuple[dict[str, Any], dict[str, Any], set[str]]],
) -> None:
    lines = [
        {key: value for key, value in (line | other).items() if key not in gone}
        for line, other, gone in changes
    ]
    block = block_of(*lines)
    with pytest.MonkeyPatch.context() as monkeypatch:
        slowly = one_by_one(block, monkeypatch)
    assert str(in_one_go(block)) == str(slowly)
