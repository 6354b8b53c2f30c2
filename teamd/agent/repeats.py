"""Finds calls that a model repeats within a turn without a new result.

A weak model, or one that is stuck, makes the same call until its calls are used up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from teamd.models import Block
from teamd.tools import NO_OUTPUT, Result, Toolbox

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
        count: how often it was made, this time included, since it was counted anew.
        changes: the number of changes in the turn so far, its own included.
    """

    count: int
    result: Result
    changes: int


class Repeats:
    """The calls of one turn. Each is counted by itself, so that two calls that alternate count too.

    A call counts when it gives the same result as before, or fails, and no call has changed
    anything in between; one that takes a second, or looks at a job that still runs, is warned of
    and never ends the turn, since waiting is work. Each edit of a file is a change, and so is each
    command without output, which counts only right after itself; any other call that acts is a
    change the first time that it succeeds, so that two commands that alternate do not go on.

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
        """Count all calls anew, such as after mail."""
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
        """Return how often a call was made with nothing new, this time included."""
        before, at_once = self._made.get(key), key == self._last
        silent = result.text == NO_OUTPUT
        nothing_new = (
            before is not None
            and before.changes == self._changes
            and (result.is_error or result == before.result)
            and (at_once or not silent)
        )
        count = 1 + (before.count if before and nothing_new else 0)
        may_change = not self._toolbox.looks(name) and (before is None or silent)
        if not result.is_error and (may_change or self._toolbox.changes(name)):
            self._changes += 1
        self._made[key] = _Made(count, result, self._changes)
        self._last = key
        return count
