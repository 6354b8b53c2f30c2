"""Answers of the model: text, thinking and tool calls, which can be sent any number of times."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

_REDACTED: Final = "redacted"


class Prefix:
    """The part of a request before a block; it grows with each block.

    It is computed from the request alone, so another server, such as one after a restart, accepts
    the same signatures.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        system = body.get("system") or []
        if isinstance(system, str):
            system = [{"type": "text", "text": system}]
        tools = body.get("tools") or []
        self._digest = hashlib.sha512(_encode([system, tools]))

    @classmethod
    def of_request(cls, body: Mapping[str, Any]) -> Self:
        """Return the prefix of the reply to a whole request."""
        prefix = cls(body)
        for message in body["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks:
                prefix.add(message["role"], block)
        return prefix

    def add(self, role: str, block: Mapping[str, Any]) -> None:
        """Extend the prefix by the next block."""
        self._digest.update(_encode([role, block]))

    def sign(self, thinking: str) -> str:
        """Return the signature of a thinking block with this text."""
        digest = self._digest.copy()
        digest.update(_encode(thinking))
        return base64.b64encode(digest.digest()).decode()

    def sign_redacted(self) -> str:
        """Return the data of a redacted thinking block."""
        return self.sign(_REDACTED)

    def is_genuine(self, block: Mapping[str, Any]) -> bool:
        """Return whether a thinking block was issued after this exact prefix and is unchanged."""
        if block["type"] == "redacted_thinking":
            return bool(block["data"] == self.sign_redacted())
        return bool(block["signature"] == self.sign(block["thinking"]))


def _encode(part: Any) -> bytes:
    return json.dumps(_without_breakpoints(part), sort_keys=True).encode()


def _without_breakpoints(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: _without_breakpoints(value)
            for key, value in part.items()
            if key != "cache_control"
        }
    return [_without_breakpoints(one) for one in part] if isinstance(part, list) else part


_NOTHING: Final[Mapping[str, Any]] = {"messages": []}
# A tool's name and its input; a string is streamed unchanged, so that it may be broken JSON.
Call = tuple[str, Mapping[str, Any] | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the model.

    Attributes:
        text: left out of the content if empty.
        thinking: a thinking block before everything else; None for none, "" for a block with
            withheld text, which the client must still return.
        redacted: a redacted thinking block after it.
        calls: the requested tool calls.
        stop_reason: by default `tool_use` with calls and `end_turn` without.
        stop_details: the details that accompany a `refusal`.
        usage: figures that replace the server's estimates.
    """

    text: str = ""
    thinking: str | None = None
    redacted: bool = False
    calls: tuple[Call, ...] = ()
    stop_reason: str = "end_turn"
    stop_details: Mapping[str, Any] | None = None
    usage: Mapping[str, int] = field(default_factory=dict)

    def content(self, body: Mapping[str, Any] = _NOTHING) -> list[dict[str, Any]]:
        """Return the content blocks, each tool call with a new id.

        Args:
            body: the request, to which thinking is bound.
        """
        blocks: list[dict[str, Any]] = []
        prefix = Prefix.of_request(body)
        if self.thinking is not None:
            signature = prefix.sign(self.thinking)
            blocks.append(
                {"type": "thinking", "thinking": self.thinking, "signature": signature},
            )
            prefix.add("assistant", blocks[-1])
        if self.redacted:
            blocks.append({"type": "redacted_thinking", "data": prefix.sign_redacted()})
        if self.text:
            blocks.append({"type": "text", "text": self.text})
        blocks += [
            {"type": "tool_use", "id": new_id("toolu"), "name": name, "input": given}
            for name, given in self.calls
        ]
        return blocks

    def message(
        self, *, model: str, usage: Mapping[str, Any], body: Mapping[str, Any] = _NOTHING
    ) -> dict[str, Any]:
        """Return a complete message with a new id; output tokens are added to its usage."""
        content = self.content(body)
        return {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": self.stop_reason,
            "stop_sequence": None,
            "stop_details": self.stop_details,
            "usage": {**usage, "output_tokens": 1 + len(str(content)) // 4, **self.usage},
        }


def new_id(prefix: str) -> str:
    """Return an id in the service's style: `msg_01…`."""
    return f"{prefix}_01{secrets.token_hex(11)}"


def say(
    text: str = "",
    *,
    calls: Sequence[Call] = (),
    thinking: str | None = None,
    redacted: bool = False,
    stop_reason: str | None = None,
    usage: Mapping[str, int] | None = None,
) -> Answer:
    """Answer with text, followed by tool calls; `say()` is an answer without content."""
    return Answer(
        text=text,
        thinking=thinking,
        redacted=redacted,
        calls=tuple(calls),
        stop_reason=stop_reason or ("tool_use" if calls else "end_turn"),
        usage=usage or {},
    )


def use(*calls: Call, thinking: str | None = None, stop_reason: str | None = None) -> Answer:
    """Answer with tool calls alone: `use(("bash", {"command": "ls"}), …)`."""
    return say(calls=calls, thinking=thinking, stop_reason=stop_reason)


def decline(text: str = "") -> Answer:
    """Answer as a safety classifier does: HTTP 200, the text so far, stop reason `refusal`."""
    details = {"type": "refusal", "category": None, "explanation": None}
    return Answer(text=text, stop_reason="refusal", stop_details=details)


def tool_calls(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tool calls among the blocks of a reply."""
    return [block for block in content if block["type"] == "tool_use"]
