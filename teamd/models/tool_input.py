"""The input of a tool call, which the model writes as JSON text."""

from __future__ import annotations

import json
from typing import Any, Final

# The key under which text that is not a JSON object is kept and sent back to the model. Source:
# the API's documentation, "Fine-grained tool streaming", "Handling invalid JSON".
INVALID: Final = "INVALID_JSON"


def parse_tool_input(text: str) -> dict[str, Any]:
    """Return the object that the text holds, or the text itself under `INVALID`."""
    try:
        return _parse(text)
    except ValueError:
        return {INVALID: text}


def explain_invalid(given: dict[str, Any]) -> str | None:
    """Return why the text of a call was not taken; `None` for a call with an object as input."""
    if list(given) != [INVALID] or not isinstance(given[INVALID], str):
        return None
    try:
        _parse(given[INVALID])
    except ValueError as error:
        return str(error)
    return f"{INVALID} is not a parameter"


def _parse(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
        # JSON has no NaN, and UTF-8 no half of a surrogate pair: no later request could carry them.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
        raise ValueError(f"it is {kind.get(type(found), 'a number')}, not an object")  # noqa: TRY004
    return found
