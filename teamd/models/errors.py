"""The failures of a model's server: try again, or tell the person what to mend."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from teamd.messages import again
from teamd.models import (
    ModelError,
    OddReplyError,
    RefusedError,
    RefusedMessageError,
    TooLongError,
    TransientError,
    UnusableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Worth another try besides all of 500 and above, some of which only a proxy sends.
TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429})
REFUSED_STATUSES: Final = frozenset({429, 529})  # too many calls, of this key or of everybody's
# An `error` event comes within a stream of status 200, and tells by its type alone.
STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_OK: Final = 200
_BAD_REQUESTS: Final = frozenset({400, 422})
# The API says "messages.3.content.0: …", others "messages[3].content[0]" or "messages.3: …".
_SYSTEM_ROLE: Final = re.compile(r"""role ['"]system['"]|role: Input should be 'user'""")
_MESSAGE: Final = re.compile(r"\bmessages[.\[](\d{1,6})\]?(?:\.content[.\[](\d{1,6})\]?)?")
_TOO_LARGE: Final = 413
_SERVER_ERROR: Final = 500
_LONGEST_MESSAGE: Final = 300
# Of httpx2: by name, since it need not be known here.
_UNSENT: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "LocalProtocolError", "UnsupportedProtocol"}
)
# How Anthropic's, llama.cpp's, vLLM's and LiteLLM's servers say it, with a status of 400.
_TOO_LONG: Final = re.compile(
    r"prompt is too long|exceeds? (?:the )?(?:available )?context|maximum context length"
    r"|context[ _](?:length|window)[ _]exceeded",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(r"(?:> |context length is )(\d{1,9})\b")
_LEAST_LIMIT: Final = 1000  # tokens; a figure below that is of something else


def as_model_error(
    error: Exception, *, model: str, url: str, name: str, mask: Callable[[str], str] = str
) -> ModelError:
    """Turn what the SDK raised into a `ModelError`; what is not known counts as transient.

    Args:
        error: as it was raised.
        model: that was asked.
        url: of its server.
        name: of the teammate that asked; empty for a subagent.
        mask: takes secrets out of what the server says, which may repeat the key.
    """
    if isinstance(error, OddReplyError):
        error = OddReplyError(_short(mask(error.what)), url)
    if isinstance(error, ModelError):
        return error
    status: int | None = getattr(error, "status_code", None)
    if status is None:
        return TransientError(f"no whole reply from {url}: {_words(error, mask)}")
    kind, said = _body_of(error, mask)
    if status == _OK:
        status = STATUS_OF_TYPE.get(kind, _OK)
    if status in (_OK, *TRANSIENT_STATUSES) or status >= _SERVER_ERROR:
        failure = RefusedError if status in REFUSED_STATUSES else TransientError
        return failure(f"{url} answered {status}: {said}", _retry_after(error))
    if status == _TOO_LARGE or _TOO_LONG.search(said):
        return TooLongError(f"the conversation is too long for {model} ({said})", _limit(said))
    sentence = _sentence(status, said, model=model, url=url, name=name)
    if status in _BAD_REQUESTS and (refused := _find_message(said, sentence)) is not None:
        return refused
    return UnusableError(sentence)


def _find_message(said: str, sentence: str) -> RefusedMessageError | None:
    """Return the error with the message that the server refuses, where it names one."""
    found = _MESSAGE.search(said)
    if _SYSTEM_ROLE.search(said):
        message = int(found[1]) if found else 0
        return RefusedMessageError(sentence, message=message, system=True)
    if found is None:
        return None
    block = None if found[2] is None else int(found[2])
    thinking = "thinking" in said or "signature" in said
    return RefusedMessageError(sentence, message=int(found[1]), block=block, thinking=thinking)


def may_have_begun(error: Exception) -> bool:
    """Return whether a request without an answer may have reached a server that charges for it.

    It cannot where the server told a status instead, or was never connected to.
    """
    told = isinstance(error, OddReplyError) or getattr(error, "status_code", None) is not None
    cause = error.__cause__ or error
    return not told and type(cause).__name__ not in _UNSENT


def _limit(said: str) -> int | None:
    """The tokens that a model takes, where its server told."""
    found = _LIMIT.search(said)
    limit = int(found[1]) if found else 0
    return limit if limit >= _LEAST_LIMIT else None


def _sentence(status: int, said: str, *, model: str, url: str, name: str) -> str:
    mend = f"send mail to try again, or begin anew with {again(name, '--fresh')}"
    match status:
        case 401 | 403:
            wrong = f"{url} refused the key ({status}: {said})"
            mend = "check ANTHROPIC_API_KEY or [model] key_command, then `teamd restart`"
        case 402:
            wrong = f"{url} wants to be paid first ({said})"
            mend = "see to the account, then send mail"
        case 404 if url.rstrip("/").endswith("/v1"):
            wrong = f"{url} is no base URL of the Messages API, which adds /v1 itself"
            mend = "leave /v1 out of ANTHROPIC_BASE_URL, then `teamd restart`"
        case 404:
            wrong = f"{url} knows no model {model!r} ({said})"
            other = again(name, "--model MODEL")
            mend = f"set [model] name in team.toml and `teamd restart`, or take {other}"
        case _:
            wrong = f"{url} refused the request ({status}: {said})"
    return f"{wrong}; {mend}"


def _body_of(error: Exception, mask: Callable[[str], str]) -> tuple[str, str]:
    """The API's error type and message, or what there is instead."""
    body: Any = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None
    if isinstance(inner, dict):
        return str(inner.get("type", "")), _short(mask(str(inner.get("message", ""))))
    return "", _words(error, mask)


def _words(error: Exception, mask: Callable[[str], str]) -> str:
    # The SDK says "Connection error." of whatever its HTTP library has a sentence for. A refused
    # header is not repeated: it may be the one with the key.
    cause = error.__cause__
    told = "" if cause is None or "header" in str(cause) else str(cause)
    return _short(mask(told)) or _short(mask(str(error))) or type(error).__name__


def _short(text: str) -> str:
    shown = "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text)
    line = " ".join(shown.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"


def _retry_after(error: Exception) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(headers.get("retry-after")))
    return None  # absent, or a date: the backoff does as well
