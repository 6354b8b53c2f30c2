"""Content blocks: their shapes, the places where each is allowed, and the errors for wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn


class ApiError(Exception):
    """An error response of the API.

    Attributes:
        status: the HTTP status.
        type: `invalid_request_error`, `not_found_error`, …
        message: the real service's sentence, as far as it is known.
        body: the refused request, parsed if it was JSON; None if it could not be read.
    """

    def __init__(self, status: int, type: str, message: str) -> None:  # noqa: A002  # the API's word
        super().__init__(f"{status} {type}: {message}")
        self.status = status
        self.type = type
        self.message = message
        self.body: Any = None

    def encode(self, request_id: str) -> dict[str, Any]:
        """Return the error as the JSON object that the client receives."""
        error = {"type": self.type, "message": self.message}
        return {"type": "error", "error": error, "request_id": request_id}


def refuse(message: str) -> NoReturn:
    """Refuse a request that breaks a rule.

    Raises:
        ApiError: always, 400 `invalid_request_error`.
    """
    raise ApiError(400, "invalid_request_error", message)


Block = dict[str, Any]

REQUIRED: Final[dict[str, dict[str, type]]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
}
OPTIONAL: Final[dict[str, set[str]]] = {
    "text": {"cache_control", "citations"},
    "image": {"cache_control", "transformations"},
    "document": {"cache_control", "citations", "context", "title"},
    "tool_use": {"cache_control", "caller", "toolset_name"},
    "tool_result": {"cache_control", "content", "is_error", "toolset_name"},
    "thinking": set(),
    "redacted_thinking": set(),
}
PLACES: Final = {
    "system": {"text"},
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
    "tool_result": {"text", "image", "document"},
}
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
TOOL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def listed(content: Any, where: str) -> list[Block]:
    """Return content as a list of unchecked blocks; a string becomes one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        refuse(f"{where}: Input should be a valid string or a list of objects")
    return content


def check_blocks(blocks: list[Block], place: str, where: str) -> None:
    """Refuse a block that is not allowed in `place` or has a wrong shape."""
    for index, block in enumerate(blocks):
        check_block(block, place, f"{where}.{index}")


def check_block(block: Block, place: str, where: str) -> None:
    kind = block.get("type")
    if kind not in REQUIRED:
        refuse(f"{where}: Input tag {kind!r} found using 'type' does not match any expected tag")
    if kind not in PLACES[place]:
        refuse(f"{where}: `{kind}` blocks may not stand in `{place}` content")
    check_keys(block, {"type", *REQUIRED[kind], *OPTIONAL[kind]}, f"{where}.{kind}")
    for key, wanted in REQUIRED[kind].items():
        if key not in block:
            refuse(f"{where}.{kind}.{key}: Field required")
        if not isinstance(block[key], wanted):
            refuse(f"{where}.{kind}.{key}: Input should be a valid {wanted.__name__}")
    check_cache_control(block.get("cache_control"), f"{where}.{kind}")
    _check_kind(block, kind, where)


def check_keys(value: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse a key that the API does not know."""
    for key in value:
        if key not in known:
            refuse(f"{where}.{key}: Extra inputs are not permitted".removeprefix("."))


def check_cache_control(value: Any, where: str) -> None:
    """Refuse a cache breakpoint that is not `{"type": "ephemeral", "ttl"?: "5m" | "1h"}`."""
    if value is None:
        return
    if not isinstance(value, dict) or value.get("type") != "ephemeral":
        refuse(f"{where}.cache_control.type: Input should be 'ephemeral'")
    check_keys(value, {"type", "ttl"}, f"{where}.cache_control.ephemeral")
    if value.get("ttl", "5m") not in {"5m", "1h"}:
        refuse(f"{where}.cache_control.ephemeral.ttl: Input should be '5m' or '1h'")


def _check_kind(block: Block, kind: str, where: str) -> None:
    match kind:
        case "text":
            check_text(block["text"], where.split(".", maxsplit=1)[0])
        case "tool_use":
            _check_use(block, where)
        case "tool_result":
            _check_result(block, where)


def check_text(text: str, where: str) -> None:
    """Refuse an empty or white-space text."""
    if not text:
        refuse(f"{where}: text content blocks must be non-empty")
    if not text.strip():
        refuse(f"{where}: text content blocks must contain non-whitespace text")


def _check_use(block: Block, where: str) -> None:
    if not TOOL_ID.fullmatch(block["id"]):
        refuse(f"{where}.tool_use.id: String should match pattern '^{TOOL_ID.pattern}$'")
    if not TOOL_NAME.fullmatch(block["name"]):
        refuse(f"{where}.tool_use.name: String should match pattern '^{TOOL_NAME.pattern}$'")
    if "caller" in block and not isinstance(block["caller"], dict):
        refuse(f"{where}.tool_use.caller: Input should be an object")


def _check_result(block: Block, where: str) -> None:
    failed = block.get("is_error", False)
    if not isinstance(failed, bool):
        refuse(f"{where}.tool_result.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    if failed and not content:
        refuse(f"{where}.tool_result: content cannot be empty if `is_error` is true")
    if isinstance(content, str):
        # A successful result may be empty, but white space alone is not a valid text.
        if content:
            check_text(content, where.split(".", maxsplit=1)[0])
        return
    check_blocks(listed(content, where), "tool_result", f"{where}.tool_result.content")


def walk(body: Mapping[str, Any]) -> Iterator[tuple[str, Block]]:
    """Yield every tool, system block and content block with its place, in the cache's order."""
    for index, tool in enumerate(body.get("tools") or []):
        yield f"tools.{index}", tool
    for index, block in enumerate(listed(body.get("system") or [], "system")):
        yield f"system.{index}", block
    for index, message in enumerate(body["messages"]):
        for at, block in enumerate(listed(message["content"], "messages")):
            yield f"messages.{index}.content.{at}", block
