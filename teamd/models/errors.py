"""The failures of a model's server: whether to try again, or what the person has to fix."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from teamd.messages import respawn_command
from teamd.model_server.connection import certificate_remedy, find_proxy, is_untrusted
from teamd.model_server.credentials import RESTART
from teamd.models import (
    LONG_WAIT_SECONDS,
    KeyRefusedError,
    LaterError,
    ModelError,
    OddReplyError,
    RefusedError,
    RefusedMessageError,
    TooLongError,
    TransientError,
    UnusableError,
)

# `error.type`, `error.code` or `error.details.error_code`: of Anthropic, OpenAI and LiteLLM.
_SPENT_KINDS: Final = frozenset(
    {
        "billing_error",
        "enforced_spend_limit_reached",
        "insufficient_quota",
        "insufficient_balance_error",
        "budget_exceeded",
    }
)
# Of servers that say it in words alone: Anthropic (status 400), DeepSeek, MiniMax, OpenRouter.
_SPENT: Final = re.compile(
    r"credit balance is too low"
    r"|(?:reached|exceeded|hit) (?:your|the) (?:\w+ ){0,3}(?:usage|spend(?:ing)?) limits?"
    r"|usage limit (?:is )?reached"
    r"|insufficient[ _](?:balance|credits?|funds|quota)"
    r"|exceeded your current quota"
    r"|budget has been exceeded|(?:exceeded|over) ?budget"
    r"|requires more credits|can only afford"
    r"|free-models-per-day",
    re.IGNORECASE,
)
# A message about a place in the request may quote what stands there.
_PLACE: Final = re.compile(r"\b(?:messages|tools|system)[.\[]\d")
_PROXY_LOGIN: Final = re.compile(r"\b407\b|proxy authentication", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRefusal:
    """An answer with an error.

    Attributes:
        status: the HTTP status.
        kinds: the words by which the body names the error; empty if it is not the API's body.
        said: its message, masked and short.
        wait_seconds: how long it asks to wait, if it does.
    """

    status: int
    kinds: AbstractSet[str]
    said: str
    wait_seconds: float | None


def find_account_error(refusal: ServerRefusal, url: str) -> LaterError | None:
    """Return the error for a refusal of the account, the key or a proxy; otherwise `None`."""
    status, said, wait = refusal.status, refusal.said, refusal.wait_seconds
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return _proxy_error(f"the proxy before {url} wants a login ({status}: {said})", url, wait)
    if _is_spent(refusal):
        wrong = f"{url} refuses the account ({status}: {said})"
        remedy = "add credit to it, or raise its limit"
        if "max_tokens" in said:
            remedy = "lower [model] max_tokens in team.toml, or add credit to it"
        return LaterError(f"{wrong}; {remedy}", wait, about="account")
    if status == HTTPStatus.FORBIDDEN and not refusal.kinds:
        wrong = f"{url} answered {status}, not in the words of the API ({said})"
        return _proxy_error(wrong, url, wait)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        wrong = f"{url} refused the key ({status}: {said})"
        remedy = "check ANTHROPIC_API_KEY or [model] key_command, then `teamd restart`"
        return KeyRefusedError(f"{wrong}; {remedy}", wait, about="key", command=RESTART)
    return None


def find_connection_error(said: str, url: str) -> LaterError | None:
    """Return the error for a connection that fails until a setting is changed; else `None`."""
    if is_untrusted(said):
        wrong = f"the certificate of {url} is not trusted ({said})"
        return LaterError(f"{wrong}; {certificate_remedy()}", about="certificate", command=RESTART)
    if find_proxy(url) and _PROXY_LOGIN.search(said):
        return _proxy_error(f"the proxy before {url} wants a login ({said})", url, None)
    return None


def redirect_error(url: str, target: str) -> LaterError:
    """Return the error for a server that redirects to another one.

    Args:
        url: of the server.
        target: the origin of the other server.
    """
    wrong = f"{url} redirects to {target}, which does not get the key"
    remedy = "give the address that answers by itself in [model] base_url or ANTHROPIC_BASE_URL"
    return LaterError(f"{wrong}; {remedy}", about="redirect")


def _is_spent(refusal: ServerRefusal) -> bool:
    paid_first = refusal.status == HTTPStatus.PAYMENT_REQUIRED
    named = not _SPENT_KINDS.isdisjoint(refusal.kinds)
    in_words = _SPENT.search(refusal.said) and not _PLACE.search(refusal.said)
    return paid_first or named or bool(in_words)


def _proxy_error(wrong: str, url: str, wait_seconds: float | None) -> LaterError:
    proxy = find_proxy(url)
    remedy = "check whether a proxy or firewall is between, and HTTPS_PROXY"
    if proxy is not None:
        remedy = f"check the proxy: {proxy.name} is {proxy.value}"
    return LaterError(f"{wrong}; {remedy}", wait_seconds, about="proxy")


# A limit of a month may have just begun to count; a time beyond that is a mistake of the server.
LONGEST_SECONDS: Final = 35 * 86400.0
# "You will regain access on 2026-12-01 at 00:00 UTC." A time without a zone says nothing.
_REGAINED: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?: at |T| )(\d\d:\d\d)(:\d\d)?(?:\.\d+)? ?(?:UTC|GMT|Z)\b"
)
_RESET: Final = re.compile(r"(anthropic-ratelimit(?:-[a-z0-9]+)*|x-ratelimit)-reset")
_MILLISECONDS: Final = 1e11  # since the epoch; no such number of seconds is near
_SECONDS: Final = 1e9  # since the epoch; a smaller number counts from now


def find_wait_seconds(headers: Mapping[str, str], said: str) -> float | None:
    """Return how long the server asks to wait; `None` if not at all, or for over a month.

    Args:
        headers: of the response, by names in lower case. The server's own clock counts.
        said: its message.
    """
    now = _http_date(headers.get("date", "")) or time.time()
    moments = (
        _retry_after(headers, now),
        _regained(said),
        max(_resets(headers, now), default=None),
    )
    moment = next((one for one in moments if one is not None), None)
    if moment is None:
        return None
    seconds = max(0.0, moment - now)
    return seconds if seconds <= LONGEST_SECONDS else None


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    asked = headers.get("retry-after", "")
    with suppress(ValueError):
        return now + max(0.0, float(headers.get("retry-after-ms", "")) / 1000)
    with suppress(ValueError):
        return now + max(0.0, float(asked))
    return _http_date(asked)


def _regained(said: str) -> float | None:
    found = _REGAINED.search(said)
    if found is None:
        return None
    with suppress(ValueError):
        day, minute, second = found.groups(default="")
        return datetime.fromisoformat(f"{day}T{minute}{second}+00:00").timestamp()
    return None


def _resets(headers: Mapping[str, str], now: float) -> Iterator[float]:
    """Yield when each exhausted limit is reset."""
    for name, value in headers.items():
        found = _RESET.fullmatch(name)
        if found is None:
            continue
        left, status = (headers.get(f"{found[1]}-{end}", "") for end in ("remaining", "status"))
        if left.strip() == "0" or status.strip() == "rejected":
            moment = _moment(value.strip(), now)
            if moment is not None:
                yield moment


def _moment(value: str, now: float) -> float | None:
    with suppress(ValueError):
        number = float(value)
        if number >= _MILLISECONDS:
            return number / 1000
        return number if number >= _SECONDS else now + number
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _http_date(value: str) -> float | None:
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return parsedate_to_datetime(value).timestamp()
    return None


# Worth another try besides all of 500 and above, some of which only a proxy sends.
TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429})
REFUSED_STATUSES: Final = frozenset({429, 529})  # too many calls, of this key or of all keys
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
_LEAST_LIMIT: Final = 1000  # tokens; a lower figure is not a limit of tokens


def as_model_error(
    error: Exception, *, model: str, url: str, name: str, mask: Callable[[str], str] = str
) -> ModelError:
    """Turn an exception of the SDK into a `ModelError`; an unknown one counts as transient.

    Args:
        error: the exception.
        model: the name of the model.
        url: of its server.
        name: of the teammate that asked; empty for a subagent.
        mask: takes secrets out of the server's message, which may repeat the key.
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
    """Return the error for a request that was refused for its content, or only temporarily."""
    status, said = refusal.status, refusal.said
    if status in (_OK, *TRANSIENT_STATUSES) or status >= _SERVER_ERROR:
        return _passing(f"{url} answered {status}: {said}", refusal)
    if status == _TOO_LARGE or _TOO_LONG.search(said):
        return TooLongError(f"the conversation is too long for {model} ({said})", _limit(said))
    sentence = _sentence(status, said, model=model, url=url, name=name)
    refused = _find_message(said, sentence) if status in _BAD_REQUESTS else None
    command = RESTART if status == HTTPStatus.NOT_FOUND else ""
    return refused or UnusableError(sentence, command=command)


def _find_message(said: str, sentence: str) -> RefusedMessageError | None:
    """Return the error with the message that the server refuses, if it names one."""
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

    It cannot have if the server sent a status instead, or was never connected.
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
    """Return the `error` of a body as the API has it; empty if the body has none."""
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
    """The token limit of a model, if its server named it."""
    found = _LIMIT.search(said)
    limit = int(found[1]) if found else 0
    return limit if limit >= _LEAST_LIMIT else None


def _sentence(status: int, said: str, *, model: str, url: str, name: str) -> str:
    mend = f"send mail to try again, or start over with {respawn_command(name, '--fresh')}"
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
    # header is not repeated: it may hold the key.
    cause = error.__cause__
    told = "" if cause is None or "header" in str(cause) else str(cause)
    return _short(mask(told)) or _short(mask(str(error))) or type(error).__name__


def _short(text: str) -> str:
    shown = "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text)
    line = " ".join(shown.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"
