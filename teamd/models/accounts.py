"""Refusals that have nothing to do with the request: an account, a key, a proxy, a certificate.

Each sentence names the thing to change. Most of these end without a person's message to the
teammate, so each has another try.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from teamd.model_server.connection import certificate_remedy, find_proxy, is_untrusted
from teamd.models import KeyRefusedError, LaterError

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
_PROXY_LOGIN: Final = re.compile(r"\b407\b|proxy authentication", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRefusal:
    """An answer with an error.

    Attributes:
        status: of HTTP.
        kinds: the words by which the body names the error; none where it is not the API's.
        said: its message, masked and short.
        wait_seconds: how long it asks to wait, if it does.
    """

    status: int
    kinds: AbstractSet[str]
    said: str
    wait_seconds: float | None


def find_account_error(refusal: ServerRefusal, url: str) -> LaterError | None:
    """Return the error for a refusal of the account, the key or a proxy; `None` for another one."""
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
        return KeyRefusedError(f"{wrong}; {remedy}", wait, about="key")
    return None


def find_connection_error(said: str, url: str) -> LaterError | None:
    """Return the error for a connection that fails until something is set up; else `None`."""
    if is_untrusted(said):
        wrong = f"the certificate of {url} is not trusted ({said})"
        return LaterError(f"{wrong}; {certificate_remedy()}", about="certificate")
    if find_proxy(url) and _PROXY_LOGIN.search(said):
        return _proxy_error(f"the proxy before {url} wants a login ({said})", url, None)
    return None


def redirect_error(url: str, target: str) -> LaterError:
    """Return the error for a server that sends its callers to another one.

    Args:
        url: of the server.
        target: the origin of the other.
    """
    wrong = f"{url} redirects to {target}, which does not get the key"
    remedy = "give the address that answers by itself in [model] base_url or ANTHROPIC_BASE_URL"
    return LaterError(f"{wrong}; {remedy}", about="redirect")


def _is_spent(refusal: ServerRefusal) -> bool:
    paid_first = refusal.status == HTTPStatus.PAYMENT_REQUIRED
    named = not _SPENT_KINDS.isdisjoint(refusal.kinds)
    return paid_first or named or _SPENT.search(refusal.said) is not None


def _proxy_error(wrong: str, url: str, wait_seconds: float | None) -> LaterError:
    proxy = find_proxy(url)
    remedy = "check whether a proxy or firewall is between, and HTTPS_PROXY"
    if proxy is not None:
        remedy = f"check the proxy: {proxy.name} is {proxy.value}"
    return LaterError(f"{wrong}; {remedy}", wait_seconds, about="proxy")
