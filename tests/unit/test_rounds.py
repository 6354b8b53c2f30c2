"""The timing of the postman's rounds: no input is missed, and no round is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

from teamd.postman.rounds import Rounds

Answer = float | Coroutine[Any, Any, None]

FAR: float = 3600.0


@dataclass
class Played:
    """Rounds that return a test's answers in order; the last answer is repeated."""

    answers: list[Callable[[], Answer]]
    done: int = 0
    rested: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    rounds: Rounds = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = Rounds(self._act, self._rest)

    def _act(self) -> Answer:
        self.done += 1
        self.news.set()
        return self.answers[min(self.done, len(self.answers)) - 1]()

    def _rest(self) -> None:
        self.rested += 1

    async def reach(self, count: int) -> None:
        """Wait until `count` rounds are done."""
        async with asyncio.timeout(10):
            while self.done < count:
                self.news.clear()
                await self.news.wait()


async def forever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def fail() -> NoReturn:
    raise LookupError("beside")


async def settle() -> None:
    """Let the event loop run all ready callbacks."""
    for _ in range(10):
        await asyncio.sleep(0)


def play(
    *answers: Callable[[], Answer], then: Callable[[Played], Coroutine[Any, Any, None]]
) -> Played:
    async def scenario() -> Played:
        played = Played(list(answers))
        beside = asyncio.create_task(forever())
        run = asyncio.create_task(played.rounds.run(beside))
        await then(played)
        run.cancel()
        beside.cancel()
        return played

    return asyncio.run(scenario())


def test_all_input_within_one_turn_of_the_event_loop_causes_one_round() -> None:
    async def then(played: Played) -> None:
        await played.reach(1)
        for _ in range(3):
            played.rounds.soon()
        assert played.done == 1
        await settle()
        assert played.done == 2
        played.rounds.now()
        assert played.done == 3

    assert play(lambda: FAR, then=then).rested == 0


def test_a_due_round_runs_without_input_and_input_adds_no_second_one() -> None:
    async def then(played: Played) -> None:
        await played.reach(1)
        played.rounds.now()  # the third round is now due once, not twice
        await played.reach(3)
        await settle()
        assert played.done == 3

    assert play(lambda: 0.001, lambda: 0.001, lambda: FAR, then=then).rested == 1


def test_rounds_that_are_due_at_once_do_not_rest() -> None:
    async def then(played: Played) -> None:
        await played.reach(3)

    assert play(lambda: 0.0, lambda: 0.0, lambda: FAR, then=then).rested == 0


def test_while_a_round_waits_no_other_runs_and_one_follows_it() -> None:
    async def then(played: Played) -> None:
        await played.reach(1)
        played.rounds.now()
        played.rounds.soon()
        await settle()
        assert played.done == 1
        taken.set()
        await settle()
        assert played.done == 2

    taken = asyncio.Event()

    async def drain() -> None:
        await taken.wait()

    play(drain, lambda: FAR, then=then)


@pytest.mark.parametrize("at", [1, 2])
def test_a_failing_round_ends_the_rounds_with_its_error(at: int) -> None:
    def broken() -> float:
        raise LookupError("of a round")

    async def scenario() -> Played:
        played = Played([*[lambda: 0.0] * (at - 1), broken])
        with pytest.raises(LookupError, match="of a round"):
            await played.rounds.run(asyncio.create_task(forever()))
        played.rounds.now()
        played.rounds.soon()
        await settle()
        return played

    assert asyncio.run(scenario()).done == at


def test_a_failing_wait_ends_the_rounds_with_its_error() -> None:
    async def broken() -> None:
        raise LookupError("of a wait")

    async def scenario() -> Played:
        played = Played([broken])
        with pytest.raises(LookupError, match="of a wait"):
            await played.rounds.run(asyncio.create_task(forever()))
        return played

    assert asyncio.run(scenario()).done == 1


def test_a_failing_rest_ends_the_rounds_with_its_error() -> None:
    """Otherwise no timed round would follow, and the error would be lost."""

    async def scenario() -> Played:
        played = Played([lambda: 0.001])
        played.rounds.rest = fail_at_rest
        with pytest.raises(LookupError, match="of a rest"):
            async with asyncio.timeout(10):
                await played.rounds.run(asyncio.create_task(forever()))
        return played

    def fail_at_rest() -> None:
        raise LookupError("of a rest")

    assert asyncio.run(scenario()).done == 1


def test_input_adds_no_rounds_while_rounds_are_due_at_once() -> None:
    async def then(played: Played) -> None:
        await played.reach(1)
        for _ in range(5):
            played.rounds.now()
        before = played.done
        for _ in range(10):
            await asyncio.sleep(0)
        assert played.done <= before + 10

    play(lambda: 0.0, then=then)


def test_no_round_runs_after_the_end() -> None:
    """The files that it would read are already closed."""

    async def drain() -> None:
        await taken.wait()

    async def scenario(first: Callable[[], Answer]) -> None:
        played = Played([first, lambda: FAR])
        run = asyncio.create_task(played.rounds.run(asyncio.create_task(forever())))
        await played.reach(1)
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        taken.set()
        played.rounds.soon()
        await asyncio.sleep(0.01)
        assert played.done == 1

    for first in (drain, lambda: 0.001):
        taken = asyncio.Event()
        asyncio.run(scenario(first))


def test_a_failing_companion_task_ends_the_rounds_with_its_error() -> None:
    async def scenario() -> None:
        with pytest.raises(LookupError, match="beside"):
            await Played([lambda: FAR]).rounds.run(asyncio.create_task(fail()))

    asyncio.run(scenario())
