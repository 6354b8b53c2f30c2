"""At a limit, the lead is told once, and only a change of the limit resumes the work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from teamd.models import LimitError, UnusableError
from tests.strict.replies import say, use
from tests.unit.life import Do, Life
from tests.waiting import until

KEY = "limits.team_tokens"


def at_limit(figures: str = "1 of 2") -> LimitError:
    return LimitError(f"{KEY} is reached: {figures}", KEY, lambda: False)


def test_mail_does_not_wake_a_teammate_paused_at_a_limit(tmp_path: Path) -> None:
    """It stays in the inbox, and no call is tried."""
    life = Life(tmp_path, at_limit())
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            for _ in range(3):
                life.send("Are you there?")
            # The ring was read, since the pipe is empty again.
            await until(lambda: life.bell is not None and drained(life.bell[0]))
            assert len(life.model.asked) == 1

    asyncio.run(scenario())
    assert life.mailbox.queued() == 3
    assert life.lead == [f"alice is paused: {KEY} is reached: 1 of 2"]


def drained(bell: int) -> bool:
    import select  # noqa: PLC0415 -- for this alone

    return not select.select([bell], [], [], 0)[0]


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


def test_mail_that_arrived_during_a_pause_is_in_the_next_call(tmp_path: Path) -> None:
    life = Life(tmp_path, at_limit(), say("Done."))
    life.send("work")
    life.live(calls=1, status="paused")
    life.send("and this")
    life.live(calls=2)
    texts = "".join(block["text"] for block in life.model.last())
    assert "work" in texts
    assert "and this" in texts
    assert life.mailbox.queued() == 0


def test_another_reason_is_reported_although_it_was_paused_before(tmp_path: Path) -> None:
    life = Life(tmp_path, UnusableError("no key"), at_limit())
    life.send("work")
    life.live(calls=1, status="paused")
    life.live(calls=2, status="paused")
    assert len(life.lead) == 2


def test_a_ring_resumes_a_teammate_whose_limit_was_lifted(tmp_path: Path) -> None:
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
    assert life.lead == [f"{told}send alice a message to let it go on"] * 2
