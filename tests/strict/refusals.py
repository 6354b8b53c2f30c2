"""Refusals that the request did not cause, in the words of the servers that send them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.strict.exchange import Exchange
from tests.strict.wire import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error of the API or of a gateway.

    Attributes:
        status: the HTTP status.
        error: the `error` of the body.
        headers: the response headers.
    """

    status: int
    error: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    def strike(self, wire: Wire, exchange: Exchange) -> None:  # noqa: ARG002  # as all do
        body = {"type": "error", "error": self.error, "request_id": wire.request_id}
        wire.json(self.status, body, self.headers)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a proxy or of a hotel's network.

    Attributes:
        status: the HTTP status.
        headers: the response headers.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)

    def strike(self, wire: Wire, exchange: Exchange) -> None:  # noqa: ARG002  # as all do
        page = b"<html><body><h1>Access denied</h1></body></html>"
        wire.reply(self.status, page, {"content-type": "text/html", **self.headers})


def refusal(status: int, kind: str, message: str, **more: Any) -> Refusal:
    """Return a refusal with an error type and a message; `more` adds further keys to the error."""
    return Refusal(status=status, error={"type": kind, "message": message, **more})


def usage_limit(until: str, *, workspace: bool = False) -> Refusal:
    """Return the refusal for a spend limit that a person has set.

    Args:
        until: the day on which access is regained, such as `2026-12-01`.
        workspace: whether the limit belongs to the workspace.
    """
    whose = "workspace API" if workspace else "API"
    said = f"You have reached your specified {whose} usage limits. You will regain access on"
    return refusal(400, "invalid_request_error", f"{said} {until} at 00:00 UTC.")


def spend_cap(until: str) -> Refusal:
    """Return the refusal for the usage tier's cap, which has no `retry-after` header."""
    said = (
        "You have reached your API usage limits: your organization has crossed its monthly API "
        "usage threshold, set based on your organization's API tier. You will regain access on"
    )
    details = {"error_code": "enforced_spend_limit_reached"}
    return refusal(429, "rate_limit_error", f"{said} {until} at 00:00 UTC.", details=details)


CREDIT = refusal(
    400,
    "invalid_request_error",
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to "
    "upgrade or purchase credits.",
)
REVOKED_KEY = refusal(401, "authentication_error", "This API key has been disabled.")
# From LiteLLM, whose older versions call it an `auth_error`.
BUDGET = refusal(
    400, "auth_error", "Budget has been exceeded! Current cost: 26.075, Max budget: 0.25"
)


def daily_requests(reset: float) -> Refusal:
    """Return OpenRouter's refusal at the daily limit of free requests; headers are in the body.

    Args:
        reset: when the limit resets, in seconds since the epoch.
    """
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(reset * 1000))}
    said = "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free requests"
    error = {"message": said, "code": 429, "metadata": {"headers": headers}}
    return Refusal(status=429, error=error)


def subscription_limit(reset: float) -> Refusal:
    """Return the refusal at the five-hour limit of a subscription.

    Args:
        reset: when the limit resets, in seconds since the epoch.
    """
    said = "This request would exceed your account's rate limit. Please try again later."
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": str(int(reset)),
    }
    error = {"type": "rate_limit_error", "message": said}
    return Refusal(status=429, error=error, headers=headers)
