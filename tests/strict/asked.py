"""An accepted request, in a form that tests can query."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Final

from tests.strict.blocks import listed
from tests.strict.conversation import Turn, turns
from tests.strict.replies import Answer, say

OPENING: Final = re.compile(r"You are '([^']*)', role: ([^,.\n]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One tool result of the last user message.

    Attributes:
        tool_use_id: the call that it answers.
        name: the tool that was called.
        text: its text blocks, joined by line ends.
        is_error: whether the tool failed.
    """

    tool_use_id: str
    name: str
    text: str
    is_error: bool


class Asked:
    """One accepted request.

    Attributes:
        body: the parsed JSON body.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request body."""
        return list(self.body["messages"])

    @property
    def system(self) -> str:
        """The text of the system prompt."""
        return text_of(self.body.get("system") or [])

    @property
    def name(self) -> str:
        """The teammate's name from the first line of the system prompt, or an empty string."""
        found = OPENING.match(self.system)
        return found[1] if found else ""

    @property
    def role(self) -> str:
        """The teammate's role, up to a comma, full stop or line end, or an empty string."""
        found = OPENING.match(self.system)
        return found[2].strip() if found else ""

    @property
    def tools(self) -> list[str]:
        """The names of the tools."""
        return [tool["name"] for tool in self.body.get("tools", [])]

    @cached_property
    def turns(self) -> list[Turn]:
        """The conversation with consecutive messages of one role merged."""
        return turns(self.messages)

    @property
    def _last(self) -> Turn:
        """The last user turn."""
        return next(turn for turn in reversed(self.turns) if turn.role == "user")

    @property
    def last_text(self) -> str:
        """The text since the last reply, without tool results."""
        since = takewhile(lambda turn: turn.role != "assistant", reversed(self.turns))
        return "\n".join(text_of(turn.content) for turn in reversed([*since]))

    @cached_property
    def heard(self) -> str:
        """All text of the conversation, tool results included."""
        blocks = (block for message in self.messages for block in listed(message["content"], ""))
        parts = (part for block in blocks for part in listed(block.get("content", [block]), ""))
        return "\n".join(part.get("text", "") for part in parts)

    @property
    def last_results(self) -> list[Result]:
        """The tool results of the last turn, in order."""
        names = {
            block["id"]: block["name"]
            for turn in self.turns
            for block in turn.content
            if block["type"] == "tool_use"
        }
        return [
            Result(
                tool_use_id=block["tool_use_id"],
                name=names[block["tool_use_id"]],
                text=text_of(block.get("content") or []),
                is_error=block.get("is_error", False),
            )
            for block in self._last.content
            if block["type"] == "tool_result"
        ]


Model = Callable[[Asked], Answer]


def text_of(content: Any) -> str:
    """Return the text blocks of a content, joined by line ends."""
    blocks = listed(content, "")
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")


def by_name(plays: Mapping[str, Sequence[Answer | Model]]) -> Model:
    """Return a model that plays a separate list of turns for each teammate, one per request.

    A callable turn is called for its answer. After the last turn, and for a name that is not
    listed, the model says `Nothing to do.`
    """
    lock = threading.Lock()
    left = {name: deque(play) for name, play in plays.items()}

    def answer(asked: Asked) -> Answer:
        with lock:
            play = left.get(asked.name)
            turn = play.popleft() if play else say("Nothing to do.")
        return turn if isinstance(turn, Answer) else turn(asked)

    return answer
