"""At a limit, the lead is told once, and only a change of the limit resumes the work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from teamd.models import LimitError
from tests.strict.replies import say, use
from tests.unit.life import Do, Life

KEY = "limits.team_tokens"


def at_limit(figures: str = "1 of 2") -> LimitError:
    return LimitError(f"{KEY} is reached: {figures}", KEY, lambda: False)


def test_a_new_process_at_the_same_limit_does_not_report_it_again(tmp_path: Path) -> None:
    """Calls of others may have changed the figures, but the limit is the same."""
    life = Life(tmp_path, at_limit("1 of 2"), at_limit("2 of 2"), say("Done."), at_limit("3 of 3"))
    life.send("work")
    life.live(calls=1, status="paused")
    life.live(calls=2, status="paused")
    assert len(life.lead) == 1
    life.live(calls=3)
    life.send("more")
    life.live(calls=4, status="paused")
    assert life.lead[1:] == [f"alice is paused: {KEY} is reached: 3 of 3"]


def test_ringing_its_bell_resumes_a_teammate_whose_limit_was_raised(tmp_path: Path) -> None:
    lifted: list[bool] = []
    life = Life(tmp_path, LimitError("reached", KEY, lambda: bool(lifted)), say("Done."))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            lifted.append(True)
            life.ring()
            await life.rests(calls=2)

    asyncio.run(scenario())


def test_calls_of_subagents_count_within_a_wake_and_the_next_wake_has_the_full_number(
    tmp_path: Path,
) -> None:
    """Otherwise a wake could make its full number of calls once per subagent."""
    work = use(("do", {"word": "x"}), ("do", {"word": "y"}))
    life = Life(tmp_path, *[work] * 9, calls=5)
    granted: list[bool] = []

    async def take(_: str) -> None:
        granted.append(life.allowance.take())

    life.do = Do(take)
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=2)  # the tool used the other three
            life.send("go on")
            await life.rests(calls=4)

    asyncio.run(scenario())
    assert granted == [True, True, True, False] * 2
    told = "alice stopped after 5 model calls without ending its turn and is idle now; "
    assert life.lead == [f"{told}send alice a message to make it continue"] * 2
