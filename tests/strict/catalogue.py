"""The catalogue of models, as `GET /v1/models` shows it."""

from __future__ import annotations

from typing import Any

from tests.strict.errors import ApiError
from tests.strict.models import kind_of
from tests.strict.rules import Terms


def listing(terms: Terms) -> dict[str, Any]:
    """Return the one page of models."""
    data = [_entry(name, terms) for name in terms.models]
    ends = {"first_id": terms.models[0], "last_id": terms.models[-1]}
    return {"data": data, "has_more": False, **ends}


def entry(name: str, terms: Terms) -> dict[str, Any]:
    """Return what is known of a model.

    Raises:
        ApiError: 404, no such model, or no page of it.
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
