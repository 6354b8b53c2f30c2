"""A subagent: a short conversation inside its teammate's process, of which only the end counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.agent.conversation import prompts
from teamd.agent.conversation.state import CUT_OFF_REASONS
from teamd.tools import Result, ToolError

if TYPE_CHECKING:
    from teamd.agent.conversation.compaction import Compaction
    from teamd.agent.wakeup import CallBudget


async def run_subagent(compaction: Compaction, calls: CallBudget, prompt: str) -> str:
    """Do a task in a conversation of its own; return the text of the last turn.

    Args:
        compaction: asks the teammate's own model, so that it is on the teammate's budget. The
            conversation is open, and stays on disk for whoever wants to read it; the tools are
            without what makes a member of the team.
        calls: what it may take; in the foreground what is left of its teammate's wake.
        prompt: the whole task.

    Raises:
        ToolError: it came to no end.
        UnusableError: the model cannot be asked.
    """
    conversation = compaction.conversation
    conversation.add_note(prompt, task=True)
    made = 0
    while calls.take():
        made += 1
        conversation.add_reply(await compaction.reply())
        await _follow(compaction)
        if not conversation.owes_reply:
            reason, said = conversation.stop_reason, conversation.said
            conversation.end_turn(reason, said)
            return said or f"(it ended without a word: {reason})"
    raise ToolError(
        f"the subagent was not done after {made} model calls, and none is left of the "
        f"{calls.most} of calls_per_wake; its last words: {conversation.said or '(none)'}"
    )


async def _follow(compaction: Compaction) -> None:
    conversation = compaction.conversation
    for call in conversation.unanswered:
        if conversation.stop_reason != "tool_use":
            conversation.add_result(call, Result(text=prompts.CUT_OFF_CALL, is_error=True))
            continue
        conversation.begin_call(call)
        result = await compaction.toolbox.run(call["name"], call["input"])
        conversation.add_result(call, result)
    if conversation.stop_reason in CUT_OFF_REASONS and not conversation.owes_reply:
        conversation.add_note(prompts.CUT_OFF_REPLY)
