"""The rules for tools: their names and schemas, and which of them may be chosen."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from tests.strict.blocks import TOOL_NAME, check_cache_control, check_keys, listed
from tests.strict.errors import refuse

PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
TOOL_KEYS: Final = {
    *("type", "name", "description", "input_schema", "cache_control", "strict", "defer_loading"),
    *("input_examples", "allowed_callers", "eager_input_streaming"),
}


def check_tools(body: dict[str, Any]) -> None:
    """Refuse tools of a wrong shape, or a history of tool calls without any tools."""
    tools = body.get("tools", [])
    for index, tool in enumerate(tools):
        _check_tool(tool, f"tools.{index}")
    counts = Counter(tool["name"] for tool in tools)
    if any(count > 1 for count in counts.values()):
        refuse("tools: Tool names must be unique.")
    _check_choice(body.get("tool_choice"), counts)
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message, dict)
        for block in listed(message.get("content", ""), "messages")
    ]
    if not tools and any(block.get("type") in {"tool_use", "tool_result"} for block in blocks):
        refuse("Requests which include `tool_use` or `tool_result` blocks must define tools")


def _check_tool(tool: Any, where: str) -> None:
    if not isinstance(tool, dict) or tool.get("type") not in {None, "custom"}:
        refuse(f"{where}: Input should be a tool of our own, an object of type 'custom'")
    check_keys(tool, TOOL_KEYS, f"{where}.custom")
    if not isinstance(tool.get("name"), str) or not TOOL_NAME.fullmatch(tool["name"]):
        refuse(f"{where}.custom.name: String should match pattern '^{TOOL_NAME.pattern}$'")
    if not isinstance(tool.get("description", ""), str):
        refuse(f"{where}.custom.description: Input should be a valid string")
    _check_schema(tool.get("input_schema"), f"{where}.custom.input_schema")
    check_cache_control(tool.get("cache_control"), f"{where}.custom")


def _check_schema(schema: Any, where: str) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        refuse(f"{where}.type: Input should be 'object'")
    if schema.keys() & {"oneOf", "anyOf", "allOf"}:
        refuse(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    properties = schema.get("properties") or {}
    if not isinstance(properties, dict):
        refuse(f"{where}.properties: Input should be an object")
    for key in properties:
        if not PROPERTY.fullmatch(key):
            refuse(f"{where}.properties: Property keys should match '^{PROPERTY.pattern}$'")
    required = schema.get("required") or []
    if not isinstance(required, list) or not set(required) <= set(properties):
        refuse(f"{where}.required: Input should be a list of the properties' names")


def _check_choice(choice: dict[str, Any] | None, names: Counter[str]) -> None:
    if choice is None:
        return
    if choice.get("type") not in {"auto", "any", "tool", "none"}:
        refuse("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    check_keys(choice, {"type", "name", "disable_parallel_tool_use"}, "tool_choice")
    if not names and choice["type"] != "none":
        refuse("tool_choice: may only be specified while providing tools")
    if choice["type"] == "tool" and choice.get("name") not in names:
        refuse(f"Tool '{choice.get('name')}' not found in provided tools")
