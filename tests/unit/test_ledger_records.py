"""The records of the ledger: damaged ones are skipped, the others are summed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from teamd.budget import ledger
from teamd.budget.account import Reservation
from teamd.budget.accounts import Accounts, Terms

RESERVE = {
    "record": "reserve", "id": "1", "teammate": "ann", "model": "m", "input_tokens": 7,
    "output_tokens": 5, "usd": 0.1, "day": "2026-11-25", "pid": 1, "started": 2.5, "time": 1.0,
}  # fmt: skip
ACCOUNT = {"record": "account", "teammate": "ann", "calls": 3, "input_tokens": 40, "usd": 0.5}
REFUSED = RESERVE | {"record": "refused", "id": "9"}
SETTLE = {"record": "settle", "id": "1", "calls": 1, "input_tokens": 6, "usd": 0.0123, "time": 2.0}
ODD = [
    b"", b"{", b"null", b"[]", b"{}", b'{"record": "later"}', b'{"record": "resumed"}', b"\xff",
    b'{"record": "settle", "id": "1"', b'{"record": "account", "teammate": "bob", "calls": 2}',
    b'{"record": "day", "day": "2026-11-25", "calls": 2, "usd": 1.5}',
    b'{"record": "account", "teammate": "bob", "usd": "sNaN"}',
    b'{"record": "settle", "id": "2", "usd": "-Infinity"}',
    b'{"record": "settle", "id": "2", "usd": 9e999999}',
    b'{"record": "settle", "id": "2", "usd": -0.1}',
    b'{"record": "settle", "id": "2", "input_tokens": -800}',
    b'{"record": "account", "teammate": "ann", "usd": -1, "output_tokens": 5}',
    (b'{"record": "reserve", "id": "3", "teammate": "ann", "model": "m", "input_tokens": -7, '
    b'"output_tokens": 5, "usd": 0.1, "pid": 1, "started": 2.5}'),
    b'{"record": "settle", "id": "2", "calls": 1, "inpu\xf4_tokens": 800}',
]  # fmt: skip


def read(block: bytes) -> Accounts:
    accounts = Accounts()
    ledger.apply(accounts, block)
    return accounts


def block_of(*lines: dict[str, Any]) -> bytes:
    return b"".join(ledger.encode(line) for line in lines)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_odd_record_does_not_affect_others(odd: bytes, place: int) -> None:
    lines = [json.dumps(one).encode() for one in (RESERVE, RESERVE | {"id": "2"}, SETTLE)]
    block = b"".join(line + b"\n" for line in [*lines[:place], odd, *lines[place:]])
    accounts = read(block)
    assert list(accounts.held) == ["2"]
    assert accounts.used["ann"].input_tokens == 6


@pytest.mark.parametrize(
    "usd", [b"NaN", b"1e400", b"-Infinity", b"-0.05", b'"sNaN"', b'"9e999999"', b'"x"']
)
def test_a_limit_is_always_a_number(usd: bytes) -> None:
    terms = Terms(team_usd=Decimal("0.05"))
    lifted = {"record": "raised", "limit": "team_usd", "of": "", "amount": 0.01}
    odd = b'{"record": "raised", "limit": "team_usd", "of": "", "amount": %b}\n' % usd
    odd += json.dumps({"record": "terms", **terms.encode()}).encode().replace(b"0.05", usd) + b"\n"
    accounts = read(block_of({"record": "terms", **terms.encode()}, lifted) + odd)
    assert accounts.terms == terms
    assert accounts.raised == {("team_usd", ""): Decimal("0.01")}


def test_very_large_usage_survives_a_compaction() -> None:
    """A sum beyond the valid amounts would be lost when it is read again."""
    terms = {"record": "terms", **Terms(team_usd=Decimal(5)).encode()}
    accounts = read(block_of(terms, *[ACCOUNT | {"usd": 9e14}] * 2))
    again = read(block_of(*ledger.summarise(accounts, kept_days=3)))
    assert again.used["ann"].usd == 10**15
    assert again.refusal(Reservation.decode(REFUSED)) is not None


def test_a_reservation_ends_a_refusal() -> None:
    accounts = read(block_of(RESERVE | {"record": "refused"}))
    assert list(accounts.refused) == ["ann"]
    ledger.apply(accounts, block_of(RESERVE))
    assert not accounts.refused


def test_a_reservation_counts_for_its_own_day_and_teammate() -> None:
    accounts = read(block_of(RESERVE, RESERVE | {"id": "2", "teammate": "bob"}))
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


@pytest.mark.parametrize(
    ("terms", "least"),
    [
        (lambda most: Terms(teammate_tokens=most), 40 + 6 + 12),
        (lambda most: Terms(team_tokens=most), 40 + 6 + 6 + 12),
        (lambda most: Terms(team_tokens_per_day=most), 6 + 6 + 12),
    ],
)
def test_use_counts_for_its_own_teammate_day_and_team(
    terms: Callable[[int], Terms], least: int
) -> None:
    bob = [RESERVE | {"id": "2", "teammate": "bob"}, SETTLE | {"id": "2"}]
    accounts = read(block_of(ACCOUNT, RESERVE, SETTLE, *bob))
    wanted = Reservation.decode(RESERVE | {"id": "3"})
    accounts.terms = terms(least)
    assert accounts.refusal(wanted) is None
    accounts.terms = terms(least - 1)
    assert accounts.refusal(wanted) is not None


def test_a_settled_call_has_no_reservation() -> None:
    accounts = read(block_of(RESERVE))
    kept = accounts.held.get("1")
    assert kept == Reservation.decode(RESERVE | {"usd": Decimal("0.1")})
    ledger.apply(accounts, block_of(SETTLE))
    assert accounts.held == {}


def test_a_repeated_reservation_counts_once() -> None:
    accounts = read(block_of(RESERVE))
    ledger.apply(accounts, block_of(RESERVE | {"input_tokens": 1}))
    accounts.terms = Terms(team_tokens=6 + 12)
    assert accounts.refusal(Reservation.decode(RESERVE | {"id": "2"})) is None


def test_sums_and_copies_contain_every_record() -> None:
    accounts = read(block_of(ACCOUNT, RESERVE, RESERVE | {"id": "2"}, SETTLE))
    kinds = [one["record"] for one in ledger.summarise(accounts, kept_days=3)]
    assert kinds == ["terms", "day", "account", "reserve"]
    assert accounts.with_raised(()) == accounts


def test_two_records_on_one_line_are_skipped() -> None:
    block = json.dumps(RESERVE).encode() + block_of(SETTLE) + block_of(RESERVE | {"id": "2"})
    assert list(read(block).held) == ["2"]
