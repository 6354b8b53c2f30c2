"""The ledger: its refusals, raised limits, and a file that stays short and is read once."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from teamd.budget.account import Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.budget.limits import Refusal
from teamd.process_id import Identity

DEAD = Identity(pid=1, started=-1.0)
ONE: dict[str, Decimal] = {"usd": Decimal(1)}
SMALL = Account(calls=1, input_tokens=5, output_tokens=1, usd=Decimal("0.001"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def call(number: int = 0, name: str = "alice", **facts: object) -> Reservation:
    kept = Reservation(
        id=f"call-{number}", teammate=name, process=Identity.own(), model="m",
        input_tokens=900, output_tokens=100, usd=Decimal("0.25"),
    )  # fmt: skip
    return replace(kept, **facts)  # type: ignore[arg-type]  # a test's own facts


def refusal(path: Path, terms: Terms, wanted: Reservation) -> Refusal:
    ledger = Ledger(path)
    ledger.agree(terms)
    found = ledger.reserve(wanted)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("terms", "used", "wanted", "enough"),
    [
        (Terms(teammate_tokens=1500), "alice has used 1,000 tokens of 1,500 tokens",
         "1,000 tokens", ("2000", "tokens 500")),
        (Terms(team_tokens=1999), "the team has used 1,000 tokens of 1,999 tokens",
         "1,000 tokens", ("2000", "tokens 1")),
        (Terms(teammate_usd=Decimal("0.3")), "alice has used $0.25 of $0.30",
         "$0.25", ("0.50", "usd 1")),
        (Terms(team_usd=Decimal("0.49")), "the team has used $0.25 of $0.49",
         "$0.25", ("0.50", "usd 1")),
    ],
)  # fmt: skip
def test_a_refusal_names_the_limit_its_figures_and_the_remedy(
    terms: Terms, used: str, wanted: str, enough: tuple[str, str], path: Path
) -> None:
    Ledger(path).reserve(call(1))
    Ledger(path).settle(call(1), None)
    found = refusal(path, terms, call(2))
    most, more = enough
    assert found.sentence("alice") == (
        f"the next call does not fit into what is left of {found.key}: {used} "
        f"(1 call that broke off counts in full), and it may take {wanted}; "
        f"`teamctl resume alice --{more}` raises it, or raise {found.key} to at least "
        f"{most} in team.toml, then `teamctl resume alice`"
    )


def test_a_limit_that_is_used_up_is_described_as_reached(path: Path) -> None:
    Ledger(path).reserve(call(1))
    Ledger(path).settle(call(1), None)
    found = refusal(path, Terms(team_usd=Decimal("0.25")), call(2))
    assert found.why == (
        "limits.team_usd is reached: the team has used $0.25 of $0.25 (1 call that "
        "broke off counts in full), and the next call may take $0.25"
    )


def test_the_suggested_limit_is_high_enough(path: Path) -> None:
    """A person should not have to raise it twice."""
    used = Account(calls=1, usd=Decimal("1.23456789"))
    ledger = Ledger(path)
    ledger.reserve(call(1))
    ledger.settle(call(1), used)
    found = refusal(path, Terms(team_usd=Decimal("1.3")), call(2))
    assert "at least 1.49" in found.remedy
    ledger.agree(Terms(team_usd=Decimal("1.49")))
    assert ledger.standing_refusal("alice") is None
    assert ledger.reserve(call(2)) is None


def test_an_unknown_price_is_refused_only_under_a_limit_on_money(path: Path) -> None:
    ledger = Ledger(path)
    ledger.agree(Terms(team_tokens=10_000))
    assert ledger.reserve(call(1, usd=None, model='my "model"')) is None
    ledger.settle(call(1, usd=None), None)
    found = refusal(path, Terms(teammate_usd=Decimal(1)), call(2, usd=None, model='my "model"'))
    assert found.sentence("alice") == (
        'limits.teammate_usd is set, and the price of my "model" is not known; write '
        r'[prices."my \"model\""] with input and output, in USD per million tokens, or set '
        "limits.team_tokens_per_day, in team.toml, then `teamctl resume alice`"
    )
    assert ledger.read().used["alice"].unpriced_calls == 1


def test_a_refusal_that_may_end_when_other_calls_end_is_marked_as_temporary(path: Path) -> None:
    """A teammate that only has to wait must not be paused: no person would resume it."""
    ledger = Ledger(path)
    ledger.agree(Terms(team_tokens=1500))
    assert ledger.reserve(call(1, "bob")) is None
    found = ledger.reserve(call(2))
    assert found is not None
    assert found.passing
    assert not ledger.is_refused("alice")
    ledger.settle(call(1, "bob"), SMALL)
    assert ledger.reserve(call(2)) is None


def test_a_call_does_not_wait_for_the_reservation_of_a_dead_process(path: Path) -> None:
    """The reservation would never be released."""
    ledger = Ledger(path)
    ledger.agree(Terms(team_tokens=1500))
    ledger.reserve(call(1, "bob", process=DEAD))
    refused = ledger.reserve(call(2))
    assert refused is not None
    assert not refused.passing
    assert b'"settle"' in path.read_bytes()


def test_a_reservation_of_a_dead_process_counts_in_full(path: Path) -> None:
    ledger = Ledger(path)
    ledger.reserve(call(1, "bob", process=DEAD))
    assert ledger.read().used["bob"].tokens == 1000
    assert ledger.reserve(call(2)) is None
    assert b'"settle"' not in path.read_bytes()
    accounts = ledger.read()
    assert list(accounts.held) == ["call-2"]
    assert (accounts.used["bob"].tokens, accounts.used["bob"].assumed_calls) == (1000, 1)
    ledger.standing_refusal("bob")  # settles it
    ledger.settle(call(1, "bob"), SMALL)  # too late
    assert ledger.read().used["bob"].tokens == 1000


def test_a_refusal_lasts_until_the_next_call(path: Path) -> None:
    """So `resume` can refuse at once and name the limit."""
    ledger = Ledger(path)
    found = refusal(path, Terms(teammate_tokens=999), call(1))
    assert found == Ledger(path).standing_refusal("alice")
    assert Ledger(path).standing_refusal("bob") is None
    before = path.stat().st_size
    assert ledger.reserve(call(2)) == found
    assert path.stat().st_size == before, "the same refusal is written once"
    ledger.agree(Terms())
    assert ledger.standing_refusal("alice") is None
    assert ledger.is_refused("alice")
    ledger.reserve(call(3))
    assert not ledger.is_refused("alice")


def test_a_resumed_teammate_is_not_refused_in_any_process(path: Path) -> None:
    """Its own process reads this in the file and tries again."""
    refusal(path, Terms(team_tokens=5), call(1))
    waiting = Ledger(path)
    assert waiting.is_refused("alice")
    Ledger(path).let_go("alice")
    assert not waiting.is_refused("alice")
    size = path.stat().st_size
    Ledger(path).let_go("alice")
    assert path.stat().st_size == size


def test_the_file_stays_short_and_keeps_every_sum(path: Path) -> None:
    """After a year of calls a call must be as quick as the first."""
    ledger, other = Ledger(path, longest_bytes=4000), Ledger(path, longest_bytes=4000)
    ledger.agree(Terms(team_tokens=1_000_000, prices={"m": {"input": 1.0, "output": 2.5}}))
    ledger.reserve(call(0, "zoe"))
    assert ledger.reserve(call(1, "max", input_tokens=10**7)) is not None
    longest = 0
    for number in range(2, 300):
        mine = (ledger, other)[number % 2]
        mine.reserve(call(number, ("alice", "bob")[number % 3 == 0]))
        mine.settle(call(number), SMALL)
        longest = max(longest, path.stat().st_size)
    assert longest < 5000
    accounts = Ledger(path).read()
    assert accounts.total().calls == 298
    assert accounts.total().usd == Decimal("0.298")
    assert list(accounts.held) == ["call-0"]
    standing = ledger.standing_refusal("max")
    assert standing is not None
    assert "it may take 10,000,100 tokens" in standing.why
    assert ledger.read().terms.prices == {"m": {"input": 1, "output": Decimal("2.5")}}


def test_a_replaced_file_is_noticed_even_with_the_same_inode_and_length(path: Path) -> None:
    """Inodes are used again: a process that compared only those would read from the middle."""
    ledger = Ledger(path)
    ledger.reserve(call(1))
    ledger.settle(call(1), SMALL)
    other = path.with_name("other.jsonl")
    Ledger(other).reserve(call(2, "bob"))
    Ledger(other).settle(call(2, "bob"), None)
    content = other.read_bytes()
    with path.open("r+b") as file:  # in place: the inode stays
        file.write(content)
        file.truncate()
    ledger.agree(Terms(team_tokens=5))
    assert set(ledger.read().used) == {"bob"}
    found = ledger.reserve(call(3))
    assert found is not None
    assert "the team has used 1,000 tokens of 5 tokens" in found.why


def test_a_failed_settlement_is_repeated_with_the_next_call(path: Path) -> None:
    """The reply has been paid for, even if another process keeps the file locked."""
    ledger = Ledger(path)
    ledger.reserve(call(1))
    aside = path.rename(path.with_name("aside.jsonl"))
    path.mkdir()
    ledger.settle(call(1), SMALL)
    path.rmdir()
    aside.rename(path)
    assert ledger.read().used == {}
    ledger.reserve(call(2))
    assert ledger.read().used == {"alice": SMALL}
    assert set(ledger.read().held) == {call(2).id}


def test_only_new_records_are_read(path: Path) -> None:
    """Each call reads a line or two, not the whole file."""
    ledger = Ledger(path)
    for number in range(200):
        ledger.reserve(call(number))
        ledger.settle(call(number), SMALL)
    # Damaged in place, so a reader that reads from the start would notice.
    lines = path.read_bytes().splitlines(keepends=True)
    spoilt = [*lines[:2], *(b" " * (len(line) - 1) + b"\n" for line in lines[2:])]
    with path.open("r+b") as file:
        file.write(b"".join(spoilt))
    Ledger(path).reserve(call(999, "bob"))
    ledger.agree(Terms(teammate_tokens=1300))
    found = ledger.reserve(call(1000))
    assert found is not None
    assert "alice has used 1,200 tokens" in found.why


def test_the_file_can_be_read_with_jq(path: Path) -> None:
    Ledger(path).reserve(call(1))
    Ledger(path).settle(call(1), SMALL)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["record"] for record in records] == ["begun", "reserve", "settle"]
    assert records[1]["usd"] == 0.25
    assert records[2]["usd"] == 0.001
    assert (path.stat().st_mode & 0o777) == 0o600


def stopped(path: Path, terms: Terms, name: str = "alice", **more: object) -> Ledger:
    """A ledger under a limit that has refused a call."""
    ledger = Ledger(path, **more)  # type: ignore[arg-type]  # a test's own
    ledger.agree(terms)
    assert ledger.reserve(call(1, name)) is not None
    return ledger


@pytest.mark.parametrize("key", ["team_usd", "teammate_usd", "team_usd_per_day"])
def test_a_resumed_teammate_continues_up_to_its_raised_limit(key: str, path: Path) -> None:
    ledger = stopped(path, Terms(**{key: Decimal("0.1")}))  # type: ignore[arg-type]
    raises, refusal = ledger.raise_limits("alice", ONE)
    assert ([one.limit for one in raises], refusal) == ([key], None)
    for number in range(2, 6):
        assert ledger.reserve(call(number)) is None
        ledger.settle(call(number), None)
    assert ledger.reserve(call(6)) is not None, "$1.10 are used up"


def test_raising_the_limit_of_one_teammate_does_not_help_others(path: Path) -> None:
    ledger = stopped(path, Terms(teammate_usd=Decimal("0.1")))
    ledger.raise_limits("alice", ONE)
    assert ledger.reserve(call(2)) is None
    assert ledger.reserve(call(3, "bob")) is not None


def test_a_raised_daily_limit_applies_only_for_that_day(path: Path) -> None:
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
def test_a_raised_limit_survives_restarts_reloads_and_a_replaced_file(
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


def test_no_limit_is_raised_unless_the_teammate_can_continue_after_it(path: Path) -> None:
    """A person who reads that it was not enough tries again, and would raise it twice."""
    ledger = stopped(path, Terms(team_usd=Decimal("0.1")))
    size = path.stat().st_size
    raises, refusal = ledger.raise_limits("alice", {"usd": Decimal("0.1")})
    assert raises == []
    assert refusal is not None
    assert "`teamctl resume alice --usd 1` raises it" in refusal.sentence("alice")
    assert path.stat().st_size == size


def test_raising_a_limit_in_the_wrong_unit_is_refused_with_the_right_one(path: Path) -> None:
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


def test_no_limit_is_raised_for_a_teammate_that_no_limit_stops(path: Path) -> None:
    """A command that is repeated after a lost answer does not raise twice."""
    ledger = stopped(path, Terms(team_usd=Decimal("0.1")))
    assert ledger.raise_limits("bob", ONE) == ([], None)
    assert ledger.raise_limits("alice", ONE)[0]
    assert ledger.raise_limits("alice", ONE) == ([], None)


def test_the_suggested_limit_is_high_enough_after_a_limit_was_raised(
    path: Path,
) -> None:
    ledger = stopped(path, Terms(team_usd=Decimal("0.1")))
    ledger.raise_limits("alice", ONE)
    found = ledger.reserve(call(2, usd=Decimal(3)))
    assert found is not None
    assert "raise limits.team_usd to at least 2.00" in found.remedy
    ledger.agree(Terms(team_usd=Decimal(2)))
    assert ledger.reserve(call(3, usd=Decimal(3))) is None
