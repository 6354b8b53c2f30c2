"""A server's facts about a model: its limits, its capabilities, and when it retires.

Source: the API's documentation, "Models", and the SDK's type `ModelInfo`. Servers that imitate the
API answer with a part of it, or with other JSON: a fact that is missing or of the wrong type is
unknown, and an unknown capability is not used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
WARNING_DAYS: Final = 60  # before a model retires
_LEAST_TOKENS: Final = 1000  # no model that calls tools has a smaller context
_MOST_TOKENS: Final = 10**9
_VERSION: Final = re.compile(r"claude-[a-z]+-(\d+)(?:-(\d))?(?:-\d{8})?")
# The endpoint does not list this capability. The documentation names the models; all of them list
# adaptive thinking, which tells the API from servers that imitate it.
_SYSTEM_MESSAGES_SINCE: Final = (4, 8)
DEPRECATED: Final = "deprecated"
RETIRED: Final = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The facts about one model of one server; the defaults are those of an unknown model.

    Attributes:
        name: the name in the request, which may be an alias.
        context_tokens: the longest request; `None` if unknown.
        output_tokens: the largest `max_tokens`; `None` if unknown.
        efforts: the levels that `output_config.effort` may have.
        adaptive_thinking: whether `thinking` may be `adaptive`.
        system_messages: whether `messages` may hold those of the role `system`.
        lifecycle: `active`, `deprecated`, `retired`, or empty if unknown.
        retires_at: the planned date of retirement, if there is one.
    """

    name: str = ""
    context_tokens: int | None = None
    output_tokens: int | None = None
    efforts: frozenset[str] = frozenset()
    adaptive_thinking: bool = False
    system_messages: bool = False
    lifecycle: str = ""
    retires_at: datetime | None = None

    @classmethod
    def read(cls, name: str, page: Any) -> ModelFacts:
        """Read the answer of `GET /v1/models/NAME`, whatever it is."""
        page = _table(page)
        listed = _table(page.get("capabilities"))
        resolved = page.get("id")
        version = _version(resolved if isinstance(resolved, str) else name)
        effort = _table(listed.get("effort"))
        thinking = _table(_table(listed.get("thinking")).get("types"))
        adaptive = _supports(thinking, "adaptive")
        lifecycle = page.get("lifecycle")
        return cls(
            name=name,
            context_tokens=_tokens(page.get("max_input_tokens"), least=_LEAST_TOKENS),
            output_tokens=_tokens(page.get("max_tokens"), least=1),
            efforts=frozenset(one for one in EFFORTS if _supports(effort, one)),
            adaptive_thinking=adaptive,
            system_messages=adaptive and version >= _SYSTEM_MESSAGES_SINCE,
            lifecycle=lifecycle if isinstance(lifecycle, str) else "",
            retires_at=_moment(page.get("retires_at")),
        )

    def warn_of_retirement(self, now: datetime) -> str | None:
        """Return a sentence if the model has retired, retires soon, or is deprecated."""
        remedy = "choose another one, see `teamctl help models`"
        if self.lifecycle == RETIRED:
            return f"the model {self.name} has retired, and its server refuses requests; {remedy}"
        if self.retires_at is None:
            deprecated = f"the model {self.name} is deprecated and will retire; {remedy}"
            return deprecated if self.lifecycle == DEPRECATED else None
        if self.retires_at - now > timedelta(WARNING_DAYS) and self.lifecycle != DEPRECATED:
            return None
        verb = "retires" if self.retires_at > now else "was due to retire"
        return f"the model {self.name} {verb} on {self.retires_at:%Y-%m-%d}; {remedy}"


UNKNOWN: Final = ModelFacts()


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _supports(listed: dict[str, Any], capability: str) -> bool:
    return _table(listed.get(capability)).get("supported") is True


def _tokens(value: Any, *, least: int) -> int | None:
    number = isinstance(value, int) and not isinstance(value, bool)
    return value if number and least <= value <= _MOST_TOKENS else None


def _version(model: str) -> tuple[int, int]:
    """Return the generation of an Anthropic model; (0, 0) for any other name."""
    found = _VERSION.fullmatch(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _moment(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
