"""What a failure of a model's server means, and what its reader should do."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from teamd.masking import Mask
from teamd.models import (
    KeyRefusedError,
    LaterError,
    ModelError,
    RefusedError,
    RefusedMessageError,
    TooLongError,
    TransientError,
    UnusableError,
)
from teamd.models.errors import as_model_error, may_have_begun

URL = "http://localhost:8080/"


class Refused(Exception):
    """What the SDK raises for a status, as far as it is looked at."""

    def __init__(
        self,
        status: int,
        said: str = "so it is",
        *,
        kind: str = "",
        body: Any = None,
        retry_after: str | None = None,
    ) -> None:
        super().__init__(said)
        self.status_code = status
        error = {"type": kind, "message": said}
        self.body = {"type": "error", "error": error} if body is None else body
        headers = {} if retry_after is None else {"retry-after": retry_after}
        self.response = SimpleNamespace(headers=headers)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """None but the test's own."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def judged(error: Exception, url: str = URL, name: str = "ann") -> ModelError:
    return as_model_error(error, model="claude-x", url=url, name=name)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 520, 529])
def test_what_passes_is_tried_again(status: int) -> None:
    error = judged(Refused(status, "Overloaded", kind="invalid_request_error"))
    assert isinstance(error, TransientError)
    assert str(error) == f"{URL} answered {status}: Overloaded"


@pytest.mark.parametrize("kind", ["", "api_error", "overloaded_error", "rate_limit_error"])
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_what_a_person_must_mend_is_not_tried_again(status: int, kind: str) -> None:
    """Servers that imitate the API call every error what they like; the status counts."""
    assert isinstance(judged(Refused(status, kind=kind)), UnusableError)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("overloaded_error", RefusedError),
        ("rate_limit_error", RefusedError),
        ("api_error", TransientError),
        ("timeout_error", TransientError),
        ("a_type_of_the_future", TransientError),
        ("invalid_request_error", UnusableError),
        ("authentication_error", KeyRefusedError),
        ("permission_error", KeyRefusedError),
        ("billing_error", LaterError),
        ("not_found_error", UnusableError),
        ("request_too_large", TooLongError),
    ],
)
def test_within_a_stream_the_type_counts(kind: str, wanted: type[ModelError]) -> None:
    """The status was 200 long before the error."""
    assert type(judged(Refused(200, kind=kind))) is wanted


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (401, "invalid key", [URL, "401", "invalid key", "ANTHROPIC_API_KEY", "key_command"]),
        (403, "not yours", ["403", "ANTHROPIC_API_KEY", "teamd restart"]),
        (402, "no credit", ["no credit", "add credit", "raise its limit"]),
        (402, "fewer max_tokens, please", ["lower [model] max_tokens in team.toml"]),
        (407, "Proxy Authentication Required", ["proxy", "HTTPS_PROXY"]),
        (
            404,
            "model: claude-x",
            ["no model 'claude-x'", "[model] name", "or take `teamctl spawn ann … --model MODEL`"],
        ),
        (413, "too large", ["the conversation is too long", "claude-x", "too large"]),
        (400, "prompt is too long: 9 > 8", ["the conversation is too long", "9 > 8"]),
        (
            400,
            "messages.0: no",
            ["refused the request (400: messages.0: no)", "with `teamctl spawn ann … --fresh`"],
        ),
    ],
)
def test_each_refusal_says_what_to_mend(status: int, said: str, words: list[str]) -> None:
    sentence = str(judged(Refused(status, said)))
    assert [word for word in words if word not in sentence] == []
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("status", "command"),
    [(400, "`teamctl chat --fresh`"), (404, "`teamctl chat --model MODEL`")],
)
def test_who_leads_cannot_be_spawned_and_is_talked_to(status: int, command: str) -> None:
    assert str(judged(Refused(status), name="lead")).endswith(command)


