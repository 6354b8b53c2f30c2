"""Several processes share one ledger and are killed at any moment: no limit is exceeded."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from contextlib import ExitStack, closing
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TextIO

from teamd.budget.account import Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.messages import new_id
from teamd.process_id import Identity
from tests.children import ForkedChild, forked

LIMIT = 12_000
KEPT = 100
FORKING = multiprocessing.get_context("fork")  # forked processes do not repeat the imports


class Spender:
    """A process that spends random amounts.

    Before each call it reports the amount of the call on a line of its own, as a server would know
    it. So at any kill it has spent at most the reported sum.
    """

    def __init__(self, path: Path, name: str) -> None:
        reader, writer = os.pipe()
        self.process = FORKING.Process(target=spend, args=(path, name, writer))
        self.process.start()
        os.close(writer)
        self.told = os.fdopen(reader, encoding="ascii")

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.told.close()


def spend(path: Path, name: str, telling: int) -> None:
    chance = random.Random(os.getpid())
    ledger = Ledger(path, longest_bytes=20_000)
    me = Identity.own()
    while True:
        wanted = Reservation(
            id=new_id(),
            teammate=name,
            process=me,
            model="m",
            input_tokens=KEPT - 10,
            output_tokens=10,
            usd=Decimal("0.01"),
        )
        refusal = ledger.reserve(wanted)
        if refusal is not None and refusal.passing:
            continue
        if refusal is not None:
            return
        taken = chance.randint(0, KEPT - 10)
        os.write(telling, b"%d\n" % taken)
        ledger.settle(wanted, Account(calls=1, input_tokens=taken, usd=Decimal(taken) / 10_000))


def test_processes_killed_at_random_never_exceed_the_limit(tmp_path: Path) -> None:
    """The kills hit reservations, calls, settlements and replacements of the file."""
    path = tmp_path / "ledger.jsonl"
    Ledger(path).agree(Terms(team_tokens=LIMIT, team_usd=Decimal(1000)))
    told: list[int] = []
    with ExitStack() as spenders:

        def begin(number: int) -> Spender:
            return spenders.enter_context(closing(Spender(path, f"mate{number}")))

        running = [begin(number) for number in range(3)]
        kills = 0
        while running:
            spender = running.pop(random.randrange(len(running)))
            lines = [spender.told.readline() for _ in range(random.randint(1, 8))]
            if "" not in lines:
                spender.process.kill()
                kills += 1
                running.append(begin(kills % 3))
            lines += spender.told.readlines()
            told += [int(line) for line in lines if line]
            spender.process.join(60)
            assert spender.process.exitcode in (0, -signal.SIGKILL)
    accounts = Ledger(path).read()
    assert not accounts.held
    used = accounts.total().tokens
    assert kills > 2
    assert sum(told) <= used <= LIMIT
    assert used + KEPT > LIMIT, "another call would have fitted"
    assert used - sum(told) <= kills * KEPT, "no more than one call a kill counts in full"
    assert path.stat().st_size < 25_000


def race(path: Path) -> None:
    """Try to reserve a call at each time that standard input gives, and print the success."""
    ledger, me = Ledger(path), Identity.own()
    for line in sys.stdin:
        wanted = Reservation(
            id=new_id(),
            teammate="alice",
            process=me,
            model="m",
            input_tokens=90,
            output_tokens=10,
            usd=Decimal(0),
        )
        while time.monotonic() < float(line):
            pass
        sys.stdout.write(f"{int(ledger.reserve(wanted) is None)}\n")
        sys.stdout.flush()


RACERS = 4
ROUNDS = 30


def test_only_one_of_several_concurrent_calls_gets_the_last_of_the_budget(tmp_path: Path) -> None:
    """Reading the sums and writing the reservation are one atomic step."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    with ExitStack() as stack:
        racers = [stack.enter_context(forked(partial(race, path))) for _ in range(RACERS)]
        for number in range(1, ROUNDS + 1):
            ledger.agree(Terms(team_tokens=100 * number))
            start = time.monotonic() + 0.005
            answers = [_ask(racer, start) for racer in racers]
            got = [int(answer.readline()) for answer in answers]
            assert sum(got) == 1, f"round {number}: {got}"


def _ask(racer: ForkedChild, start: float) -> TextIO:
    racer.stdin.write(f"{start}\n")
    racer.stdin.flush()
    return racer.stdout
