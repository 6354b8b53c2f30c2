"""The models that the service knows, and the parameters that each accepts.

Source: the API's documentation, "Models", "Effort", "Troubleshooting thinking", "Preserved
thinking" and the migration guide of Sonnet 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
THINKING: Final = ("adaptive", "between_tools", "disabled", "enabled")
_NAME: Final = re.compile(r"claude-([a-z]+)-(\d+)(?:-(\d))?(?:-\d{8})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The parameters that a model accepts.

    Attributes:
        named: whether the service lists its capabilities at all.
        line: such as `opus`.
        efforts: the levels of effort.
        thinking: the values of `thinking.type`.
        omits: whether the text of thinking is left out unless `display` requests it.
        bare: whether it refuses sampling parameters and a forced choice of tools.
        edits: whether the service can clear tool results and summarise.
    """

    named: bool = False
    line: str | None = None
    efforts: tuple[str, ...] = ()
    thinking: tuple[str, ...] = THINKING
    omits: bool = False
    bare: bool = False
    edits: bool = False

    def capabilities(self) -> dict[str, Any] | None:
        """Return the capabilities as the models endpoint does: all keys are always present."""
        if not self.named:
            return None
        yes, thinks = {"supported": True}, {"adaptive", "enabled"} & set(self.thinking)
        edits = ("clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112")
        types = _table(THINKING, self.thinking)
        tools = {"web_search": yes, "code_execution": yes, "supported": True}
        return {
            "batch": yes,
            "citations": yes,
            "code_execution": yes,
            "context_management": {
                **_table(edits, edits if self.edits else ()),
                "supported": self.edits,
            },
            "effort": {**_table(EFFORTS, self.efforts), "supported": bool(self.efforts)},
            "image_input": yes,
            "pdf_input": yes,
            "server_tools": tools,
            "structured_outputs": yes,
            "thinking": {"supported": bool(thinks), "types": types},
        }


def kind_of(model: str) -> Kind:
    """Return the parameters that a model accepts; a model of another vendor accepts all."""
    found = _NAME.fullmatch(model)
    if found is None:
        return Kind()
    line, version = found[1], (int(found[2]), int(found[3] or 0))
    return Kind(
        named=True,
        line=line,
        efforts=_efforts(line, version),
        thinking=_thinking(line, version),
        omits=version >= (4, 7),
        bare=version >= (5, 1),
        edits=True,
    )


def _efforts(line: str, version: tuple[int, int]) -> tuple[str, ...]:
    if version >= (4, 7):
        return EFFORTS
    if version == (4, 6):
        return ("low", "medium", "high", "max")
    return ("low", "medium", "high") if (line, version) == ("opus", (4, 5)) else ()


def _thinking(line: str, version: tuple[int, int]) -> tuple[str, ...]:
    if version >= (5, 1):
        always = line in {"opus", "fable", "mythos"}
        return ("adaptive",) if always else ("adaptive", "between_tools")
    if version >= (4, 7):
        return ("adaptive", "disabled")
    return ("adaptive", "disabled", "enabled") if version == (4, 6) else ("disabled", "enabled")


def _table(names: Iterable[str], supported: Iterable[str]) -> dict[str, dict[str, bool]]:
    return {name: {"supported": name in supported} for name in names}
