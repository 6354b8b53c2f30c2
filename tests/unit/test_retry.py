"""RetryPolicy with a server: bounded, spread, interruptible, and given up with a sentence."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.agent.model_calls import ModelCalls, Rests
from teamd.budget.ledger import Ledger
from teamd.models import (
    Ask,
    KeyRefusedError,
    LaterError,
    RefusedError,
    RetryPolicy,
    TransientError,
    UnusableError,
)
from tests.strict.replies import say
from tests.unit.life import NEVER_SECONDS, Play, Player, calls_to
from tests.waiting import until

QUICK = RetryPolicy(attempts=4, first_seconds=0.001, longest_seconds=0.002, rest_seconds=90)
ASK = Ask(
    model="claude-sonnet-5-5",
    system="You are 'alice', role: tester.",
    tools=[],
    messages=[{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    max_tokens=100,
    asker="alice",
)


def busy(retry_after: float | None = None) -> TransientError:
    return TransientError("the server is busy", retry_after)


class Told(list[tuple[str, float, int]]):
    """Records the lines of a log."""

    def tell(self, error: TransientError, seconds: float, attempt: int) -> None:
        self.append((str(error), seconds, attempt))


Retrying = Callable[..., tuple[ModelCalls, Player, Told]]


@pytest.fixture
def retrying(tmp_path: Path) -> Retrying:
    """Makes model calls that get these answers."""

    def make(
        *plays: Play, patience: RetryPolicy = QUICK, **parts: Any
    ) -> tuple[ModelCalls, Player, Told]:
        model, told, ledger = Player(*plays), Told(), Ledger(tmp_path / "ledger")
        return calls_to(model, ledger, policy=patience, tell=told.tell, **parts), model, told

    return make


@given(
    st.integers(0, 60),
    st.floats(0, 100),
    st.floats(0, 100),
    st.none() | st.floats(0) | st.just(math.inf),
)
def test_a_pause_stays_within_its_bounds(
    attempt: int, first: float, longest: float, asked: float | None
) -> None:
    """The server's request is honoured up to the cap, and the jitter is added."""
    patience = RetryPolicy(first_seconds=first, longest_seconds=longest)
    pause = patience.seconds(attempt, asked)
    honoured = min(asked or 0.0, longest)
    assert honoured <= pause <= honoured + min(first * 2**attempt, longest)


def test_pauses_grow_and_vary_at_random() -> None:
    """Teammates that failed together must not return together."""
    patience = RetryPolicy(first_seconds=1, longest_seconds=1000)
    pauses = [[patience.seconds(attempt, None) for _ in range(200)] for attempt in range(5)]
    assert all(len(set(row)) == 200 for row in pauses)
    for attempt, row in enumerate(pauses):
        # Not one of 200 samples in the upper half of the range: once in 10^60 runs.
        assert max(row) > 2**attempt / 2


def test_it_retries_until_there_is_a_reply(retrying: Retrying) -> None:
    model, player, told = retrying(busy(), busy(), say("Here."))
    reply = asyncio.run(model.reply(ASK))
    assert reply.text == "Here."
    assert [ask.messages == ASK.messages for ask in player.asked] == [True] * 3
    assert [(why, number) for why, _, number in told] == [("the server is busy", k) for k in (2, 3)]


def test_it_gives_up_with_a_sentence_and_a_time(retrying: Retrying) -> None:
    model, player, told = retrying(*[busy()] * 9)
    with pytest.raises(UnusableError) as caught:
        asyncio.run(model.reply(ASK))
    assert str(caught.value) == (
        "the server is busy; gave up after 4 attempts, next one in 90 s or with the next mail"
    )
    assert caught.value.again_in_seconds == 90
    assert len(player.asked) == 4
    assert len(told) == 3


def test_a_refused_call_waits_for_its_slot_alone(retrying: Retrying) -> None:
    """The supervisor pauses all calls of the team; a second pause would waste the slot."""
    patience = RetryPolicy(first_seconds=NEVER_SECONDS, longest_seconds=NEVER_SECONDS)
    model, _, _ = retrying(RefusedError("too many"), say("Here."), patience=patience)
    reply = asyncio.run(asyncio.wait_for(model.reply(ASK), timeout=20))
    assert reply.text == "Here."


def broken() -> TransientError:
    """Return the failure of a reply that breaks off, whose output counts in full."""
    error = TransientError("the connection was reset")
    error.begun = error.broke_off = True
    return error


