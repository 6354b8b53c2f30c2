"""Daily limits: each call counts on the local day of its reservation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest

from teamd.budget import days
from teamd.budget.account import Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import KEPT_DAYS, Ledger
from teamd.process_id import Identity
from teamd.settings import parse

DEAD = Identity(pid=1, started=-1.0)
DOLLAR = Decimal(1)
SPENT_UP = 10  # the first days, including the oldest one that is kept at the end
TERMS = Terms(team_usd_per_day=Decimal(3))


@dataclass
class Calendar:
    """A clock that a test sets."""

    day: str = "2026-11-22"

    def __call__(self) -> str:
        """Return the day that is set."""
        return self.day


def call(number: int, name: str = "alice", **facts: object) -> Reservation:
    kept = Reservation(
        id=f"call-{number}", teammate=name, process=Identity.own(), model="m",
        input_tokens=900, output_tokens=100, usd=DOLLAR,
    )  # fmt: skip
    return replace(kept, **facts)  # type: ignore[arg-type]  # a test's own facts


@dataclass
class Desk:
    """A ledger with a clock that a test sets; each process has its own ledger."""

    path: Path
    today: Calendar
    longest_bytes: int = 100_000

    @property
    def ledger(self) -> Ledger:
        """Return another process's ledger."""
        return Ledger(self.path, today=self.today, longest_bytes=self.longest_bytes)

    def spend(self, *numbers: int) -> None:
        """Make calls that use all of their reservations."""
        for number in numbers:
            assert self.ledger.reserve(call(number)) is None
            self.ledger.settle(call(number), None)

    def fits(self, number: int) -> bool:
        """Return whether another call would be allowed, without making it."""
        if self.ledger.reserve(call(number)) is not None:
            return False
        self.ledger.settle(call(number), Account())
        return True


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "ledger.jsonl", Calendar())
    made.ledger.agree(TERMS)
    return made


def test_a_new_day_has_its_own_limit(desk: Desk) -> None:
    desk.spend(1, 2, 3)
    assert not desk.fits(4)
    desk.today.day = "2026-11-23"
    desk.spend(5, 6, 7)
    assert not desk.fits(8)
    assert desk.ledger.read().total().usd == 6


@pytest.mark.parametrize("longest_bytes", [100_000, 1])
def test_setting_the_clock_back_does_not_reset_a_full_day(longest_bytes: int, desk: Desk) -> None:
    """Neither today nor an earlier full day, also in a file with sums only."""
    desk.longest_bytes = longest_bytes
    desk.spend(1, 2, 3)
    desk.today.day = "2026-11-23"
    desk.spend(4, 5, 6)
    desk.today.day = "2026-11-22"
    assert not desk.fits(7)
    desk.today.day = "2026-11-23"
    assert not desk.fits(8)


@pytest.mark.slow
def test_setting_the_clock_back_beyond_the_kept_days_does_not_reset_the_limit(desk: Desk) -> None:
    """Sums of old days are removed; calls then count for the oldest day that is kept."""
    desk.longest_bytes = 1
    day = "2026-01-01"
    for number in range(KEPT_DAYS + 5):
        desk.today.day = day = days.day_after(day)
        calls = 3 if number < SPENT_UP else 1
        desk.spend(*range(3 * number, 3 * number + calls))
    assert len(desk.ledger.read().days) == KEPT_DAYS
    desk.today.day = "2026-01-02"
    assert not desk.fits(9999)


def test_a_call_counts_on_the_day_on_which_it_was_reserved(desk: Desk) -> None:
    """A reply after midnight, and one that never arrives, do not count for the new day."""
    assert desk.ledger.reserve(call(1)) is None
    assert desk.ledger.reserve(call(2, process=DEAD)) is None
    desk.today.day = "2026-11-23"
    desk.ledger.settle(call(1), None)
    desk.spend(3, 4, 5)
    assert {day: account.usd for day, account in desk.ledger.read().days.items()} == {
        "2026-11-22": 2,
        "2026-11-23": 3,
    }


def test_yesterdays_reservations_do_not_count_today(desk: Desk) -> None:
    for number in (1, 2, 3):
        assert desk.ledger.reserve(call(number)) is None
    found = desk.ledger.reserve(call(4))
    assert found is not None
    assert found.passing
    desk.today.day = "2026-11-23"
    desk.spend(5, 6, 7)


def test_tokens_have_a_daily_limit(desk: Desk) -> None:
    desk.ledger.agree(Terms(team_tokens_per_day=2000))
    desk.spend(1, 2)
    found = desk.ledger.reserve(call(3, "bob"))
    assert found is not None
    assert found.why == (
        "limits.team_tokens_per_day is reached: the team has used 2,000 tokens of 2,000 tokens "
        "today (2 calls that broke off count in full), and the next call may take 1,000 tokens"
    )
    desk.today.day = "2026-11-23"
    assert desk.fits(4)


