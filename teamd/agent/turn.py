"""A turn: carries out a reply, can be cancelled by a person, and runs subagents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from teamd import clocks
from teamd.agent.conversation import prompts
from teamd.agent.conversation.compaction import Compaction
from teamd.agent.wakeup import CallBudget
from teamd.models import CUT_OFF_REASONS, Block, explain_invalid
from teamd.tools import NO_OUTPUT, Result, Toolbox, ToolError

WARNED: Final = 3  # from this time on the call is answered as an error
STOPPED: Final = 6  # this time ends the turn
WORK_SECONDS: Final = 1.0  # a call that takes so long works or waits
NOT_RUN: Final = "this call did not run: your turn ended, since you repeated another call"
_WARNING: Final = (
    "you have made this very call {count} times in this turn, and nothing new came of it. Do "
    "something else, or end your turn and say what you need; at the {most}th time your turn is "
    "ended. The result is still:\n{text}"
)
_WAITING: Final = (
    "you have made this very call {count} times in this turn, and nothing new came of it. If you "
    "wait for something, wait longer before you look again, or end your turn: you are told when a "
    "background job ends. The result is still:\n{text}"
)
_STOP: Final = (
    "you have made this very call {count} times in this turn, and nothing new came of it: your "
    "turn was ended, and lead was told."
)


@dataclass(frozen=True, slots=True)
class _Made:
    """The last time that a call was made.

    Attributes:
        count: how often it was made since the count was reset, this time included.
        changes: the number of changes in the turn so far, its own included.
    """

    count: int
    result: Result
    changes: int


class Repeats:
    """Counts each call of a turn separately, so that two alternating calls count too.

    A call counts if it fails or gives the same result as before, and no call has made a change in
    between. A call that takes a second, or looks at a running job, only gets a warning and never
    ends the turn, since waiting is work. Each edit of a file is a change. So is each command
    without output, which counts only right after itself. Any other acting call is a change the
    first time that it succeeds, so that two alternating commands do end the turn.

    Attributes:
        stuck_at: the name of the tool whose call ended the turn; empty before that.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._made: dict[str, _Made] = {}
        self._last = ""
        self._changes = 0
        self.stuck_at = ""

    def forget(self) -> None:
        """Reset all counts, such as after mail."""
        self._made.clear()

    def judge(self, call: Block, result: Result, *, seconds: float = 0.0) -> Result:
        """Return the result of a call as the model is to read it.

        Args:
            call: the block of the call.
            result: as the tool gave it.
            seconds: how long the call took.
        """
        name = call["name"]
        parsed = self._toolbox.parse(name, call["input"])
        given = call["input"] if parsed is None else parsed.identity()
        count = self._count(json.dumps([name, given], sort_keys=True), name, result)
        if count < WARNED:
            return result
        looks_at_work = parsed is not None and self._toolbox.is_under_way(name, parsed)
        if seconds >= WORK_SECONDS or looks_at_work:
            return Result(text=_WAITING.format(count=count, text=result.text), is_error=True)
        if count < STOPPED:
            warning = _WARNING.format(count=count, most=STOPPED, text=result.text)
            return Result(text=warning, is_error=True)
        self.stuck_at = name
        return Result(text=_STOP.format(count=count), is_error=True)

    def _count(self, key: str, name: str, result: Result) -> int:
        """Return how often a call was made without anything new, this time included."""
        before, at_once = self._made.get(key), key == self._last
        silent = result.text == NO_OUTPUT
        nothing_new = (
            before is not None
            and before.changes == self._changes
            and (result.is_error or result == before.result)
            and (at_once or not silent)
        )
        count = 1 + (before.count if before and nothing_new else 0)
        may_change = not self._toolbox.facts(name).looks and (before is None or silent)
        if not result.is_error and (may_change or self._toolbox.facts(name).changes):
            self._changes += 1
        self._made[key] = _Made(count, result, self._changes)
        self._last = key
        return count


T = TypeVar("T")


class TurnCancelled(Exception):
    """The running work is cancelled; `by` names the sender of the interrupt."""

    def __init__(self, by: str) -> None:
        super().__init__(f"interrupted by {by}")
        self.by = by


