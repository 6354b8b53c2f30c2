"""News in a loop besides mail, and the tools that a role allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from teamd.settings.known_tools import KnownTool
from teamd.transcript.records import NewsAdded, Opened
from tests.strict.replies import say, use
from tests.unit.life import SYSTEM, Do, Life

ENDED = NewsAdded(about="job 1 of 5.0", text="<background-job>over</background-job>")


def told(life: Life) -> int:
    """Return how often the news is in the model's last request."""
    return str(life.model.asked[-1].messages).count(ENDED.text)


def test_news_is_in_the_next_request_and_only_once_across_all_restarts(tmp_path: Path) -> None:
    life = Life(tmp_path, use(("do", {})))
    life.send("work")
    life.live(calls=2)
    life.news.append(ENDED)
    life.send("more")
    life.live(calls=3)
    assert told(life) == 1
    life.send("and more")
    life.live(calls=4)
    assert told(life) == 1


def test_news_wakes_an_idle_teammate(tmp_path: Path) -> None:
    """The end of a background job must not wait for mail."""
    life = Life(tmp_path)

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=0)
            life.news.append(ENDED)
            life.ring()
            await life.rests(calls=1)

    life.send("work")
    life.live(calls=1)
    life.model.asked.clear()
    asyncio.run(scenario())
    assert told(life) == 1


def test_mail_that_arrives_during_the_check_for_news_is_read_at_once(tmp_path: Path) -> None:
    """Its ring must not be taken for one of mail that was read."""
    life = Life(tmp_path)
    life.news = _MailMeanwhile(lambda: life.send("work"))
    life.live(calls=1)


def test_news_does_not_separate_a_call_from_its_result(tmp_path: Path) -> None:
    """A restart in the middle of a task may find both calls without results and news."""
    life = Life(tmp_path, use(("do", {"word": "a"}), ("do", {"word": "b"})), do=_Once())
    life.send("work")
    life.live(calls=2)
    results = life.model.asked[1].messages[-1]["content"]
    assert [block["type"] for block in results][:2] == ["tool_result", "tool_result"]
    assert told(life) == 0
    life.news.append(ENDED)
    life.send("more")
    life.live(calls=3)
    assert told(life) == 1


def test_a_role_allows_only_its_tools_and_keeps_them(tmp_path: Path) -> None:
    life = Life(tmp_path, use(("do", {})), say("Then not."), do=_Granted())
    life.more = [_Always()]
    life.opening = Opened(system=SYSTEM, model="other", tools=frozenset())
    life.send("work")
    life.live(calls=2)
    names = {tool["name"] for tool in life.model.asked[0].tools}
    assert "always" in names
    assert "do" not in names
    assert "no tool named 'do'" in str(life.model.last())
    assert life.do.done == []
    assert life.model.asked[0].model == "other"
    life.opening = Opened(system=SYSTEM)
    life.send("more")
    life.live(calls=3)
    assert life.model.asked[-1].tools == life.model.asked[0].tools, "frozen with the conversation"


class _MailMeanwhile(list[NewsAdded]):
    """News; mail comes at the moment of the first look at it."""

    def __init__(self, send: Callable[[], object]) -> None:
        super().__init__()
        self._sends = [send]

    def __iter__(self) -> Iterator[NewsAdded]:
        while self._sends:
            self._sends.pop()()
        return super().__iter__()


class _Once(Do):
    facts: ClassVar[KnownTool] = KnownTool(acts=True, repeatable=True)


class _Granted(Do):
    facts: ClassVar[KnownTool] = KnownTool(acts=True, grantable=True)


class _Always(Do):
    name: ClassVar[str] = "always"