@pytest.mark.parametrize(
    ("status", "said", "limit"),
    [
        (400, "prompt is too long: 215001 tokens > 200000 maximum", 200_000),
        (
            400,
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease",
            200_000,
        ),
        (400, "the request exceeds the available context size, try increasing it", None),
        (400, "This model's maximum context length is 4096 tokens. However, you asked", 4096),
        (400, "prompt is too long: 9 > 8", None),
        (413, "Request exceeds the maximum size", None),
    ],
)
def test_what_is_too_long_for_the_model_is_told_apart_with_its_limit(
    status: int, said: str, limit: int | None
) -> None:
    """It is the one refusal that the teammate itself can mend."""
    error = judged(Refused(status, said))
    assert isinstance(error, TooLongError)
    assert error.limit_tokens == limit


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for x",
        "tools.0.custom.description: String should have at most 1024 characters",
    ],
)
def test_another_refusal_is_none_of_that(said: str) -> None:
    """A summary would be made in vain, and what was said be lost for it."""
    assert type(judged(Refused(400, said))) is UnusableError


@pytest.mark.parametrize(
    ("status", "said", "message", "block"),
    [
        (400, "messages.0: text content blocks must be non-empty", 0, None),
        (400, "messages.3.content.12.tool_use.id: String should match pattern", 3, 12),
        (400, "Invalid value for messages[7].content[2]", 7, 2),
        (422, "messages.1.role: Input should be 'user' or 'assistant'", 1, None),
    ],
)
def test_a_refused_message_is_named(
    status: int, said: str, message: int, block: int | None
) -> None:
    error = judged(Refused(status, said))
    assert isinstance(error, RefusedMessageError)
    assert (error.message, error.block, error.thinking) == (message, block, False)
    assert error.system == ("role" in said)


@pytest.mark.parametrize("url", ["http://localhost:11434/v1", "http://localhost:11434/v1/"])
def test_a_base_url_with_v1_is_told_apart_from_an_unknown_model(url: str) -> None:
    sentence = str(judged(Refused(404, "Not found"), url))
    assert "leave /v1 out" in sentence
    assert "claude-x" not in sentence


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("inf", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read(header: str | None, seconds: float | None) -> None:
    error = judged(Refused(429, retry_after=header))
    assert isinstance(error, TransientError)
    assert error.retry_after_seconds == seconds


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_wait_of_more_than_a_minute_is_not_for_another_try(status: int) -> None:
    """It pauses the one that was refused, and does not hold the calls of all others."""
    error = judged(Refused(status, retry_after="61"))
    assert type(error) is LaterError
    assert error.again_in_seconds == 61
    assert isinstance(judged(Refused(status, retry_after="60")), TransientError)


SPENT = [
    (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    (400, "invalid_request_error", "You have reached your specified API usage limits."),
    (400, "invalid_request_error", "You have reached your specified workspace API usage limits."),
    (403, "billing_error", "so it is"),
    (429, "rate_limit_error", "You have reached your API usage limits: your organization has …"),
    (429, "insufficient_quota", "so it is"),
    (429, "budget_exceeded", "so it is"),
    (400, "auth_error", "ExceededBudget: End User=x over budget. Spend=0.2, Budget=0.1"),
    (402, "unknown_error", "Insufficient Balance"),
    (429, "1113", "Insufficient balance or no resource package. Please recharge."),
    (429, "1308", "Usage limit reached for 5 hour."),
    (500, "api_error", "insufficient_balance"),
    (200, "billing_error", "so it is"),
]


@pytest.mark.parametrize(("status", "kind", "said"), SPENT)
def test_an_account_without_credit_is_told_apart_whatever_the_status(
    status: int, kind: str, said: str
) -> None:
    """Tried again within minutes, or never, it does harm either way."""
    error = judged(Refused(status, said, kind=kind))
    assert type(error) is LaterError
    assert error.about == "account"
    assert "refuses the account" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        "This request would exceed your organization's rate limit of 50 requests per minute",
        "Number of request tokens has exceeded your per-minute rate limit",
        "Too many concurrent requests",
    ],
)
def test_a_limit_of_a_minute_is_not_an_account_without_credit(said: str) -> None:
    assert type(judged(Refused(429, said, kind="rate_limit_error"))) is RefusedError


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no", "code": "insufficient_quota"}},
        {"error": {"message": "no", "details": {"error_code": "enforced_spend_limit_reached"}}},
    ],
)
def test_a_code_tells_as_well_as_a_type(body: Any) -> None:
    assert type(judged(Refused(429, body=body))) is LaterError


