"""The rules for a request: its headers, the keys of its body and its size."""

from __future__ import annotations

import json
import re
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.strict.blocks import (
    TOOL_NAME,
    ApiError,
    check_blocks,
    check_cache_control,
    check_keys,
    listed,
    refuse,
)
from tests.strict.cache import check_breakpoints, prompt_tokens
from tests.strict.conversation import Issued, check_conversation
from tests.strict.models import EFFORTS, Kind, kind_of

PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
TOOL_KEYS: Final = {
    *("type", "name", "description", "input_schema", "cache_control", "strict", "defer_loading"),
    *("input_examples", "allowed_callers", "eager_input_streaming"),
}


# Source: the API's documentation, "Structured outputs", JSON Schema limitations and complexity
# limits. The API has further, undocumented limits on the compiled grammar.
STRICT_TOOLS: Final = 20
STRICT_OPTIONAL: Final = 24
STRICT_UNIONS: Final = 16
STRICT_KEYWORDS: Final = {
    *("type", "title", "description", "default", "enum", "const", "format", "pattern"),
    *("properties", "required", "additionalProperties", "items", "minItems", "anyOf", "allOf"),
    *("$ref", "$defs", "definitions"),
}


def check_tools(body: dict[str, Any]) -> None:
    """Refuse tools of a wrong shape, or a history of tool calls when no tools are given."""
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
    """Refuse strict tools whose schemas the API cannot compile into a grammar."""
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
    """Yield a schema and all its subschemas."""
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


VERSION: Final = "2026-10-21"
VERSIONS: Final = ("2023-06-01", VERSION)
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
LEAST_BUDGET: Final = 1024

