"""A subagent: a short conversation inside its teammate's process, of which only the end counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.agent.conversation import prompts
from teamd.agent.conversation.state import CUT_OFF_REASONS
from teamd.tools import Result, ToolError

if TYPE_CHECKING:
    from teamd.agent.call_budget import CallBudget
    from teamd.agent.conversation.compaction import Compaction
    from teamd.agent.conversation.conversation import Conversation
    from teamd.tools import Toolbox
    from teamd.transcript.records import Opened


class Subagent:
    """One task, done by a model in a conversation of its own.

    Args:
        conversation: a new one; it stays on disk for whoever wants to read it.
        compaction: asks the teammate's own model, so that it is on the teammate's budget.
        toolbox: without what makes a member of the team.
        calls: what it may take; in the foreground what is left of its teammate's wake.
    """

    def __init__(
        self,
        *,
        conversation: Conversation,
        compaction: Compaction,
        toolbox: Toolbox,
        calls: CallBudget,
    ) -> None:
        self._conversation = conversation
        self._compaction = compaction
        self._toolbox = toolbox
        self._calls = calls

    async def run(self, opening: Opened, prompt: str) -> str:
        """Do the task; return the text of the last turn.

        Raises:
            ToolError: it came to no end.
            UnusableError: the model cannot be asked.
        """
        conversation = self._conversation
        conversation.open(opening)
        conversation.add_note(prompt, task=True)
        made = 0
        while self._calls.take():
            made += 1
            conversation.add_reply(await self._compaction.reply())
            await self._follow()
            if not conversation.owes_reply:
                reason, said = conversation.stop_reason, conversation.said
                conversation.end_turn(reason, said)
                return said or f"(it ended without a word: {reason})"
        raise ToolError(
            f"the subagent was not done after {made} model calls, and none is left of the "
            f"{self._calls.most} of calls_per_wake; its last words: {conversation.said or '(none)'}"
        )

    async def _follow(self) -> None:
        conversation = self._conversation
        for call in conversation.unanswered:
            if conversation.stop_reason != "tool_use":
                conversation.add_result(call, Result(text=prompts.CUT_OFF_CALL, is_error=True))
                continue
            conversation.begin_call(call)
            result = await self._toolbox.run(call["name"], call["input"])
            conversation.add_result(call, result)
        if conversation.stop_reason in CUT_OFF_REASONS and not conversation.owes_reply:
            conversation.add_note(prompts.CUT_OFF_REPLY)
