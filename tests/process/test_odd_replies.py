"""Replies of gateways, checked from the socket to the next request, the ledger and the roster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from teamd.agent.conversation.context import REFUSED
from teamd.agent.conversation.conversation import Conversation
from teamd.budget.ledger import Ledger
from teamd.model_server.facts import ModelFacts
from teamd.models import Ask, Reply, RetryPolicy
from teamd.transcript.records import NewsAdded
from tests.strict.faults import Refusal
from tests.strict.odd import ODD_REPLIES, WHOLE, OddReply, block, call, end, sse, start
from tests.strict.replies import say
from tests.strict.server import StrictServer, by_name
from tests.unit.life import Life, calls_to

POLICY = RetryPolicy(attempts=4, first_seconds=0.001, longest_seconds=0.002, rest_seconds=600)
NEXT = say("Done.")


class Served:
    """A model behind a real socket, with retries and a ledger, as a teammate uses it.

    Attributes:
        asked: the requests of the loop.
        retries: the sentences of failed attempts.
    """

    def __init__(self, url: str, ledger: Ledger) -> None:
        self.asked: list[Ask] = []
        self.retries: list[str] = []
        self.claude = resolve_name("teamd.models.claude:Claude")(
            base_url=url,
            key_command=None,
            headers={},
            timeout_seconds=30.0,
            cache=True,
            key="test-key",
        )
        self._model = calls_to(
            self.claude,
            ledger,
            policy=POLICY,
            tell=lambda error, *_: self.retries.append(str(error)),
        )

    async def reply(self, ask: Ask) -> Reply:
        """Answer as a teammate's model does."""
        self.asked.append(ask)
        return await self._model.reply(ask)


class Story:
    """A teammate that receives odd replies and then an ordinary one."""

    def __init__(self, folder: Path, server: StrictServer) -> None:
        self.life = Life(folder)
        self.ledger = Ledger(self.life.paths.ledger)
        self.served = Served(server.url, self.ledger)
        model: Any = self.served
        self.life.model = model
        self.life.send("work")

    def live(self, *, calls: int, status: str = "idle") -> None:
        """Run the teammate until it rests."""

        async def life() -> None:
            try:
                async with self.life.lived():
                    await self.life.rests(status, calls=calls)
            finally:
                await self.served.claude.close()

        asyncio.run(life())

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of the odd reply's calls in the next request."""
        content = self.served.asked[-1].messages[-1]["content"]
        return [block for block in content if block["type"] == "tool_result"]

    def booked(self) -> tuple[int, int, int]:
        """Return input tokens, output tokens and the number of calls that count in full."""
        used = self.ledger.read().used["alice"]
        assert not self.ledger.read().held
        return used.input_tokens, used.output_tokens, used.assumed_calls


REPLIES = [odd for odd in ODD_REPLIES if odd.does is not None]
NO_REPLIES = [odd for odd in ODD_REPLIES if odd.does is None]
ONE_OF_EACH_BILL = {odd.billed: odd for odd in NO_REPLIES if not odd.recovers}.values()


def test_there_are_at_least_120_odd_replies_with_unique_names() -> None:
    assert len({str(odd) for odd in ODD_REPLIES}) == len(ODD_REPLIES) >= 120


@pytest.mark.parametrize("odd", REPLIES, ids=str)
def test_an_odd_reply_is_understood(tmp_path: Path, odd: OddReply) -> None:
    with StrictServer(by_name({"alice": [NEXT]})) as server:
        server.faults.push(odd)
        story = Story(tmp_path, server)
        story.live(calls=1 if odd.ends else 2)
        assert server.refused == []
        following = (0, 0) if odd.ends else billed(server)
    assert tuple(story.life.do.done) == odd.does
    assert story.served.retries == []
    if odd.error:
        (result,) = story.results
        assert result["is_error"]
        assert odd.error in result["content"][0]["text"]
    _check_money(story, odd, failures=1, following=following)


@pytest.mark.parametrize("odd", NO_REPLIES, ids=str)
def test_an_invalid_reply_is_requested_again(tmp_path: Path, odd: OddReply) -> None:
    with StrictServer(by_name({"alice": [NEXT]})) as server:
        server.faults.push(odd)
        story = Story(tmp_path, server)
        story.live(calls=1)
        assert server.refused == []
        url, following = server.url, billed(server)
    (sentence,) = story.served.retries
    assert odd.sentence in sentence
    assert url in sentence
    assert "\n" not in sentence
    _check_money(story, odd, failures=1, following=following)


