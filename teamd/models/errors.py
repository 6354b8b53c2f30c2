"""The failures of a model's server: try again, or tell the person what to mend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from teamd.messages import respawn_command
from teamd.model_server.connection import find_proxy
from teamd.models import (
    LONG_WAIT_SECONDS,
    LaterError,
    ModelError,
    OddReplyError,
    RefusedError,
    RefusedMessageError,
    TooLongError,
    TransientError,
    UnusableError,
)
from teamd.models.accounts import ServerRefusal, find_account_error, find_connection_error
from teamd.models.server_time import find_wait_seconds

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
    {
        "ConnectError",
        "ConnectTimeout",
        "LocalProtocolError",
        "PoolTimeout",
        "ProxyError",
        "UnsupportedProtocol",
    }
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
        return OddReplyError(_short(mask(error.what)), url)
    for raised in (error, error.__cause__):
        if isinstance(raised, ModelError):
            return raised
    if getattr(error, "status_code", None) is None:
        return _unanswered(_words(error, mask), url)
    refusal = _read(error, mask)
    refused = find_account_error(refusal, url)
    return refused or _judge(refusal, model=model, url=url, name=name)


def _judge(refusal: ServerRefusal, *, model: str, url: str, name: str) -> ModelError:
    """Return the error of a request that was refused for itself, or in passing."""
    status, said = refusal.status, refusal.said
    if status in (_OK, *TRANSIENT_STATUSES) or status >= _SERVER_ERROR:
        return _passing(f"{url} answered {status}: {said}", refusal)
    if status == _TOO_LARGE or _TOO_LONG.search(said):
        return TooLongError(f"the conversation is too long for {model} ({said})", _limit(said))
    sentence = _sentence(status, said, model=model, url=url, name=name)
    refused = _find_message(said, sentence) if status in _BAD_REQUESTS else None
    return refused or UnusableError(sentence)


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
    # One of ours is raised where the server redirects, before anything was asked. A group comes
    # from the attempts to connect to each address of a name.
    unsent = isinstance(cause, (ModelError, ExceptionGroup)) or type(cause).__name__ in _UNSENT
    return not (told or unsent)


def _passing(sentence: str, refusal: ServerRefusal) -> ModelError:
    wait = refusal.wait_seconds
    if wait is not None and wait > LONG_WAIT_SECONDS:
        return LaterError(sentence, wait)
    failure = RefusedError if refusal.status in REFUSED_STATUSES else TransientError
    return failure(sentence, wait)


def _unanswered(said: str, url: str) -> ModelError:
    known = find_connection_error(said, url)
    if known is not None:
        return known
    proxy = find_proxy(url)
    through = "" if proxy is None else f" through the proxy {proxy.value} of {proxy.name}"
    return TransientError(f"no whole reply from {url}{through}: {said}")


def _read(error: Exception, mask: Callable[[str], str]) -> ServerRefusal:
    inner = _inner(error)
    said = _short(mask(str(inner["message"]))) if "message" in inner else _words(error, mask)
    kinds = frozenset(_kinds(inner))
    status: int = error.status_code  # type: ignore[attr-defined]  # the SDK's
    if status == _OK:
        status = next((STATUS_OF_TYPE[kind] for kind in kinds if kind in STATUS_OF_TYPE), _OK)
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    told = {**dict(headers.items()), **_headers_within(inner)}
    wait = find_wait_seconds({name.lower(): str(value) for name, value in told.items()}, said)
    return ServerRefusal(status=status, kinds=kinds, said=said, wait_seconds=wait)


def _inner(error: Exception) -> dict[str, Any]:
    """Return the `error` of a body as the API has it; empty where there is none."""
    body: Any = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def _kinds(inner: dict[str, Any]) -> Iterator[str]:
    details = inner.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    yield from (
        kind for kind in (inner.get("type"), inner.get("code"), code) if isinstance(kind, str)
    )


def _headers_within(inner: dict[str, Any]) -> dict[str, Any]:
    """Return the headers that OpenRouter puts into the body."""
    metadata = inner.get("metadata")
    headers = metadata.get("headers") if isinstance(metadata, dict) else None
    return headers if isinstance(headers, dict) else {}


def _limit(said: str) -> int | None:
    """The tokens that a model takes, where its server told."""
    found = _LIMIT.search(said)
    limit = int(found[1]) if found else 0
    return limit if limit >= _LEAST_LIMIT else None


def _sentence(status: int, said: str, *, model: str, url: str, name: str) -> str:
    mend = f"send mail to try again, or begin anew with {respawn_command(name, '--fresh')}"
    match status:
        case 404 if url.rstrip("/").endswith("/v1"):
            wrong = f"{url} is no base URL of the Messages API, which adds /v1 itself"
            mend = "leave /v1 out of ANTHROPIC_BASE_URL, then `teamd restart`"
        case 404:
            wrong = f"{url} knows no model {model!r} ({said})"
            other = respawn_command(name, "--model MODEL")
            mend = f"set [model] name in team.toml and `teamd restart`, or take {other}"
        case _:
            wrong = f"{url} refused the request ({status}: {said})"
    return f"{wrong}; {mend}"


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
