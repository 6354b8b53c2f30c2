"""A metered model: its reservations, its records, and the calls that it refuses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.model_calls import UNSEEN_TOKENS
from teamd.budget.account import NOTHING, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.days import end_of
from teamd.budget.ledger import Ledger
from teamd.errors import StoreError
from teamd.model_server import Usage
from teamd.models import (
    Ask,
    LimitError,
    ModelError,
    Provider,
    Reply,
    TransientError,
    UnusableError,
)
from teamd.process_id import Identity
from tests.unit.life import calls_to
from tests.waiting import until

MODEL = "claude-haiku-4-5"
ASK = Ask(
    model=MODEL,
    system="You are 'alice', role: tester.",
    tools=[{"name": "bash", "description": "runs", "input_schema": {"type": "object"}}],
    messages=[{"role": "user", "content": [{"type": "text", "text": "hellö"}]}],
    max_tokens=1000,
)
WHOLE = len(
    json.dumps(
        [ASK.system, ASK.tools, ASK.messages], ensure_ascii=False, separators=(",", ":")
    ).encode()
)
SAID = {"type": "text", "text": "Here."}
USAGE = Usage(input_tokens=10, cache_read_tokens=20, cache_write_tokens=30, output_tokens=4)


def reply(usage: Usage = USAGE) -> Reply:
    return Reply(content=[SAID], stop_reason="end_turn", model=MODEL, usage=usage)


class Model(Provider):
    """Returns its plays in order, and reads the ledger during each call."""

    def __init__(self, ledger: Ledger, *plays: Reply | Exception, is_server: bool = True) -> None:
        self.kept: list[Reservation] = []
        self.is_server = is_server  # type: ignore[misc]  # of a class elsewhere
        self._ledger = ledger
        self._plays = list(plays)

    async def reply(self, ask: Ask) -> Reply:  # noqa: ARG002 -- a model's signature
        """Return the next play."""
        self.kept += self._ledger.read().held.values()
        play = self._plays.pop(0) if self._plays else reply()
        if isinstance(play, Exception):
            raise play
        return play


class Desk:
    """A metered model, and its ledger."""

    def __init__(self, folder: Path, *plays: Reply | Exception, free: bool = False) -> None:
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.model = Model(self.ledger, *plays, is_server=not free)
        self.metered = calls_to(self.model, Ledger(folder / "ledger.jsonl"))

    def ask(self, ask: Ask = ASK) -> Reply:
        """Make one call."""
        return asyncio.run(self.metered.reply(ask))

    @property
    def account(self) -> Any:
        """Return the use of alice."""
        return self.ledger.read().used["alice"]


def begun(error: ModelError) -> ModelError:
    error.begun = True
    return error


def test_the_reservation_is_on_disk_during_the_call_and_the_use_after_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ask()
    kept = desk.model.kept[0]
    assert (kept.input_tokens, kept.output_tokens) == (WHOLE + UNSEEN_TOKENS, 1000)
    assert kept.usd == Decimal(kept.input_tokens) * Decimal("2e-6") + Decimal("0.005")
    account = desk.account
    assert (account.calls, account.input_tokens, account.output_tokens) == (1, 60, 4)
    assert (account.cache_read_tokens, account.cache_write_tokens) == (20, 30)
    assert account.usd == Decimal("0.0000695")
    assert not desk.ledger.read().held


def test_tokens_that_a_server_has_counted_bound_a_request(tmp_path: Path) -> None:
    """A token is about four bytes, so a bound by bytes would stop a conversation too early."""
    desk = Desk(tmp_path)
    long = replace(ASK, system="You are 'alice'." * 1000)
    desk.ask(long)
    desk.ask(replace(long, most_input_tokens=99))
    assert desk.model.kept[0].input_tokens > 16_000
    assert desk.model.kept[1].input_tokens == 99


def test_at_a_limit_the_model_is_not_asked(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ledger.agree(Terms(teammate_tokens=WHOLE + UNSEEN_TOKENS + 999))
    with pytest.raises(LimitError, match=r"is left of limits\.teammate_tokens: ") as caught:
        desk.ask()
    assert caught.value.key == "limits.teammate_tokens"
    assert caught.value.again_in_seconds is None
    assert not caught.value.lifted()
    desk.ledger.let_go("alice")
    assert caught.value.lifted()
    assert desk.model.kept == []
    desk.ledger.agree(Terms(teammate_tokens=WHOLE + UNSEEN_TOKENS + 1000))
    desk.ask()


def test_at_a_daily_limit_the_call_is_tried_again_the_next_day(tmp_path: Path) -> None:
    desk, day = Desk(tmp_path), ["2026-11-22"]
    for ledger in (desk.ledger, desk.metered.ledger):
        ledger.today = lambda: day[0]
    desk.ledger.agree(Terms(team_tokens_per_day=WHOLE + UNSEEN_TOKENS + 1000))
    desk.ask()
    with pytest.raises(LimitError) as caught:
        desk.ask(replace(ASK, model="claude-opus-5-5"))
    assert caught.value.until == end_of("2026-11-22")
    assert not caught.value.lifted()
    day[0] = "2026-11-23"
    assert caught.value.lifted()
    desk.ask()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            ImportError("Using SOCKS proxy, but\nthe package is missing"),
            "Using SOCKS proxy, but the",
        ),
        (FileNotFoundError(2, "No such file or directory"), "[Errno 2] No such file"),
        (AssertionError(), "AssertionError"),
    ],
    ids=repr,
)
def test_a_client_that_cannot_be_built_pauses_and_costs_nothing(
    error: Exception, why: str, tmp_path: Path
) -> None:
    """An exception other than ModelError is raised before a request is sent."""
    desk = Desk(tmp_path, error)
    with pytest.raises(UnusableError) as caught:
        desk.ask()
    said = str(caught.value)
    assert said.startswith(f"the model cannot be reached from here: {why}")
    assert said.endswith("; `teamctl doctor` checks the machine; then send mail to try again")
    assert "\n" not in said
    assert (desk.account.calls, desk.account.tokens, desk.account.usd) == (0, 0, 0)
    assert not desk.ledger.read().held


@pytest.mark.parametrize("error", [TransientError("busy"), UnusableError("no key")])
def test_a_failure_before_the_server_started_costs_nothing(
    error: ModelError, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, error)
    with pytest.raises(UnusableError):
        desk.ask()
    assert (desk.account.calls, desk.account.tokens, desk.account.usd) == (0, 0, 0)
    assert not desk.ledger.read().held


@pytest.mark.parametrize(
    "play",
    [
        begun(TransientError("broken stream")),
        begun(UnusableError("refused in mid-stream")),
        reply(Usage()),
    ],
    ids=str,
)
def test_unknown_usage_counts_in_full(play: Reply | Exception, tmp_path: Path) -> None:
    """A broken stream is charged, and so is a reply of a server that reports no tokens."""
    desk = Desk(tmp_path, play)
    if isinstance(play, Exception):
        with pytest.raises(UnusableError):
            desk.ask()
    else:
        desk.ask()
    assert desk.account.tokens == desk.model.kept[0].tokens
    assert (desk.account.calls, desk.account.assumed_calls) == (1, 1)


@pytest.mark.parametrize("works", [True, False])
def test_the_model_is_asked_only_after_the_conversation_is_on_disk(
    tmp_path: Path, *, works: bool
) -> None:
    """The transcript also holds the mail that caused the call, and the disk may refuse it."""
    desk = Desk(tmp_path)
    asked: list[int] = []

    def settle() -> None:
        asked.append(len(desk.model.kept))
        if not works:
            raise StoreError("the disk is full")

    desk.metered = replace(desk.metered, settle=settle)
    if works:
        desk.ask()
    else:
        with pytest.raises(StoreError):
            desk.ask()
    assert asked == [0]
    assert len(desk.model.kept) == int(works)
    assert not desk.ledger.read().held, "what was not asked takes nothing"


def test_a_call_that_is_cancelled_counts_in_full(tmp_path: Path) -> None:
    """A stop in the middle of a reply: the server has started and keeps charging."""
    desk = Desk(tmp_path)

    class Hanging(Model):
        async def reply(self, ask: Ask) -> Reply:
            await super().reply(ask)
            await asyncio.Event().wait()
            return reply()

    desk.model = Hanging(desk.ledger)
    desk.metered = calls_to(desk.model, desk.ledger)

    async def scenario() -> None:
        asking = asyncio.create_task(desk.metered.reply(ASK))
        await until(lambda: desk.model.kept)
        asking.cancel()
        await asyncio.wait([asking])

    asyncio.run(scenario())
    assert desk.account.tokens == desk.model.kept[0].tokens


def test_a_call_that_may_fit_soon_waits_without_a_pause(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ledger.agree(Terms(team_tokens=5000))
    bobs = Reservation(
        id="bobs", teammate="bob", process=Identity.own(), model=MODEL,
        input_tokens=4000, output_tokens=500, usd=Decimal(0),
    )  # fmt: skip
    assert desk.ledger.reserve(bobs) is None

    async def scenario() -> None:
        waiting = asyncio.create_task(desk.metered.reply(ASK))
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        assert not desk.model.kept
        desk.ledger.settle(bobs, NOTHING)
        await asyncio.wait_for(waiting, 20)

    asyncio.run(scenario())
    assert desk.account.calls == 1


def test_a_price_in_the_settings_applies_from_the_next_call(tmp_path: Path) -> None:
    """`teamctl resume` must be enough, without a restart."""
    desk = Desk(tmp_path)
    ask = replace(ASK, model="my-model")
    desk.ask(ask)
    assert (desk.account.unpriced_calls, desk.account.usd) == (1, 0)
    desk.ledger.agree(Terms(team_usd=Decimal(9)))
    with pytest.raises(LimitError, match="the price of my-model is not known; write"):
        desk.ask(ask)
    desk.ledger.agree(
        Terms(team_usd=Decimal(9), prices={"my-model": {"input": 1.0, "output": 1.0}})
    )
    desk.ask(ask)
    assert desk.account.usd == Decimal("0.0000535")  # 10 + 4, 20 at a tenth, 30 at 1.25


def test_scripted_turns_cost_nothing(tmp_path: Path) -> None:
    """A demo must run under a limit on money."""
    desk = Desk(tmp_path, free=True)
    desk.ledger.agree(Terms(team_usd=Decimal("0.000001")))
    desk.ask(replace(ASK, model="my-model"))
    assert (desk.account.usd, desk.account.unpriced_calls, desk.account.tokens) == (0, 0, 64)
