"""At a limit: told once, however often, and nothing but another process goes on."""

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


def test_mail_does_not_wake_who_is_paused_at_a_limit(tmp_path: Path) -> None:
    """It stays in the inbox, and no call is tried."""
    life = Life(tmp_path, at_limit())
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            for _ in range(3):
                life.send("Are you there?")
            # The ring has been heard, since the pipe is empty again.
            await until(lambda: life.bell is not None and drained(life.bell[0]))
            assert len(life.model.asked) == 1

    asyncio.run(scenario())
    assert life.mailbox.queued() == 3
    assert life.lead == [f"alice is paused: {KEY} is reached: 1 of 2"]


def drained(bell: int) -> bool:
    import select  # noqa: PLC0415 -- for this alone

    return not select.select([bell], [], [], 0)[0]


def test_a_new_process_at_the_same_limit_does_not_tell_it_again(tmp_path: Path) -> None:
    """The figures may have changed by others' calls; it is the same news all the same."""
    life = Life(tmp_path, at_limit("1 of 2"), at_limit("2 of 2"), say("Done."), at_limit("3 of 3"))
    life.send("work")
    life.live(calls=1, status="paused")
    life.live(calls=2, status="paused")
    assert len(life.lead) == 1
    life.live(calls=3)
    life.send("more")
    life.live(calls=4, status="paused")
    assert life.lead[1:] == [f"alice is paused: {KEY} is reached: 3 of 3"]


def test_what_came_while_it_was_paused_is_in_the_call_that_goes_on(tmp_path: Path) -> None:
    life = Life(tmp_path, at_limit(), say("Done."))
    life.send("work")
    life.live(calls=1, status="paused")
    life.send("and this")
    life.live(calls=2)
    texts = "".join(block["text"] for block in life.model.last())
    assert "work" in texts
    assert "and this" in texts
    assert life.mailbox.queued() == 0


def test_another_reason_is_told_although_it_was_paused_before(tmp_path: Path) -> None:
    life = Life(tmp_path, UnusableError("no key"), at_limit())
    life.send("work")
    life.live(calls=1, status="paused")
    life.live(calls=2, status="paused")
    assert len(life.lead) == 2


def test_who_was_let_go_goes_on_when_it_is_rung(tmp_path: Path) -> None:
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


def test_what_is_done_within_a_wake_takes_from_its_calls_and_the_next_wake_has_them_all(
    tmp_path: Path,
) -> None:
    """Else a wake with subagents had as many times its calls as there are subagents."""
    work = use(("do", {"word": "x"}), ("do", {"word": "y"}))
    life = Life(tmp_path, *[work] * 9, calls=5)
    granted: list[bool] = []

    async def take(_: str) -> None:
        granted.append(life.allowance.take())

    life.do = Do(take)
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=2)  # and three by what it did
            life.send("go on")
            await life.rests(calls=4)

    asyncio.run(scenario())
    assert granted == [True, True, True, False] * 2
    told = "alice stopped after 5 model calls without ending its turn and is idle now; "
    assert life.lead == [f"{told}send alice a message to let it go on"] * 2