Types = type | tuple[type, ...]
NULL: Final = types.NoneType
COUNTED: Final[dict[str, Types]] = {
    "model": str,
    "messages": list,
    "system": (str, list),
    "tools": list,
    "tool_choice": dict,
    "thinking": dict,
    "output_config": dict,
    "cache_control": (dict, NULL),
    "speed": (str, NULL),
}
CREATED: Final[dict[str, Types]] = {
    **COUNTED,
    "max_tokens": int,
    "stream": bool,
    "metadata": dict,
    "stop_sequences": list,
    "service_tier": str,
    "container": (str, dict, NULL),
    "diagnostics": (dict, NULL),
    "inference_geo": (str, NULL),
}
SAMPLING: Final[dict[str, Types]] = {
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": int,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The keys, models and limits of one server.

    Attributes:
        keys: the accepted bearer keys.
        models: the names of its models.
        context_tokens: the longest prompt.
        output_tokens: the largest `max_tokens`.
        retires_at: when its models retire, in the models endpoint's format.
        no_page_status: the status for a request for a single model, such as 404 or 405, if the
            server has only the list of models; `None` for a server with a page for each model, as
            the API has.
    """

    keys: tuple[str, ...]
    models: tuple[str, ...]
    context_tokens: int
    output_tokens: int
    retires_at: str | None = None
    no_page_status: int | None = None

    def kind_of(self, model: str) -> Kind:
        """Return a model's parameters; without model pages, those of imitating servers."""
        return kind_of(model) if self.no_page_status is None else Kind()


def check_headers(headers: Mapping[str, str], terms: Terms) -> None:
    """Refuse a request without a known key or version.

    Args:
        headers: their names in lower case.
        terms: the server's keys, models and limits.
    """
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or key not in terms.keys:
        raise ApiError(401, "authentication_error", "Invalid bearer token")
    version = headers.get("anthropic-version")
    if version is None:
        refuse("anthropic-version: header is required")
    if version not in VERSIONS:
        refuse(f'anthropic-version: "{version}" is not a valid version')


def parse_body(content_type: str, data: bytes) -> dict[str, Any]:
    """Return the JSON object of a request's body, or refuse it."""
    if len(data) > MAX_BODY_BYTES:
        raise ApiError(413, "request_too_large", "Request exceeds the maximum size")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        refuse(f"content-type: expected application/json, got {content_type!r}")
    try:
        body = json.loads(data)
        # Python's JSON reader accepts half of a surrogate pair; the service does not.
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        refuse(f"The request body is not valid JSON: {error}")
    if not isinstance(body, dict):
        refuse("The request body is not valid JSON: expected an object")
    return body


def check_create(body: dict[str, Any], version: str, terms: Terms, issued: Issued) -> None:
    """Refuse a body of `POST /v1/messages` that the service would refuse."""
    known = CREATED if version == VERSION else {**CREATED, **SAMPLING}
    _check_types(body, known, {"model", "max_tokens", "messages"})
    if isinstance(body["max_tokens"], bool) or body["max_tokens"] < 1:
        refuse("max_tokens: Input should be greater than or equal to 1")
    if body["max_tokens"] > terms.output_tokens:
        refuse(
            f"max_tokens: {body['max_tokens']} > {terms.output_tokens}, which is the maximum "
            f"allowed number of output tokens for {body['model']}",
        )
    if body.get("stream") is not True:
        refuse("Streaming is required for operations that may take longer than 10 minutes")
    check_keys(body.get("metadata", {}), {"user_id"}, "metadata")
    _check_prompt(body, terms, issued)


def check_count(body: dict[str, Any], terms: Terms, issued: Issued) -> None:
    """Refuse a body of `POST /v1/messages/count_tokens` that the service would refuse."""
    _check_types(body, COUNTED, {"model", "messages"})
    _check_prompt(body, terms, issued)


def _check_types(body: dict[str, Any], known: dict[str, Types], required: set[str]) -> None:
    check_keys(body, set(known), "")
    for key in sorted(required - body.keys()):
        refuse(f"{key}: Field required")
    for key, value in body.items():
        if not isinstance(value, known[key]):
            refuse(f"{key}: Input should have another type than {type(value).__name__}")


def _check_prompt(body: dict[str, Any], terms: Terms, issued: Issued) -> None:
    if body["model"] not in terms.models:
        raise ApiError(404, "not_found_error", f"model: {body['model']}")
    kind = terms.kind_of(body["model"])
    thinking = body.get("thinking", {})
    _check_thinking(thinking, body.get("max_tokens"), kind)
    _check_output_config(body.get("output_config", {}), body["model"], kind)
    check_tools(body)
    if kind.bare:
        _check_bare(body)
    check_blocks(listed(body.get("system") or [], "system"), "system", "system")
    thinks = thinking.get("type") != "disabled"
    check_conversation(body["messages"], issued, thinks=thinks, frame=body)
    check_cache_control(body.get("cache_control"), "")
    check_breakpoints(body)
    tokens = prompt_tokens(body)
    if tokens > terms.context_tokens:
        refuse(f"prompt is too long: {tokens} tokens > {terms.context_tokens} maximum")


def _check_output_config(config: dict[str, Any], model: str, kind: Kind) -> None:
    check_keys(config, {"effort", "format"}, "output_config")
    effort = config.get("effort")
    if effort is None:
        return
    if effort not in EFFORTS:
        refuse("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    if not kind.efforts:
        refuse("This model does not support the effort parameter.")
    if effort not in kind.efforts:
        supported = ", ".join(kind.efforts)
        refuse(
            f"output_config.effort: '{effort}' is not supported by {model}. "
            f"Supported levels: {supported}"
        )


def _check_bare(body: dict[str, Any]) -> None:
    for key in SAMPLING:
        if key in body:
            refuse(f"`{key}` is deprecated for this model.")
    if body.get("tool_choice", {}).get("type") in {"any", "tool"}:
        refuse("tool_choice: forcing tool use is not supported by this model.")


def _check_thinking(thinking: dict[str, Any], max_tokens: int | None, kind: Kind) -> None:
    if not thinking:
        return
    keys = {
        "enabled": {"type", "budget_tokens", "display"},
        "adaptive": {"type", "display"},
        "between_tools": {"type"},
        "disabled": {"type"},
    }
    if thinking.get("type") not in keys:
        refuse("thinking.type: Input should be 'adaptive', 'enabled', 'between_tools', 'disabled'")
    if thinking["type"] not in kind.thinking:
        refuse(f"`thinking.type: {thinking['type']}` is not supported for this model.")
    check_keys(thinking, keys[thinking["type"]], f"thinking.{thinking['type']}")
    if thinking.get("display") not in (None, "summarized", "omitted"):
        refuse(f"thinking.{thinking['type']}.display: Input should be 'summarized' or 'omitted'")
    if thinking["type"] != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < LEAST_BUDGET:
        refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if max_tokens is not None and budget >= max_tokens:
        refuse("`max_tokens` must be greater than `thinking.budget_tokens`")


def listing(terms: Terms) -> dict[str, Any]:
    """Return the list of models, which is a single page."""
    data = [_entry(name, terms) for name in terms.models]
    ends = {"first_id": terms.models[0], "last_id": terms.models[-1]}
    return {"data": data, "has_more": False, **ends}


def entry(name: str, terms: Terms) -> dict[str, Any]:
    """Return a model's page.

    Raises:
        ApiError: 404: the model does not exist or has no page.
    """
    if terms.no_page_status is not None:
        raise ApiError(terms.no_page_status, "not_found_error", "Not found")
    if name not in terms.models:
        raise ApiError(404, "not_found_error", f"model: {name}")
    return _entry(name, terms)


def _entry(name: str, terms: Terms) -> dict[str, Any]:
    kind = kind_of(name)
    return {
        "id": name,
        "type": "model",
        "display_name": name.replace("-", " ").title(),
        "created_at": "2026-01-01T00:00:00Z",
        "line": kind.line,
        "capabilities": kind.capabilities(),
        "lifecycle": "active" if terms.retires_at is None else "deprecated",
        "deprecated_at": None if terms.retires_at is None else "2026-06-01T00:00:00Z",
        "retires_at": terms.retires_at,
        "max_input_tokens": terms.context_tokens,
        "max_tokens": terms.output_tokens,
    }
