"""Raising a limit: for the teammate, day or month that it stopped, and on disk."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from teamd.budget.account import Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.process_id import Identity

ONE: dict[str, Decimal] = {"usd": Decimal(1)}


def call(number: int, name: str = "alice", usd: Decimal | None = Decimal("0.25")) -> Reservation:
    return Reservation(
        id=f"call-{number}", teammate=name, process=Identity.own(), model="m",
        input_tokens=900, output_tokens=100, usd=usd,
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def stopped(path: Path, terms: Terms, name: str = "alice", **more: object) -> Ledger:
    """A ledger under a limit that has refused a call."""
    ledger = Ledger(path, **more)  # type: ignore[arg-type]  # a test's own
    ledger.agree(terms)
    assert ledger.reserve(call(1, name)) is not None
    return ledger


@pytest.mark.parametrize("key", ["team_usd", "teammate_usd", "team_usd_per_day"])
def test_a_raise_lets_the_teammate_continue_up_to_the_raised_limit(key: str, path: Path) -> None:
    ledger = stopped(path, Terms(**{key: Decimal("0.1")}))  # type: ignore[arg-type]
    raises, refusal = ledger.raise_limits("alice", ONE)
    assert ([one.limit for one in raises], refusal) == ([key], None)
    for number in range(2, 6):
        assert ledger.reserve(call(number)) is None
        ledger.settle(call(number), None)
    assert ledger.reserve(call(6)) is not None, "$1.10 are used up"


def test_a_raise_for_one_teammate_does_not_help_others(path: Path) -> None:
    ledger = stopped(path, Terms(teammate_usd=Decimal("0.1")))
    ledger.raise_limits("alice", ONE)
    assert ledger.reserve(call(2)) is None
    assert ledger.reserve(call(3, "bob")) is not None


def test_a_raise_of_a_daily_limit_ends_with_the_day(path: Path) -> None:
    day = ["2026-11-22"]
    ledger = stopped(path, Terms(team_usd_per_day=Decimal("0.1")), today=lambda: day[0])
    raises, _ = ledger.raise_limits("alice", ONE)
    assert [one.sentence() for one in raises] == [
        "limits.team_usd_per_day is raised by $1.00 for 2026-11-22"
    ]
    assert ledger.reserve(call(2)) is None
    day[0] = "2026-11-23"
    assert ledger.reserve(call(3)) is not None


@pytest.mark.parametrize("longest_bytes", [100_000, 1])
def test_a_raise_survives_restarts_reloads_and_a_replaced_file(
    longest_bytes: int, path: Path
) -> None:
    ledger = stopped(path, Terms(team_usd=Decimal("0.1")), longest_bytes=longest_bytes)
    ledger.raise_limits("alice", ONE)
    assert ledger.reserve(call(2)) is None
    ledger.settle(call(2), Account())
    again = Ledger(path)
    again.agree(Terms(team_usd=Decimal("0.2")))
    assert again.reserve(call(3, usd=Decimal("1.2"))) is None
    assert again.reserve(call(4)) is not None


def test_nothing_is_raised_unless_the_teammate_can_continue(path: Path) -> None:
    """A person who reads that it was not enough tries again, and would raise it twice."""
    ledger = stopped(path, Terms(team_usd=Decimal("0.1")))
    size = path.stat().st_size
    raises, refusal = ledger.raise_limits("alice", {"usd": Decimal("0.1")})
    assert raises == []
    assert refusal is not None
    assert "`teamctl resume alice --usd 1` raises it" in refusal.sentence("alice")
    assert path.stat().st_size == size


def test_a_raise_of_the_other_unit_is_refused_with_the_right_one(path: Path) -> None:
    ledger = stopped(path, Terms(team_tokens=100))
    raises, refusal = ledger.raise_limits("alice", ONE)
    assert raises == []
    assert refusal is not None
    assert "`teamctl resume alice --tokens 900` raises it" in refusal.sentence("alice")


def test_all_limits_that_stop_a_teammate_are_raised_at_once(path: Path) -> None:
    """Each unit by its amount: otherwise no command could resume the teammate."""
    low = Decimal("0.1")
    terms = Terms(team_usd=low, team_usd_per_day=low, teammate_usd=low, team_tokens=100)
    ledger = stopped(path, terms)
    assert ledger.raise_limits("alice", ONE)[0] == []
    raises, refusal = ledger.raise_limits("alice", {**ONE, "tokens": Decimal(900)})
    assert refusal is None
    assert {one.limit for one in raises} == {
        "team_usd", "team_usd_per_day", "teammate_usd", "team_tokens",
    }  # fmt: skip
    assert ledger.reserve(call(2)) is None


def test_nothing_is_raised_for_a_teammate_that_is_not_stopped(path: Path) -> None:
    """A command that is repeated after a lost answer does not raise twice."""
    ledger = stopped(path, Terms(team_usd=Decimal("0.1")))
    assert ledger.raise_limits("bob", ONE) == ([], None)
    assert ledger.raise_limits("alice", ONE)[0]
    assert ledger.raise_limits("alice", ONE) == ([], None)


def test_the_suggested_limit_is_high_enough_with_a_raise(
    path: Path,
) -> None:
    ledger = stopped(path, Terms(team_usd=Decimal("0.1")))
    ledger.raise_limits("alice", ONE)
    found = ledger.reserve(call(2, usd=Decimal(3)))
    assert found is not None
    assert "raise limits.team_usd to at least 2.00" in found.remedy
    ledger.agree(Terms(team_usd=Decimal(2)))
    assert ledger.reserve(call(3, usd=Decimal(3))) is None