def test_a_refusal_that_is_not_the_api_s_is_a_proxy_s_and_no_fault_of_the_key() -> None:
    refused = Refused(403, "<html><h1>Blocked by policy</h1>", body="<html>")
    error = judged(refused)
    assert type(error) is LaterError
    assert error.about == "proxy"
    assert "ANTHROPIC_API_KEY" not in str(error)


def test_the_proxy_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:pass-word@proxy.example:3128")
    said = str(judged(Refused(407, "Proxy Authentication Required"), "http://model.example/"))
    assert "http_proxy is http://proxy.example:3128" in said
    assert "pass-word" not in said


def test_the_time_that_the_server_gives_goes_with_the_refusal() -> None:
    error = judged(Refused(401, retry_after="90"))
    assert isinstance(error, KeyRefusedError)
    assert error.again_in_seconds == 90


def test_an_error_of_ours_that_the_sdk_wrapped_stays() -> None:
    wrapped = ConnectionError("Connection error.")
    wrapped.__cause__ = LaterError("it redirects")
    assert judged(wrapped) is wrapped.__cause__
    assert not may_have_begun(wrapped)


def test_a_request_was_not_sent_if_each_attempt_to_connect_failed() -> None:
    wrapped = ConnectionError("Connection error.")
    wrapped.__cause__ = ExceptionGroup("connecting", [OverflowError("port must be 0-65535")])
    assert not may_have_begun(wrapped)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no JSON"), "no JSON"),
        (AssertionError(), "AssertionError"),
        (OSError(104, "reset"), "[Errno 104] reset"),
    ],
)
def test_what_is_not_known_is_tried_again(error: Exception, words: str) -> None:
    """A stream breaks in more ways than anybody has listed."""
    found = judged(error)
    assert isinstance(found, TransientError)
    assert str(found) == f"no whole reply from {URL}: {words}"


def test_the_cause_is_told_where_the_sdk_tells_none() -> None:
    error = ConnectionError("Connection error.")
    error.__cause__ = OSError("All connection attempts failed")
    assert str(judged(error)).endswith(": All connection attempts failed")


def test_a_header_is_not_repeated() -> None:
    """The one that cannot be sent may be the one with the key, and this line becomes mail."""
    error = ConnectionError("Connection error.")
    error.__cause__ = ValueError("Illegal header value b'Bearer sk-secret '")
    assert "secret" not in str(judged(error))


@pytest.mark.parametrize("body", ["<html>\n<h1>502</h1>", None, [], {"error": "busy"}])
def test_a_body_that_is_none_of_the_api_is_no_crash(body: Any) -> None:
    refused = Refused(502, "<html>\n<h1>Bad Gateway</h1>")
    refused.body = body
    assert str(judged(refused)) == f"{URL} answered 502: <html> <h1>Bad Gateway</h1>"


def test_a_long_message_is_cut() -> None:
    assert len(str(judged(Refused(500, "x" * 100_000)))) < 400


@pytest.mark.parametrize("error", [TransientError("a"), UnusableError("b")])
def test_what_is_judged_already_stays(error: ModelError) -> None:
    assert judged(error) is error


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("before", [0, 295])
def test_a_key_that_the_server_repeats_is_not_told(status: int, before: int) -> None:
    """Nor the part of it that is left where a long sentence is cut."""
    refused = Refused(status, f"{'x' * before} sk-12345 is not known")
    error = as_model_error(refused, model="m", url=URL, name="ann", mask=Mask("sk-12345").text)
    assert "sk" not in str(error)
