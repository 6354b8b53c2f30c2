"""A model with a small context, which counts and refuses as the strict server does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from teamd.agent.conversation.prompts import DEMAND
from teamd.messages import Message
from teamd.model_server import Usage
from teamd.models import Ask, Reply, TooLongError
from tests.strict.cache import prompt_tokens
from tests.strict.replies import Answer, say, use
from tests.unit.life import Do, Judge, Nothing, Player, copy, replied

OUTPUT_BYTES = 2000
STEP = re.compile(r"(?:did|through) (\d+)\b")


class Tight(Player):
    """Answers by a function, and refuses requests longer than the context.

    Attributes:
        refused: the tokens of each request that was too long.
    """

    def __init__(
        self,
        answer: Callable[[Ask], Answer],
        *,
        context_tokens: int,
        tells: bool = True,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(judge=judge)
        self.refused: list[int] = []
        self._answer = answer
        self._context_tokens = context_tokens
        self._tells = tells

    async def reply(self, ask: Ask) -> Reply:
        """Answer, or refuse a request that is too long."""
        tokens = tokens_of(ask)
        if tokens > self._context_tokens:
            self.refused.append(tokens)
            limit = self._context_tokens if self._tells else None
            raise TooLongError(f"the conversation is too long for it ({tokens} tokens)", limit)
        self.asked.append(copy(ask))
        self.judge.check(ask)
        reply = replied(self._answer(ask), ask)
        reply = replace(reply, usage=Usage(input_tokens=tokens, output_tokens=100))
        self.judge.remember(reply)
        return reply

    @property
    def summaries(self) -> list[Ask]:
        """Return the requests that demanded a summary."""
        return [ask for ask in self.asked if demands(ask)]


class Big(Do):
    """Returns long results."""

    async def call(self, arguments: Nothing, key: str) -> str:
        done = await super().call(arguments, key)
        return done + " " + "x" * OUTPUT_BYTES


def tokens_of(ask: Ask) -> int:
    """Return the tokens of a request, counted like the strict server."""
    return prompt_tokens({"tools": ask.tools, "system": ask.system, "messages": ask.messages})


def demands(ask: Ask) -> bool:
    """Return whether a request demands a summary."""
    return bool(ask.messages[-1]["content"][-1] == {"type": "text", "text": DEMAND})


def words(ask: Ask) -> str:
    """Return all text of a request's messages, including results."""
    parts: list[dict[str, Any]] = []
    for message in ask.messages:
        for block in message["content"]:
            parts += block.get("content", [block])
    return "\n".join(part.get("text", "") for part in parts)


def steps(last: int) -> Callable[[Ask], Answer]:
    """Take steps from 1 to the last, continuing after those that the conversation mentions."""

    def answer(ask: Ask) -> Answer:
        done = max((int(number) for number in STEP.findall(words(ask))), default=0)
        if demands(ask):
            return say(f"I was asked to do {last} steps and have come through {done}.")
        if done >= last:
            return say("All done.")
        return use(("do", {"word": str(done + 1)}), thinking="Next.")

    return answer


def mail(*contents: str) -> list[Message]:
    """Return mail from the lead to alice."""
    return [Message(sender="lead", to="alice", content=content) for content in contents]
