"""What a failure of a model's server means: try again, or tell the person what to mend."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from teamd.models import ModelError, TransientError, UnusableError

# Statuses worth another try; an `error` event within a stream has status 200 and tells by type.
TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
TRANSIENT_TYPES: Final = frozenset(
    {"overloaded_error", "rate_limit_error", "api_error", "timeout_error"}
)
_LONGEST_MESSAGE: Final = 300


def as_model_error(error: Exception, *, model: str, url: str) -> ModelError:
    """Turn what the SDK raised into a `ModelError`; what is not known counts as transient."""
    if isinstance(error, ModelError):
        return error
    status: int | None = getattr(error, "status_code", None)
    if status is None:
        return TransientError(f"no whole reply from {url}: {_words(error)}")
    kind, said = _body_of(error)
    if kind in TRANSIENT_TYPES or status in TRANSIENT_STATUSES or status == 200:  # noqa: PLR2004
        return TransientError(f"{url} answered {status}: {said}", _retry_after(error))
    return UnusableError(_sentence(status, said, model=model, url=url))


def _sentence(status: int, said: str, *, model: str, url: str) -> str:
    match status:
        case 401 | 403:
            return (
                f"{url} refused the key ({status}: {said}); check ANTHROPIC_API_KEY or "
                "[model] key_command, then `teamd restart`"
            )
        case 404:
            return (
                f"{url} knows no model {model!r} ({said}); set [model] name in team.toml and "
                "`teamd restart`, or spawn with --model"
            )
        case 402:
            return f"{url} wants to be paid first ({said}); see to the account, then send mail"
        case 413:
            return f"the conversation is too long for {url} ({said}); begin anew with --fresh"
    if "prompt is too long" in said:
        return f"the conversation is too long for {model} ({said}); begin anew with --fresh"
    return f"{url} refused the request ({status}: {said}); the log has the rest"


def _body_of(error: Exception) -> tuple[str, str]:
    """The API's error type and message, or what there is instead."""
    body: Any = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None
    if isinstance(inner, dict):
        return str(inner.get("type", "")), _short(str(inner.get("message", "")))
    return "", _words(error)


def _words(error: Exception) -> str:
    return _short(str(error)) or type(error).__name__


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"


def _retry_after(error: Exception) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(headers.get("retry-after")))
    return None  # absent, or a date: the backoff does as well