class Cancellation:
    """Runs one piece of work at a time, and can cancel it."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None
        self._by: str | None = None

    @property
    def running(self) -> bool:
        """Whether a piece of work is under way."""
        return self._running is not None

    def cancel(self, by: str) -> None:
        """Cancel the running work, or the next piece if none is running."""
        self._by = by
        if self._running is not None:
            self._running.cancel()

    def forget(self) -> None:
        """Let the next piece of work run: the cancelled work is over."""
        self._by = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work, and return its result.

        Raises:
            TurnCancelled: `cancel` was called. If the caller's own task is cancelled too, such as
                to end the process, that cancellation is raised instead.
        """
        running: asyncio.Future[T] = asyncio.ensure_future(work)
        self._running = running
        if self._by is not None:
            running.cancel()
        try:
            return await running
        except asyncio.CancelledError:
            me, by = asyncio.current_task(), self._by
            if by is not None and not (me and me.cancelling()):
                self._by = None
                raise TurnCancelled(by) from None
            raise
        finally:
            running.cancel()  # a caller that is cancelled itself leaves nothing running behind
            self._running = None


async def follow(
    talk: Compaction,
    guard: Callable[[Coroutine[Any, Any, Result]], Awaitable[Result]],
    repeats: Repeats,
    show: Callable[[Block], None] = lambda _: None,
) -> None:
    """Carry out the last reply: run its calls, or continue a reply that was cut off.

    Args:
        talk: the conversation, and the tools that it may use.
        guard: runs each call.
        repeats: the calls of this turn; once it is stuck, no further call runs.
        show: called with each call as it begins.

    Raises:
        PermissionPending: a call waits for a person, and the calls after it wait as well.
    """
    conversation = talk.conversation
    # Gateways send whole calls under `end_turn`, `stop` or `tool_calls` as well.
    calls, whole = conversation.unanswered, conversation.stop_reason not in CUT_OFF_REASONS
    for call in calls:
        if not whole:
            result = Result(text=prompts.CUT_OFF_CALL, is_error=True)
        elif repeats.stuck_at:
            result = Result(text=NOT_RUN, is_error=True)
        else:
            began = clocks.awake()
            result = await guard(_run_call(talk, call, show))
            result = repeats.judge(call, result, seconds=clocks.awake() - began)
        conversation.add_result(call, result)
    if conversation.stop_reason in CUT_OFF_REASONS and not calls:
        conversation.add_note(prompts.CUT_OFF_REPLY)


async def _run_call(talk: Compaction, call: Block, show: Callable[[Block], None]) -> Result:
    """Run a tool call, unless an earlier process began it and it must not be repeated."""
    name, conversation = call["name"], talk.conversation
    if (wrong := explain_invalid(call["input"])) is not None:
        return Result(text=prompts.INVALID_CALL.format(wrong=wrong), is_error=True)
    if call["id"] in conversation.begun and not talk.toolbox.facts(name).repeatable:
        known = await talk.toolbox.recall(name, call["input"], conversation.key_of(call))
        return Result(text=known or prompts.INTERRUPTED_CALL, is_error=True)
    # On the disk before the call changes anything: the reply, and that the call was begun.
    acts = not talk.toolbox.facts(name).looks

    def begin() -> None:
        conversation.begin_call(call, durable=acts)
        show(call)

    return await talk.toolbox.run(
        name,
        call["input"],
        key=conversation.key_of(call),
        granted=talk.granted,
        begin=begin,
    )


async def run_subagent(compaction: Compaction, calls: CallBudget, prompt: str) -> str:
    """Do a task in a conversation of its own; return the text of the last turn.

    Args:
        compaction: asks the teammate's own model, so that the teammate's budget pays. The
            conversation is open, and stays on disk to be read later; the tools exclude those of
            a team member.
        calls: its model calls; in the foreground, those left in its teammate's wake.
        prompt: the whole task.

    Raises:
        ToolError: it did not finish.
        UnusableError: the model cannot be asked.
    """
    conversation = compaction.conversation
    conversation.add_note(prompt, task=True)
    repeats = Repeats(compaction.toolbox)
    made = 0
    while calls.take():
        made += 1
        conversation.add_reply(await compaction.reply())
        await follow(compaction, lambda call: call, repeats)
        if not conversation.owes_reply:
            reason, said = conversation.stop_reason, conversation.said
            conversation.end_turn(reason, said)
            return said or f"(it ended without a word: {reason})"
        if repeats.stuck_at:
            break
    why = f"after {made} model calls, and none is left of the {calls.most} of calls_per_wake"
    if repeats.stuck_at:
        why = f"when it repeated one call of {repeats.stuck_at} again and again"
    said = conversation.said or "(none)"
    raise ToolError(f"the subagent had not finished {why}; its last text: {said}")
