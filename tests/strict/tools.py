"""The rules for tools: their names and schemas, and which of them may be chosen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from tests.strict.blocks import TOOL_NAME, check_cache_control, check_keys, listed
from tests.strict.errors import refuse

PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
TOOL_KEYS: Final = {
    *("type", "name", "description", "input_schema", "cache_control", "strict", "defer_loading"),
    *("input_examples", "allowed_callers", "eager_input_streaming"),
}


# Source: the API's documentation, "Structured outputs", JSON Schema limitations and complexity
# limits. The API has further limits on the compiled grammar, which it does not tell.
STRICT_TOOLS: Final = 20
STRICT_OPTIONAL: Final = 24
STRICT_UNIONS: Final = 16
STRICT_KEYWORDS: Final = {
    *("type", "title", "description", "default", "enum", "const", "format", "pattern"),
    *("properties", "required", "additionalProperties", "items", "minItems", "anyOf", "allOf"),
    *("$ref", "$defs", "definitions"),
}


def check_tools(body: dict[str, Any]) -> None:
    """Refuse tools of a wrong shape, or a history of tool calls without any tools."""
    tools = body.get("tools", [])
    for index, tool in enumerate(tools):
        _check_tool(tool, f"tools.{index}")
    _check_strict(tools)
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
    if not isinstance(tool.get("strict", False), bool):
        refuse(f"{where}.custom.strict: Input should be a valid boolean")
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


def _check_strict(tools: list[dict[str, Any]]) -> None:
    """Refuse strict tools whose schemas the API compiles into no grammar."""
    strict = {index: tool for index, tool in enumerate(tools) if tool.get("strict")}
    parts = []
    for index, tool in strict.items():
        parts += (found := list(_parts(tool["input_schema"])))
        for part in found:
            _check_strict_part(part, f"tools.{index}.custom")
    optional = sum(len(_optional(part)) for part in parts)
    unions = sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts)
    for count, most, noun in (
        (len(strict), STRICT_TOOLS, "strict tools"),
        (optional, STRICT_OPTIONAL, "optional parameters in strict schemas"),
        (unions, STRICT_UNIONS, "parameters with union types in strict schemas"),
    ):
        if count > most:
            refuse(f"tools: Too many {noun} ({count}). The maximum is {most}.")


def _check_strict_part(part: dict[str, Any], where: str) -> None:
    kind = part.get("type")
    if unknown := sorted(part.keys() - STRICT_KEYWORDS):
        refuse(f"{where}: For '{kind}' type, properties {', '.join(unknown)} are not supported")
    if kind == "object" and part.get("additionalProperties") is not False:
        why = "'additionalProperties' must be explicitly set to false"
        refuse(f"{where}: For 'object' type, {why}")
    if part.get("minItems", 0) not in {0, 1}:
        refuse(f"{where}: For 'array' type, 'minItems' values other than 0 or 1 are not supported")


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas in it."""
    yield schema
    named = [schema.get(key, {}) for key in ("properties", "$defs", "definitions")]
    below = [one for group in named for one in group.values()]
    below += [*schema.get("anyOf", []), *schema.get("allOf", [])]
    below += [schema["items"]] if "items" in schema else []
    for one in below:
        yield from _parts(one)


def _optional(part: dict[str, Any]) -> set[str]:
    return set(part.get("properties", {})) - set(part.get("required", []))


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
