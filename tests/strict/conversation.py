"""A conversation: the allowed order of messages, tool calls, results and thinking."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any, Final

from tests.strict.blocks import Block, check_blocks, check_keys, listed, refuse
from tests.strict.replies import Prefix


class Issued:
    """The answers that one server has sent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thinking: dict[str, tuple[str, ...]] = {}
        self._paused: set[tuple[str, ...]] = set()

    def remember(self, message: Mapping[str, Any]) -> None:
        """Record a message that is being sent."""
        content = message["content"]
        with self._lock:
            for block in content:
                if block["type"] == "tool_use":
                    self._thinking[block["id"]] = thoughts(content)
            if message["stop_reason"] == "pause_turn":
                self._paused.add(_gist(content))

    def thinking_before(self, tool_use_id: str) -> tuple[str, ...]:
        """Return the thinking signatures of a call's message; empty for a foreign call."""
        with self._lock:
            return self._thinking.get(tool_use_id, ())

    def paused(self, content: Sequence[Mapping[str, Any]]) -> bool:
        """Whether this content was sent with stop reason `pause_turn`."""
        with self._lock:
            return _gist(content) in self._paused


def thoughts(content: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the signatures of a message's thinking blocks, in order."""
    keys = {"thinking": "signature", "redacted_thinking": "data"}
    return tuple(block.get(keys[block["type"]], "") for block in content if block["type"] in keys)


def _gist(content: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    keys = {"text": "text", "tool_use": "id", "thinking": "signature", "redacted_thinking": "data"}
    return tuple(str(block[keys[block["type"]]]) for block in content)


@dataclass(frozen=True, slots=True)
class Turn:
    """Consecutive messages of one role, merged as the service merges them.

    Attributes:
        role: `user` or `assistant`.
        content: the blocks of all these messages.
    """

    role: str
    content: list[Block]

    def ids(self, kind: str, key: str) -> list[str]:
        """Return one key of every block of a type: the ids of calls, or of results."""
        return [block[key] for block in self.content if block["type"] == kind]

    @property
    def calls(self) -> list[str]:
        """The ids of its tool calls."""
        return self.ids("tool_use", "id")

    @property
    def results(self) -> list[str]:
        """The ids that its tool results answer."""
        return self.ids("tool_result", "tool_use_id")


NOTHING = Turn("user", [])
# Models that accept the role `system`. Source: the API's documentation, "Mid-conversation system
# messages"; the first was Opus 4.8.
SYSTEM_MODELS: Final = re.compile(r"claude-(?:opus-4-8|(?:opus|sonnet|fable|mythos)-5|haiku-5-5)\b")
_NO_FRAME: Final[Mapping[str, Any]] = {}


def turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """Merge consecutive messages of one role, without checks."""
    merged: list[Turn] = []
    for message in messages:
        content = listed(message["content"], "messages")
        if merged and merged[-1].role == message["role"]:
            merged[-1].content.extend(content)
        else:
            merged.append(Turn(message["role"], list(content)))
    return merged


def check_conversation(
    messages: list[Any],
    issued: Issued,
    *,
    thinks: bool = True,
    frame: Mapping[str, Any] = _NO_FRAME,
) -> None:
    """Refuse messages that are not a valid conversation.

    Args:
        messages: the `messages` of the body.
        frame: the body; its system prompt and tools precede the messages.
        issued: the answers that the service has sent so far.
        thinks: false if the request disables thinking; then thinking blocks may be left out.
    """
    if not messages:
        refuse("messages: at least one message is required")
    for index, message in enumerate(messages):
        _check_message(message, f"messages.{index}")
    _check_system(messages, str(frame.get("model", "")))
    if messages[0]["role"] != "user":
        refuse('messages: first message must use the "user" role')
    said = turns(messages)
    _check_end(said[-1], issued)
    _check_unique(said)
    for index, (turn, after) in enumerate(pairwise([NOTHING, *said, NOTHING]), start=-1):
        _check_pair(turn, after, index)
    _check_signed(messages, Prefix(frame))
    _check_thinking(said, issued, thinks=thinks)


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        refuse(f"{where}: Input should be an object")
    check_keys(message, {"role", "content"}, where)
    if message.get("role") not in {"user", "assistant", "system"}:
        refuse(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
    if "content" not in message:
        refuse(f"{where}.content: Field required")
    if message["content"] in ("", []):
        refuse(f"{where}: all messages must have non-empty content")
    blocks = listed(message["content"], f"{where}.content")
    check_blocks(blocks, message["role"], f"{where}.content")


def _check_system(messages: list[Any], model: str) -> None:
    roles = ["", *(message["role"] for message in messages), ""]
    for index, (before, role, after) in enumerate(zip(roles, roles[1:], roles[2:], strict=False)):
        if role == "system" and not SYSTEM_MODELS.match(model):
            refuse(f"messages.{index}: role 'system' is not supported on this model")
        if role == "system" and (before != "user" or after not in {"assistant", ""}):
            refuse(
                f"messages.{index}: a `system` message must follow a `user` message, and come last "
                "or before an `assistant` message"
            )


def _check_end(last: Turn, issued: Issued) -> None:
    if last.role == "assistant" and not issued.paused(last.content):
        refuse(
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message.",
        )


def _check_unique(said: list[Turn]) -> None:
    counts = Counter(call for turn in said for call in turn.calls)
    for call, count in counts.items():
        if count > 1:
            refuse(f"messages: `tool_use` ids must be unique, found {call} {count} times")


def _check_pair(turn: Turn, after: Turn, index: int) -> None:
    for answered in after.results:
        if answered not in turn.calls:
            refuse(
                f"messages.{index + 1}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{answered}. Each `tool_result` block must have a corresponding `tool_use` block "
                "in the previous message.",
            )
        if after.results.count(answered) > 1:
            refuse(
                f"messages.{index + 1}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {answered}",
            )
    first = list(takewhile(lambda block: block["type"] == "tool_result", after.content))
    missing = [call for call in turn.calls if call not in Turn("user", first).results]
    if missing:
        refuse(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
            f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
            "corresponding `tool_result` block in the next message.",
        )


def _check_thinking(said: list[Turn], issued: Issued, *, thinks: bool) -> None:
    loop_begins = max(
        index for index, turn in enumerate(said) if turn.role == "user" and not turn.results
    )
    for index, turn in enumerate(said):
        if turn.role != "assistant":
            continue
        _check_last(turn, index)
        if thinks and index > loop_begins:
            _check_kept(turn, issued, index)


def _check_signed(messages: list[Any], prefix: Prefix) -> None:
    for index, message in enumerate(messages):
        for at, block in enumerate(listed(message["content"], "messages")):
            kind = block["type"]
            if kind in {"thinking", "redacted_thinking"} and not prefix.is_genuine(block):
                refuse(
                    f"messages.{index}.content.{at}: Invalid `signature` in `{kind}` block. The "
                    "block is bound to a different conversation. Remove the block, or set "
                    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                )
            prefix.add(message["role"], block)


def _check_last(turn: Turn, index: int) -> None:
    if turn.content[-1]["type"] in {"thinking", "redacted_thinking"}:
        refuse(
            f"messages.{index}: The final block in an assistant message cannot be `thinking`.",
        )


def _check_kept(turn: Turn, issued: Issued, index: int) -> None:
    kept = thoughts(turn.content)
    for call in turn.calls:
        sent = issued.thinking_before(call)
        still = tuple(thought for thought in kept if thought in sent)
        if still not in {(), sent}:  # removing all of it is allowed, as the signature error says
            refuse(
                f"messages.{index}: `thinking` or `redacted_thinking` blocks in the latest "
                "assistant message cannot be modified. These blocks must remain as they were in "
                "the original response.",
            )