def test_a_refusal_by_a_daily_limit_ends_with_the_day(desk: Desk) -> None:
    """Without a command; until midnight it stays."""
    desk.spend(1, 2, 3)
    found = desk.ledger.reserve(call(4))
    assert found is not None
    assert found.until == days.end_of("2026-11-22")
    assert found.sentence("alice") == (
        "limits.team_usd_per_day is reached: the team has used $3.00 of $3.00 today (3 calls "
        "that broke off count in full), and the next call may take $1.00; "
        "`teamctl resume alice --usd 1` raises it for today, or raise "
        "limits.team_usd_per_day to at least 4.00 in team.toml, then `teamctl resume alice`; "
        "otherwise alice goes on at 00:00 on 2026-11-23"
    )
    assert desk.ledger.is_refused("alice")
    desk.today.day = "2026-11-23"
    assert not desk.ledger.is_refused("alice")
    assert desk.ledger.standing_refusal("alice") is None


def test_a_limit_for_all_time_comes_first_and_does_not_end_at_midnight(desk: Desk) -> None:
    desk.ledger.agree(replace(TERMS, team_usd=Decimal(3)))
    desk.spend(1, 2, 3)
    found = desk.ledger.reserve(call(4))
    assert found is not None
    assert (found.key, found.until) == ("limits.team_usd", None)
    desk.today.day = "2026-11-23"
    assert desk.ledger.is_refused("alice")


def test_a_call_that_is_too_large_for_any_day_gets_no_date(desk: Desk) -> None:
    desk.ledger.agree(Terms(team_usd_per_day=Decimal("0.5")))
    found = desk.ledger.reserve(call(1))
    assert found is not None
    assert found.until is None
    assert found.sentence("alice").endswith("then `teamctl resume alice`")


def test_a_call_that_fits_only_into_a_raised_day_gets_no_date(desk: Desk) -> None:
    """The raise ends with the day, and tomorrow's limit is too low again."""
    desk.spend(1, 2, 3)
    assert desk.ledger.reserve(call(4)) is not None
    raised, _ = desk.ledger.raise_limits("alice", {"usd": DOLLAR})
    assert raised
    found = desk.ledger.reserve(call(5, usd=4 * DOLLAR))
    assert found is not None
    assert found.until is None


def test_a_refusal_by_a_daily_limit_survives_a_replaced_file(desk: Desk) -> None:
    desk.spend(1, 2)
    desk.longest_bytes = 1
    assert desk.ledger.reserve(call(3, "bob")) is None
    refused = desk.ledger.reserve(call(4, usd=Decimal(2)))
    assert refused is not None
    desk.ledger.settle(call(3, "bob"), None)
    assert desk.ledger.is_refused("alice")
    desk.today.day = "2026-11-23"
    assert not desk.ledger.is_refused("alice")


def test_records_of_the_previous_version_count_only_towards_the_limit_for_all_time(
    desk: Desk,
) -> None:
    """They do not contain a day."""
    old = (
        '{"record": "terms", "teammate_tokens": 0, "teammate_usd": 0.0, "team_tokens": 0, '
        '"team_usd": 9.0, "prices": {}}\n'
        '{"record": "reserve", "id": "old", "teammate": "bob", "pid": 1, "started": -1.0, '
        '"model": "m", "input_tokens": 1, "output_tokens": 1, "usd": 7.5}\n'
    )
    with desk.path.open("a") as file:
        file.write(old)
    accounts = desk.ledger.read()
    assert (accounts.used["bob"].usd, accounts.days) == (Decimal("7.5"), {})
    assert accounts.terms == Terms(team_usd=Decimal(9))
    assert desk.ledger.reserve(call(1)) is None
    assert desk.ledger.reserve(call(2)) is not None


