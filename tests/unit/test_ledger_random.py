"""Random operations on the ledger exceed no limit and lose no use."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from teamd.budget.account import Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.process_id import Identity

NAMES = ("alice", "bob")
DAYS = ("2026-11-21", "2026-11-22", "2026-11-23")
VIEWS = st.integers(0, 2)
TOKENS = st.integers(0, 60)
MOST = st.integers(0, 200)
CENTS = st.integers(0, 200).map(lambda cents: Decimal(cents) / 100)


@dataclass
class Truth:
    """The real use, to compare with."""

    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*NAMES, *DAYS), 0))
    usd: dict[str, Decimal] = field(
        default_factory=lambda: dict.fromkeys((*NAMES, *DAYS), Decimal(0))
    )

    def spend(self, name: str, day: str, tokens: int, usd: Decimal) -> None:
        """Record a use."""
        for whom in (name, day):
            self.tokens[whom] += tokens
            self.usd[whom] += usd

    def all_tokens(self) -> int:
        """Return the tokens of the whole team."""
        return sum(self.tokens[name] for name in NAMES)

    def all_usd(self) -> Decimal:
        """Return the cost of the whole team."""
        return sum((self.usd[name] for name in NAMES), Decimal(0))


class LedgerMachine(RuleBasedStateMachine):
    """Three processes' views of one file; new processes replace those that die."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.alive = {Identity(pid=pid, started=1.0) for pid in (1, 2, 3)}
        self.views = [self.view() for _ in range(3)]
        self.terms = Terms()
        self.truth = Truth()
        self.day = DAYS[1]
        self.raised: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
        self.open: dict[str, Reservation] = {}
        self.count = 0

    def teardown(self) -> None:
        """Remove the file."""
        shutil.rmtree(self.folder)

    def view(self) -> Ledger:
        """Return the ledger of a new process; files of 700 bytes are replaced often."""
        path = self.folder / "ledger.jsonl"
        return Ledger(
            path, longest_bytes=700, is_alive=self.alive.__contains__, today=lambda: self.day
        )

    @initialize(tokens=st.tuples(MOST, MOST, MOST), usd=st.tuples(CENTS, CENTS, CENTS))
    def limit(self, tokens: tuple[int, ...], usd: tuple[Decimal, ...]) -> None:
        """Put limits in force."""
        self.terms = Terms(
            teammate_tokens=tokens[0],
            teammate_usd=usd[0],
            team_tokens=tokens[1],
            team_usd=usd[1],
            team_tokens_per_day=tokens[2],
            team_usd_per_day=usd[2],
        )
        self.views[0].agree(self.terms)

    @rule(view=VIEWS, name=st.sampled_from(NAMES), sent=TOKENS, said=TOKENS, usd=CENTS)
    def reserve(self, view: int, name: str, sent: int, said: int, usd: Decimal) -> None:
        """Reserve a call; it is refused only if it might not fit."""
        process = next(iter(sorted(self.alive, key=lambda one: one.pid)[view:]))
        self.count += 1
        wanted = Reservation(
            id=f"r{self.count}", teammate=name, process=process, model="m",
            input_tokens=sent, output_tokens=said, usd=usd,
        )  # fmt: skip
        refusal = self.views[view].reserve(wanted)
        if refusal is None:
            self.open[wanted.id] = replace(wanted, day=self.day)
            return
        assert not self.fits(wanted, kept=True)
        assert refusal.passing == self.fits(wanted, kept=False)

    def fits(self, wanted: Reservation, *, kept: bool) -> bool:
        """Return whether a call is within all limits, with or without the reservations."""
        open_ = list(self.open.values()) if kept else []
        mine = [one for one in open_ if one.teammate == wanted.teammate]
        today = [one for one in open_ if one.day == self.day]
        name, truth, most = wanted.teammate, self.truth, self.most
        money = wanted.usd or Decimal(0)
        sums = (
            (most("teammate_tokens", name), truth.tokens[name] + tokens_of([*mine, wanted])),
            (most("team_tokens"), truth.all_tokens() + tokens_of([*open_, wanted])),
            (
                most("team_tokens_per_day", self.day),
                truth.tokens[self.day] + tokens_of([*today, wanted]),
            ),
            (most("teammate_usd", name), truth.usd[name] + money + usd_of(mine)),
            (most("team_usd"), truth.all_usd() + money + usd_of(open_)),
            (most("team_usd_per_day", self.day), truth.usd[self.day] + money + usd_of(today)),
        )
        return all(not limit or total <= limit for limit, total in sums)

    def most(self, limit: str, of: str = "") -> Decimal:
        """Return the amount that a limit allows; 0 for no limit."""
        most = Decimal(getattr(self.terms, limit))
        return most + self.raised[limit, of] if most else most

    @rule(day=st.sampled_from(DAYS))
    def set_clock(self, day: str) -> None:
        """Start a new day, or set the clock back."""
        self.day = day

    @rule(view=VIEWS, name=st.sampled_from(NAMES), usd=CENTS, tokens=TOKENS)
    def raise_limits(self, view: int, name: str, usd: Decimal, tokens: int) -> None:
        """Raise the limits that stop a teammate, as a person does."""
        more = {"usd": usd, "tokens": Decimal(tokens)}
        raises, refusal = self.views[view].raise_limits(name, more)
        assert not (raises and refusal)
        for one in raises:
            self.raised[one.limit, one.of] += one.amount
        if raises:
            assert self.views[view].standing_refusal(name) is None

    @precondition(lambda self: self.open)
    @rule(view=VIEWS, data=st.data())
    def settle(self, view: int, data: st.DataObject) -> None:
        """Settle a call with at most its reservation, or with an unknown use."""
        done = data.draw(st.sampled_from(sorted(self.open)))
        kept = self.open.pop(done)
        if data.draw(st.booleans()):
            self.views[view].settle(kept, None)
            self.truth.spend(kept.teammate, kept.day, kept.tokens, kept.usd or Decimal(0))
            return
        sent = data.draw(st.integers(0, kept.input_tokens))
        said = data.draw(st.integers(0, kept.output_tokens))
        cents = data.draw(st.integers(0, int((kept.usd or Decimal(0)) * 100)))
        usd = Decimal(cents) / 100
        account = Account(calls=1, input_tokens=sent, output_tokens=said, usd=usd)
        self.views[view].settle(kept, account)
        self.truth.spend(kept.teammate, kept.day, sent + said, usd)
        self.views[view].settle(kept, account)  # twice is once

    @rule(victim=VIEWS)
    def kill(self, victim: int) -> None:
        """A process dies, so its calls count in full; a new process replaces it."""
        dead = sorted(self.alive, key=lambda one: one.pid)[victim]
        self.alive.remove(dead)
        self.alive.add(Identity(pid=dead.pid, started=dead.started + 1))
        self.views[victim] = self.view()
        for kept in [one for one in self.open.values() if one.process == dead]:
            del self.open[kept.id]
            self.truth.spend(kept.teammate, kept.day, kept.tokens, kept.usd or Decimal(0))

    @rule(tail=st.sampled_from([b'{"record": "res', b"\xff\n", b"[]\n", b'{"record": 5}\n']))
    def tear(self, tail: bytes) -> None:
        """A writer is killed within a line, or another program writes nonsense."""
        with (self.folder / "ledger.jsonl").open("ab") as file:
            file.write(tail)

    @invariant()
    def nothing_is_exceeded_or_forgotten(self) -> None:
        """The ledger equals the real use, and is within the limits with all reservations."""
        accounts = self.view().read()
        for whom in (*NAMES, *DAYS):
            account = (accounts.days if whom in DAYS else accounts.used).get(whom, Account())
            assert account.tokens == self.truth.tokens[whom]
            assert account.usd == self.truth.usd[whom]
        for day in DAYS:
            kept = [one for one in self.open.values() if one.day == day]
            tokens, usd = self.most("team_tokens_per_day", day), self.most("team_usd_per_day", day)
            assert not tokens or self.truth.tokens[day] + tokens_of(kept) <= tokens
            assert not usd or self.truth.usd[day] + usd_of(kept) <= usd
        assert accounts.held.keys() == self.open.keys()
        zero = Reservation(
            id="", teammate="alice", process=Identity(pid=1, started=0.0), model="m",
            input_tokens=0, output_tokens=0, usd=Decimal(0),
        )  # fmt: skip
        assert self.fits(zero, kept=True)


def tokens_of(kept: list[Reservation]) -> int:
    return sum(one.tokens for one in kept)


def usd_of(kept: list[Reservation]) -> Decimal:
    return sum((one.usd or Decimal(0) for one in kept), Decimal(0))


LedgerMachine.TestCase.settings = settings(deadline=None, stateful_step_count=40)
TestLedger = LedgerMachine.TestCase