@pytest.mark.parametrize("odd", ONE_OF_EACH_BILL, ids=str)
def test_the_same_failure_twice_in_a_row_pauses_the_teammate(tmp_path: Path, odd: OddReply) -> None:
    with StrictServer(by_name({"alice": [NEXT]})) as server:
        server.faults.push(odd, odd)
        story = Story(tmp_path, server)
        story.live(calls=1, status="paused")
        assert len(server.requests) == 2
        url = server.url
    (notice,) = story.life.lead
    for words in ("alice is paused", url, odd.sentence, "twice in a row", "next one in 600 s"):
        assert words in notice
    _check_money(story, odd, failures=2, following=(0, 0))


FORGED = [start(), *block(0, {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}),
          *call(1), *end()]  # fmt: skip


def test_thinking_that_the_server_refuses_is_removed(tmp_path: Path) -> None:
    with StrictServer(by_name({"alice": [NEXT]})) as server:
        server.faults.push(OddReply(name="forged", body=sse(FORGED)))
        story = Story(tmp_path, server)
        story.live(calls=3)
        (refused,) = server.refused
        last = server.requests[-1].body["messages"]
    assert "messages.1.content.0: Invalid `signature`" in str(refused)
    assert [block["type"] for block in last[1]["content"]] == ["tool_use"]
    (notice,) = story.life.lead
    assert "a part of the conversation was refused and removed, the work goes on" in notice
    assert story.life.do.done == ["a"]


@pytest.mark.parametrize(
    ("message", "texts"),
    [
        ("messages.1.content.1.tool_use.input: Input should be an object", ["work", REFUSED]),
        ("messages.1: something is wrong", ["work", REFUSED]),
        ("messages[1].content[1]: invalid", ["work", REFUSED]),
        ("messages.2.content.0.tool_result.content: too odd", ["work", "I look.", REFUSED]),
        ("messages.0.content.0.text: not allowed", [REFUSED, "I look."]),
    ],
)
def test_a_message_that_the_server_refuses_is_replaced(
    tmp_path: Path, message: str, texts: list[str]
) -> None:
    with StrictServer(by_name({"alice": [NEXT]})) as server:
        server.faults.push(OddReply(name="plain", body=sse(WHOLE)), Refusal(message))
        story = Story(tmp_path, server)
        story.live(calls=3)
        assert server.refused == []
        sent = json.dumps(server.requests[-1].body["messages"])
    assert story.life.do.done == ["a"], "the call is not repeated"
    for text in texts:
        assert json.dumps(text)[1:-1] in sent
    assert message[:40] in story.life.lead[0]
    again = story.life.conversation()
    assert again.context.messages() == Conversation(again._transcript).context.messages()


@pytest.mark.parametrize("refuses", [False, True])
def test_notes_of_teamd_are_system_messages_if_the_server_accepts_them(
    tmp_path: Path, *, refuses: bool
) -> None:
    """Mail cannot imitate system messages."""

    async def facts(_: str) -> ModelFacts:
        return ModelFacts(system_messages=True)

    with StrictServer(by_name({"alice": [NEXT]})) as server:
        if refuses:
            server.faults.push(Refusal("messages.1: role 'system' is not supported on this model"))
        story = Story(tmp_path, server)
        story.life.facts = facts
        story.life.news = [NewsAdded(about="job 1", text="<note>Job 1 has ended.</note>")]
        story.live(calls=2 if refuses else 1)
        assert server.refused == []
        sent = server.requests[-1].body["messages"]
    assert [message["role"] for message in sent] == (["user"] if refuses else ["user", "system"])
    assert sent[-1]["content"][-1]["text"] == "<note>Job 1 has ended.</note>"
    assert story.life.lead == []


def test_a_conversation_that_the_server_keeps_refusing_is_replaced_by_a_summary(
    tmp_path: Path,
) -> None:
    """A fresh start with `--fresh` is never the only solution."""
    refusal = Refusal("messages.1.content.0: no")
    with StrictServer(by_name({"alice": [NEXT]})) as server:
        server.faults.push(OddReply(name="plain", body=sse(WHOLE)), *[refusal] * 3)
        story = Story(tmp_path, server)
        story.live(calls=5)
        (first, *_) = server.requests[-1].body["messages"]
    assert "work" in json.dumps(first)
    assert story.life.states[-1] == "idle"


def billed(server: StrictServer) -> tuple[int, int]:
    """Return the input and output tokens that the server has charged for its last reply."""
    message = server.requests[-1].message
    assert message is not None
    usage = message["usage"]
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(int(usage[key]) for key in keys), int(usage["output_tokens"])


def _check_money(story: Story, odd: OddReply, *, failures: int, following: tuple[int, int]) -> None:
    if odd.billed is None:
        assert story.booked()[2] == failures, "a reply without usage counts in full"
        return
    sent, received = odd.billed
    assumed = 0 if received is not None else failures
    received = story.served.asked[0].max_tokens if received is None else received
    booked = (failures * sent + following[0], failures * received + following[1], assumed)
    assert story.booked() == booked
