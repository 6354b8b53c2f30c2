"""A model that plays scripted turns from a file, for the demo and many tests.

The file is JSON: `{"turns": {"alice": [{"say": "…", "use": [["bash", {"command": "ls"}]]}]}}`.
A turn may carry `expect`, a regular expression that must be found in the last user message: a
script that goes on although a step did not happen would prove nothing. It may carry `unless`: if
that has been found in any user message so far, the turn is skipped. So a turn that ends in order to
wait for mail is left out if the mail came first. The conversation alone decides which turn is
next, and so a restarted teammate continues at the same turn.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from teamd.model_server import Usage
from teamd.models import Ask, Provider, ProviderOptions, Reply, UnusableError

Turn = dict[str, Any]

_IDENTITY = re.compile(r"You are '([^']*)'")


@dataclass(frozen=True, slots=True)
class Scripted(Provider):
    """Answers with the next turn of the asking teammate."""

    is_server: ClassVar[bool] = False
    path: Path

    @classmethod
    def make(cls, options: ProviderOptions) -> Self:
        assert options.script is not None  # noqa: S101 -- the kind is that of settings with one
        return cls(options.script)

    async def reply(self, ask: Ask) -> Reply:
        """Answer with the first turn that has neither been played nor skipped.

        Raises:
            UnusableError: the turn's expectation was not met, or there is no script.
        """
        all_turns, pace_seconds = self._load()
        found = _IDENTITY.match(ask.system)
        name = found.group(1) if found else ""
        turns = all_turns.get(name, [])
        said = _words(ask.messages[-1])
        try:
            number = _next(turns, ask.messages)
            turn = turns[number] if number < len(turns) else {"say": "Nothing to do."}
            expected = re.search(turn.get("expect", ""), said) is not None
            reply = _reply(turn, name, number, ask.model)
        except (AttributeError, TypeError, ValueError, re.error) as error:
            raise UnusableError(f"{self.path}: a turn of {name!r} is invalid: {error}") from error
        if not expected:
            raise UnusableError(f"the script expected {turn['expect']!r} and read: {said[-500:]}")
        if ask.heard is not None:
            ask.heard(reply.text)
        await asyncio.sleep(pace_seconds)
        return reply

    def _load(self) -> tuple[dict[str, list[Turn]], float]:
        """Read turns by teammate, and how many seconds each reply takes."""
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            return dict(document["turns"]), float(document.get("pace_seconds", 0.0))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnusableError(
                f"{self.path} is not a script of a model's turns ({error}); `teamctl help models` "
                "shows one"
            ) from error


def _reply(turn: Turn, name: str, number: int, model: str) -> Reply:
    content: list[dict[str, Any]] = []
    if turn.get("say"):
        content.append({"type": "text", "text": turn["say"]})
    for index, (tool, arguments) in enumerate(turn.get("use", ())):
        call = f"toolu_{name}_{number}_{index}"
        content.append({"type": "tool_use", "id": call, "name": tool, "input": arguments})
    reason = "tool_use" if turn.get("use") else "end_turn"
    words = len(json.dumps(content)) // 4
    return Reply(content=content, stop_reason=reason, model=model, usage=Usage(output_tokens=words))


def _next(turns: list[Turn], messages: list[dict[str, Any]]) -> int:
    """The number of the next turn: each reply so far was a turn, and others were skipped."""
    number = 0
    heard = ""
    for message in messages:
        if message["role"] == "assistant":
            number += 1
            continue
        heard += _words(message) + "\n"
        while number < len(turns) and _is_moot(turns[number], heard):
            number += 1
    return number


def _is_moot(turn: Turn, heard: str) -> bool:
    return "unless" in turn and re.search(turn["unless"], heard) is not None


def _words(message: dict[str, Any]) -> str:
    """All text of a user message, tool results included."""
    parts = (part for block in message["content"] for part in block.get("content", [block]))
    return "\n".join(part["text"] for part in parts)