def test_a_new_month_has_its_own_limit(desk: Desk) -> None:
    """Also in a file with sums only; a refused call may then be tried again."""
    desk.ledger.agree(Terms(team_usd_per_month=Decimal(3)))
    desk.longest_bytes = 1
    desk.today.day = "2026-10-31"
    desk.spend(1)
    desk.today.day = "2026-11-01"
    desk.spend(2)
    desk.today.day = "2026-11-22"
    desk.spend(3, 4)
    found = desk.ledger.reserve(call(5))
    assert found is not None
    assert found.until == days.end_of("2026-11") == days.end_of("2026-11-30")
    assert found.sentence("alice") == (
        "limits.team_usd_per_month is reached: the team has used $3.00 of $3.00 this month (3 "
        "calls that broke off count in full), and the next call may take $1.00; "
        "`teamctl resume alice --usd 1` raises it for this month, or "
        "raise limits.team_usd_per_month to at least 4.00 in team.toml, then `teamctl resume "
        "alice`; otherwise alice goes on at 00:00 on 2026-12-01"
    )
    desk.today.day = "2026-11-30"
    assert desk.ledger.is_refused("alice")
    desk.today.day = "2026-12-01"
    assert not desk.ledger.is_refused("alice")
    desk.spend(6, 7, 8)
    assert not desk.fits(9)


def test_a_full_month_is_reported_before_a_full_day(desk: Desk) -> None:
    """Otherwise a teammate would resume at midnight and be stopped again."""
    desk.ledger.agree(replace(TERMS, team_usd_per_month=Decimal(3)))
    desk.spend(1, 2, 3)
    found = desk.ledger.reserve(call(4))
    assert found is not None
    assert found.key == "limits.team_usd_per_month"


def test_the_day_after_a_month_is_in_the_next_month() -> None:
    assert [days.day_after(month) for month in ("2026-12", "2027-02", "2028-02")] == [
        "2027-01-01", "2027-03-01", "2028-03-01",
    ]  # fmt: skip


def terms_of(text: str, folder: Path) -> Terms:
    return Terms.of(parse(text.encode(), path=folder / "team.toml"))


@pytest.mark.parametrize(
    ("server", "is_local"),
    [
        ("http://localhost:11434", True), ("http://127.0.0.1:8080", True), ("http://[::1]:1", True),
        ("http://192.168.1.5:1234/x", True), ("http://gpu:8000", True), ("http://gpu.lan", True),
        ("https://openrouter.ai/api", False), ("https://8.8.8.8", False), ("", False),
    ],
)  # fmt: skip
def test_the_default_limit_admits_a_model_without_a_price_only_on_the_local_network(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, *, is_local: bool
) -> None:
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    settings = f'[model]\nbase_url = "{server}"\n' if server else ""
    assert terms_of(settings, tmp_path).unpriced_limit == (
        None if is_local else "limits.team_usd_per_day"
    )


def test_a_model_without_a_price_is_admitted_only_under_the_default_limit_on_money(
    tmp_path: Path,
) -> None:
    """Otherwise local models would not work by default; a limit that a person sets is strict."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.agree(terms_of('[model]\nbase_url = "http://localhost"\n', tmp_path))
    assert ledger.reserve(call(1, usd=None)) is None
    for chosen in (
        "team_usd_per_day = 20.0",
        "team_usd = 5.0",
        "teammate_usd = 5.0",
        "team_usd_per_month = 5.0",
    ):
        ledger.agree(terms_of(f"[limits]\n{chosen}\n", tmp_path))
        found = ledger.reserve(call(2, usd=None))
        assert found is not None
        assert found.why == f"limits.{chosen.split()[0]} is set, and the price of m is not known"
    ledger.agree(terms_of("[limits]\nteam_usd = 5.0\nteam_tokens = 2000\n", tmp_path))
    assert ledger.reserve(call(4, usd=None)) is None  # the tokens bound it
    ledger.settle(call(4), Account())
    ledger.agree(terms_of("[limits]\nteam_usd_per_day = 0\n", tmp_path))
    assert ledger.reserve(call(3, usd=None)) is None


def test_a_daily_limit_on_tokens_bounds_a_model_without_a_price(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.agree(terms_of("[limits]\nteam_tokens_per_day = 1500\n", tmp_path))
    assert ledger.reserve(call(1, usd=None)) is None
    ledger.settle(call(1), None)
    found = ledger.reserve(call(2, usd=None))
    assert found is not None
    assert found.key == "limits.team_tokens_per_day"


def test_a_scripted_turn_is_allowed_on_a_full_day(desk: Desk) -> None:
    """It costs nothing, so limits on money do not apply."""
    desk.spend(1, 2, 3)
    assert desk.ledger.reserve(call(4, usd=Decimal(0))) is None


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def test_a_day_is_local_and_may_have_25_hours(berlin: None) -> None:
    """1792969200 is 2026-10-26 00:00 in Berlin; the day before, summer time ended."""
    assert days.day_of(1792969199.0) == "2026-10-25"
    assert days.day_of(1792969200.0) == "2026-10-26"
    assert days.end_of("2026-10-25") == 1792969200.0
    assert days.end_of("2026-10-25") - days.end_of("2026-10-24") == 25 * 3600
