"""The meaning of a failure of a model's server, and the advice to its reader."""

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
    """An SDK error for a status, with the attributes that the code reads."""

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
    """Remove all proxies from the environment."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def judged(error: Exception, url: str = URL, name: str = "ann") -> ModelError:
    return as_model_error(error, model="claude-x", url=url, name=name)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 520, 529])
def test_a_temporary_error_is_tried_again(status: int) -> None:
    error = judged(Refused(status, "Overloaded", kind="invalid_request_error"))
    assert isinstance(error, TransientError)
    assert str(error) == f"{URL} answered {status}: Overloaded"


@pytest.mark.parametrize("kind", ["", "api_error", "overloaded_error", "rate_limit_error"])
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_an_error_that_a_person_must_correct_is_not_tried_again(status: int, kind: str) -> None:
    """Servers that imitate the API use arbitrary error types, so the status counts."""
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
def test_within_a_stream_the_type_of_an_error_decides(kind: str, wanted: type[ModelError]) -> None:
    """The status was 200 before the error."""
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
def test_each_refusal_names_its_remedy(status: int, said: str, words: list[str]) -> None:
    sentence = str(judged(Refused(status, said)))
    assert [word for word in words if word not in sentence] == []
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("status", "command"),
    [(400, "`teamctl chat --fresh`"), (404, "`teamctl chat --model MODEL`")],
)
def test_the_advice_about_a_lead_names_the_chat(status: int, command: str) -> None:
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
def test_a_prompt_that_is_too_long_is_recognized_with_its_limit(
    status: int, said: str, limit: int | None
) -> None:
    """It is the only refusal that the teammate itself can resolve."""
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
def test_other_refusals_are_not_taken_for_a_prompt_that_is_too_long(said: str) -> None:
    """A summary would not help, and the conversation would be lost for it."""
    assert type(judged(Refused(400, said))) is UnusableError


@pytest.mark.parametrize(
    ("status", "said", "message", "block"),
    [
        (400, "messages.0: text content blocks must be non-empty", 0, None),
        (400, "messages.3.content.12.tool_use.id: String should match pattern", 3, 12),
        (400, "Invalid value for messages[7].content[2]", 7, 2),
        (422, "messages.1.role: Input should be 'user' or 'assistant'", 1, None),
        (400, "messages.2.content.0: 'insufficient funds' is not a block", 2, 0),
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
def test_a_base_url_with_v1_is_distinguished_from_an_unknown_model(url: str) -> None:
    sentence = str(judged(Refused(404, "Not found"), url))
    assert "leave /v1 out" in sentence
    assert "claude-x" not in sentence


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_wait_of_more_than_a_minute_becomes_a_pause(status: int) -> None:
    """It pauses the refused teammate and does not delay the calls of all others."""
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
def test_an_account_without_credit_is_recognized_by_any_status(
    status: int, kind: str, said: str
) -> None:
    """Both another try within minutes and giving up forever would do harm."""
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
def test_a_rate_limit_is_not_taken_for_an_account_without_credit(said: str) -> None:
    assert type(judged(Refused(429, said, kind="rate_limit_error"))) is RefusedError


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no", "code": "insufficient_quota"}},
        {"error": {"message": "no", "details": {"error_code": "enforced_spend_limit_reached"}}},
    ],
)
def test_an_error_code_is_treated_like_an_error_type(body: Any) -> None:
    assert type(judged(Refused(429, body=body))) is LaterError


def test_a_refusal_in_another_format_is_attributed_to_a_proxy_and_not_to_the_key() -> None:
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


def test_the_time_from_the_server_is_kept_with_the_refusal() -> None:
    error = judged(Refused(401, retry_after="90"))
    assert isinstance(error, KeyRefusedError)
    assert error.again_in_seconds == 90


def test_an_error_of_ours_that_the_sdk_wrapped_is_kept() -> None:
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
def test_an_unknown_error_is_tried_again(error: Exception, words: str) -> None:
    """A stream can fail in more ways than are listed."""
    found = judged(error)
    assert isinstance(found, TransientError)
    assert str(found) == f"no whole reply from {URL}: {words}"


def test_the_cause_is_shown_if_the_sdk_gives_none() -> None:
    error = ConnectionError("Connection error.")
    error.__cause__ = OSError("All connection attempts failed")
    assert str(judged(error)).endswith(": All connection attempts failed")


def test_a_header_is_not_repeated() -> None:
    """A header that cannot be sent may contain the key, and this line becomes mail."""
    error = ConnectionError("Connection error.")
    error.__cause__ = ValueError("Illegal header value b'Bearer sk-secret '")
    assert "secret" not in str(judged(error))


@pytest.mark.parametrize("body", ["<html>\n<h1>502</h1>", None, [], {"error": "busy"}])
def test_a_body_in_another_format_does_not_crash(body: Any) -> None:
    refused = Refused(502, "<html>\n<h1>Bad Gateway</h1>")
    refused.body = body
    assert str(judged(refused)) == f"{URL} answered 502: <html> <h1>Bad Gateway</h1>"


def test_a_long_message_is_cut() -> None:
    assert len(str(judged(Refused(500, "x" * 100_000)))) < 400


@pytest.mark.parametrize("error", [TransientError("a"), UnusableError("b")])
def test_a_model_error_is_returned_unchanged(error: ModelError) -> None:
    assert judged(error) is error


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("before", [0, 295])
def test_a_key_that_the_server_repeats_is_masked(status: int, before: int) -> None:
    """So is a part of it at the cut of a long sentence."""
    refused = Refused(status, f"{'x' * before} sk-12345 is not known")
    error = as_model_error(refused, model="m", url=URL, name="ann", mask=Mask("sk-12345").text)
    assert "sk" not in str(error)
