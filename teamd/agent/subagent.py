"""A subagent: a short conversation inside its teammate's process, of which only the end counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.agent import prompts
from teamd.agent.briefing import NothingOpen
from teamd.agent.compaction import Compaction
from teamd.agent.course import CUT_OFF_REASONS
from teamd.models import Ask
from teamd.tools import Result, ToolError

if TYPE_CHECKING:
    from teamd.agent.allowance import Allowance
    from teamd.agent.conversation import Conversation
    from teamd.agent.gauge import Room
    from teamd.models import Model
    from teamd.tools import Toolbox


class Subagent:
    """One task, done by a model of its own conversation.

    Args:
        conversation: a new one; it stays on disk for whoever wants to read it.
        model: the teammate's own, so that it is on the teammate's budget.
        toolbox: without what makes a member of the team.
        calls: what it may take; in the foreground what is left of its teammate's wake.
        max_tokens: per reply.
        room: how long its conversation may become.
    """

    def __init__(
        self,
        *,
        conversation: Conversation,
        model: Model,
        model_name: str,
        toolbox: Toolbox,
        calls: Allowance,
        max_tokens: int,
        room: Room,
    ) -> None:
        self._conversation = conversation
        self._compaction = Compaction(conversation, model, room=room, work=NothingOpen())
        self._model_name = model_name
        self._toolbox = toolbox
        self._calls = calls
        self._max_tokens = max_tokens

    async def run(self, system: str, prompt: str) -> str:
        """Do the task; returns the text of the last turn.

        Raises:
            ToolError: it came to no end.
            UnusableError: the model cannot be asked.
        """
        talk = self._conversation
        talk.open(system)
        talk.add_note(prompt, task=True)
        made = 0
        while self._calls.take():
            made += 1
            talk.add_reply(await self._compaction.reply(self._ask, _nothing_comes))
            await self._follow()
            if not talk.owes_reply:
                talk.end_turn(talk.stop_reason, talk.said)
                return talk.said or f"(it ended without a word: {talk.stop_reason})"
        raise ToolError(
            f"the subagent was not done after {made} model calls, and none is left of the "
            f"{self._calls.most} of calls_per_wake; its last words: {talk.said or '(none)'}"
        )

    def _ask(self) -> Ask:
        return Ask(
            model=self._model_name,
            system=self._conversation.system,
            tools=self._toolbox.schemas(),
            messages=self._conversation.messages(),
            max_tokens=self._max_tokens,
        )

    async def _follow(self) -> None:
        talk = self._conversation
        for call in talk.unanswered:
            if talk.stop_reason != "tool_use":
                talk.add_result(call, Result(text=prompts.CUT_OFF_CALL, is_error=True))
                continue
            talk.begin_call(call)
            talk.add_result(call, await self._toolbox.run(call["name"], call["input"]))
        if talk.stop_reason in CUT_OFF_REASONS and not talk.owes_reply:
            talk.add_note(prompts.CUT_OFF_REPLY)


def _nothing_comes() -> None:
    """Nobody writes to a subagent."""