def test_a_reply_that_breaks_off_is_requested_five_times_and_then_less_and_less_often(
    retrying: Retrying,
) -> None:
    """A gateway that cuts every reply would use up the limits of a day within minutes."""
    patience = replace(QUICK, attempts=10)
    model, player, _ = retrying(*[broken(), busy(), *[broken()] * 4] * 3, patience=patience)
    for rest in (90, 180, 360):
        with pytest.raises(UnusableError) as caught:
            asyncio.run(model.reply(ASK))
        assert str(caught.value) == (
            f"the connection was reset; 5 replies broke off, next one in {rest} s or with the next "
            "mail"
        )
    assert len(player.asked) == 18


def test_an_error_that_a_person_has_to_correct_is_not_tried_again(retrying: Retrying) -> None:
    model, player, told = retrying(UnusableError("no key"))
    with pytest.raises(UnusableError, match=r"^no key$"):
        asyncio.run(model.reply(ASK))
    assert len(player.asked) == 1
    assert told == []


@pytest.mark.parametrize("asked", [None, NEVER_SECONDS])
def test_waiting_ends_at_once_when_cancelled(asked: float | None, retrying: Retrying) -> None:
    """A stop must not wait for a server that asked for an hour."""
    patience = RetryPolicy(first_seconds=NEVER_SECONDS, longest_seconds=NEVER_SECONDS)
    model, player, told = retrying(busy(asked), say("Too late."), patience=patience)

    async def scenario() -> None:
        waiting = asyncio.create_task(model.reply(ASK))
        await until(lambda: told)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, timeout=20)

    asyncio.run(scenario())
    assert len(player.asked) == 1


def rest_of(model: ModelCalls) -> UnusableError:
    with pytest.raises(UnusableError) as caught:
        asyncio.run(model.reply(ASK))
    return caught.value


def test_pauses_of_an_account_grow_to_an_hour_and_are_reset_by_a_reply(retrying: Retrying) -> None:
    broke = LaterError("no credit", about="account")
    model, player, _ = retrying(*[broke] * 8, say("Here."), broke)
    rests = [rest_of(model) for _ in range(8)]
    assert [one.again_in_seconds for one in rests] == [90, 180, 360, 720, 1440, 2880, 3600, 3600]
    assert str(rests[1]) == "no credit; next try in 180 s or with the next mail"
    assert {(one.about, one.by_server) for one in rests} == {("account", False)}
    assert asyncio.run(model.reply(ASK)).text == "Here."
    assert rest_of(model).again_in_seconds == 90
    assert len(player.asked) == 10


def test_a_long_wait_requested_by_the_server_is_a_pause_that_mail_does_not_end(
    retrying: Retrying,
) -> None:
    """However often the server requests it."""
    model, player, told = retrying(*[LaterError("busy", 61.0)] * 3)
    rests = [rest_of(model) for _ in range(3)]
    assert {(one.again_in_seconds, one.by_server) for one in rests} == {(61.0, True)}
    assert "busy; the server takes the next try at " in str(rests[0])
    assert "`teamctl resume alice` tries now" in str(rests[0])
    assert (len(player.asked), told) == (3, [])


def test_all_conversations_of_a_teammate_share_the_pauses(retrying: Retrying) -> None:
    """A subagent has a new conversation for each try of its turn."""
    rests, broke = Rests(), LaterError("no credit")
    made = (retrying(broke, rests=rests)[0] for _ in range(3))
    assert [rest_of(model).again_in_seconds for model in made] == [90, 180, 360]


def test_a_server_that_keeps_requesting_short_waits_is_asked_ever_less_often(
    retrying: Retrying,
) -> None:
    """Its clock may be wrong."""
    times = (86400.0, 86400.0, 5.0, 0.0)
    model, _, _ = retrying(*(LaterError("limit", seconds) for seconds in times))
    rests = [rest_of(model) for _ in times]
    assert [one.again_in_seconds for one in rests] == [86400, 86400, 360, 720]
    assert [one.by_server for one in rests] == [True, True, False, False]


@pytest.mark.parametrize("other", [True, False])
def test_after_a_refused_key_a_fresh_one_is_tried_once(retrying: Retrying, *, other: bool) -> None:
    asked: list[str] = []

    async def renew() -> bool:
        asked.append("key")
        return other

    refused = KeyRefusedError("wrong key", about="key")
    model, player, _ = retrying(refused, refused, say("Too late."))
    player.renew_key = renew  # type: ignore[method-assign]
    assert rest_of(model).about == "key"
    assert asked == ["key"]
    assert len(player.asked) == 1 + other
