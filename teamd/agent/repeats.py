"""Finds calls that a model repeats within a turn without a new result.

A weak model, or one that is stuck, makes the same call until its calls are used up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from teamd.models import Block
from teamd.tools import Result, Toolbox

WARNED: Final = 3  # from this time on the call is answered as an error
STOPPED: Final = 6  # this time ends the turn
NOT_RUN: Final = "this call did not run: your turn ended, since you repeated another call"
_WARNING: Final = (
    "you have made this very call {count} times in this turn, and nothing new came of it. Do "
    "something else, or end your turn and say what you need; at the {most}th time your turn is "
    "ended. The result is still:\n{text}"
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

    A call counts when it gives the same result as before, or fails, and no other call has changed
    anything in between. Every edit of a file is a change. A command, a message or a task is one
    the first time that it succeeds in the turn: edit, test, edit, test goes on for ever, and two
    commands that alternate do not.

    Attributes:
        stuck_at: the name of the tool whose call ended the turn; empty before that.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._made: dict[str, _Made] = {}
        self._changes = 0
        self.stuck_at = ""

    def forget(self) -> None:
        """Count all calls anew, such as after mail."""
        self._made.clear()

    def judge(self, call: Block, result: Result) -> Result:
        """Return the result of a call as the model is to read it."""
        name = call["name"]
        given = {key: value for key, value in call["input"].items() if key != "description"}
        key = json.dumps([name, given], sort_keys=True)
        before = self._made.get(key)
        nothing_new = (
            before is not None
            and before.changes == self._changes
            and (result.is_error or result == before.result)
        )
        count = 1 + (before.count if before and nothing_new else 0)
        may_change = before is None and not self._toolbox.looks(name)
        if not result.is_error and (may_change or self._toolbox.changes(name)):
            self._changes += 1
        self._made[key] = _Made(count, result, self._changes)
        if count >= STOPPED:
            self.stuck_at = name
            return Result(text=_STOP.format(count=count), is_error=True)
        if count >= WARNED:
            warning = _WARNING.format(count=count, most=STOPPED, text=result.text)
            return Result(text=warning, is_error=True)
        return result
