"""The errors of `Claude` for failing servers, keys and streams."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.budget.ledger import Ledger
from teamd.models import Ask, Model, ModelError, Reply, RetryPolicy, TransientError, UnusableError
from tests.strict.faults import (
    MISSHAPEN,
    Cut,
    Endless,
    ErrorEvent,
    Fault,
    Malformed,
    Pings,
    Reset,
    Stall,
    Status,
    Trickle,
)
from tests.strict.replies import say, tool_calls, use
from tests.strict.server import StrictServer, by_name
from tests.unit.life import calls_to
from tests.waiting import until

if TYPE_CHECKING:  # loading the SDK takes longer than importing all test files
    from teamd.models.claude import Claude

ASK = Ask(
    model="claude-sonnet-5-5",
    system="You are 'alice', role: tester.",
    tools=[{"name": "bash", "description": "runs", "input_schema": {"type": "object"}}],
    messages=[{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    max_tokens=1000,
)
HERE = say("Here.", calls=[("bash", {"command": "ls"})])
HALF = use(("bash", {"command": "rm -rf /tmp/x"}))
PASSING: list[Fault] = [
    *(Status(status) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
    Status(429, retry_after=0.001),
    Status(503, retry_after="Wed, 21 Oct 2026 07:28:00 GMT"),
    Status(502, html=True),
    Reset(),
    *(kind(after=after) for kind in (Reset, Cut, Malformed, ErrorEvent) for after in (0, 1, 4)),
    *(kind(after=6, answer=HALF) for kind in (Reset, Cut, Malformed, ErrorEvent)),
    *MISSHAPEN,
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> None:
    """Use only the test's key, without the environment and profiles of the person who runs it."""
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CREDENTIALS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    home = str(tmp_path_factory.mktemp("home"))
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("XDG_CONFIG_HOME", home)


def claude(url: str, **more: Any) -> Claude:
    given = {"key_command": None, "headers": {}, "timeout_seconds": 30.0, "cache": True, **more}
    # The SDK takes longer to import than all test files together, so it is loaded in the test.
    made: Claude = resolve_name("teamd.models.claude:Claude")(base_url=url, **given)
    return made


async def reply_of(
    claude: Claude, ask: Ask = ASK, wrap: Callable[[Claude], Model] = lambda model: model
) -> Reply:
    try:
        return await wrap(claude).reply(ask)
    finally:
        await claude.close()


def run(work: Coroutine[Any, Any, Reply]) -> Reply:
    return asyncio.run(work)


def told(url: str, ask: Ask = ASK, **more: Any) -> str:
    """Return the one-line error for a person who must repair something."""
    with pytest.raises(UnusableError) as caught:
        run(reply_of(claude(url, **more), ask))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_wrong_key_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-wrong")
    with StrictServer(by_name({})) as server:
        sentence = told(server.url)
    for words in (server.url, "refused the key", "ANTHROPIC_API_KEY", "[model] key_command"):
        assert words in sentence
    assert "sk-wrong" not in sentence


def test_a_missing_key_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with StrictServer(by_name({})) as server:
        sentence = told(server.url)
        assert (server.requests, server.refused) == ([], [])
    assert "no key for the model: set ANTHROPIC_API_KEY" in sentence


@pytest.mark.parametrize("key", ["test-key\n", "test-key\r", "test key", "\x1b[A"])
def test_a_key_that_does_not_fit_into_a_header_is_reported(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """An env file may have Windows line ends.

    "Connection error." after ten tries is no help.
    """
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with StrictServer(by_name({})) as server:
        assert "the key for the model cannot be one" in told(server.url)


def test_an_unknown_model_is_reported() -> None:
    ask = Ask(model="claude-nope", system="x", tools=[], messages=ASK.messages, max_tokens=10)
    with StrictServer(by_name({})) as server:
        sentence = told(server.url, ask)
    assert "knows no model 'claude-nope'" in sentence


def test_a_base_url_with_v1_is_reported() -> None:
    with StrictServer(by_name({})) as server:
        assert "leave /v1 out of ANTHROPIC_BASE_URL" in told(f"{server.url}/v1")


def test_a_password_in_the_base_url_is_not_shown() -> None:
    """The sentence is sent as mail and is in the roster."""
    with StrictServer(by_name({}), keys=("another",)) as server:
        sentence = told(server.url.replace("://", "://me:secret@"))
    assert "secret" not in sentence


def test_a_prompt_that_is_too_long_is_reported() -> None:
    with StrictServer(by_name({}), context_tokens=10) as server:
        assert "the conversation is too long for claude-sonnet-5-5" in told(server.url)


@pytest.mark.parametrize(
    ("command", "words"),
    [("false", "exited with 1"), ("true", "printed nothing"), ("printf 'a\\nb'", "cannot be one")],
)
def test_a_key_command_that_prints_no_key_is_reported(command: str, words: str) -> None:
    with StrictServer(by_name({})) as server:
        assert words in told(server.url, key_command=command)


def test_a_key_command_takes_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-wrong")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "sk-wrong-too")
    with StrictServer(by_name({"alice": [HERE]})) as server:
        assert run(reply_of(claude(server.url, key_command="echo test-key"))).text == "Here."


def test_a_corrected_key_is_read_again(tmp_path: Path) -> None:
    """A key that a command prints must not require a restart."""
    key = tmp_path / "key"
    key.write_text("sk-wrong")

    async def scenario(url: str) -> Reply:
        model = claude(url, key_command=f"cat {shlex.quote(str(key))}")
        with pytest.raises(UnusableError):
            await model.reply(ASK)
        key.write_text("test-key")
        return await reply_of(model)

    with StrictServer(by_name({"alice": [HERE]})) as server:
        assert run(scenario(server.url)).text == "Here."


def test_cancelling_ends_a_key_command_that_hangs(tmp_path: Path) -> None:
    """`pass` may wait for a passphrase while teamd is stopped."""
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(600)"

    async def scenario() -> None:
        command = shlex.join([sys.executable, "-u", "-c", code])
        asking = asyncio.create_task(reply_of(claude("http://127.0.0.1:9", key_command=command)))
        await until(lambda: pid.exists() and pid.read_text().endswith(" "))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asking, timeout=20)

    asyncio.run(scenario())
    assert not Path("/proc", pid.read_text().strip()).exists()


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_a_temporary_failure_is_an_error_worth_retrying(fault: Fault) -> None:
    with StrictServer(by_name({"alice": [HERE]})) as server:
        server.faults.push(fault)
        with pytest.raises(TransientError) as caught:
            run(reply_of(claude(server.url)))
    assert "\n" not in str(caught.value)


def test_the_server_s_retry_after_is_passed_on() -> None:
    with StrictServer(by_name({})) as server:
        server.faults.push(Status(429, retry_after=7))
        with pytest.raises(TransientError) as caught:
            run(reply_of(claude(server.url)))
    assert caught.value.retry_after_seconds == 7


@pytest.mark.parametrize("kind", ["invalid_request_error", "authentication_error"])
def test_a_refusal_within_a_stream_is_not_retried(kind: str) -> None:
    """Proxies answer 200 first, and then forward the answer of the service behind them."""
    with StrictServer(by_name({})) as server:
        server.faults.push(ErrorEvent(type=kind))
        told(server.url)


@pytest.mark.parametrize("after", [None, 4])
def test_a_silent_server_causes_a_timeout(after: int | None) -> None:
    with StrictServer(by_name({})) as server:
        server.faults.push(Stall(after=after))
        with pytest.raises(TransientError):
            run(reply_of(claude(server.url, timeout_seconds=0.2)))


@pytest.mark.parametrize("after", [0, 4])
def test_a_server_that_only_sends_pings_causes_a_timeout(after: int) -> None:
    """A connection that only stays alive would block a teammate for ever."""
    with StrictServer(by_name({})) as server:
        server.faults.push(Pings(after=after))
        with pytest.raises(TransientError, match="sent nothing but pings for"):
            run(reply_of(claude(server.url, timeout_seconds=0.2)))


@pytest.mark.parametrize("after", [None, 4])
def test_a_cancellation_does_not_wait_for_the_server(after: int | None) -> None:
    stall = Stall(after=after)

    async def scenario(url: str) -> None:
        asking = asyncio.create_task(reply_of(claude(url)))
        await until(stall.reached.is_set)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asking, timeout=20)

    with StrictServer(by_name({})) as server:
        server.faults.push(stall)
        asyncio.run(scenario(server.url))


def test_an_endless_reply_is_aborted() -> None:
    """A hostile server would fill the reader's memory or block it for ever."""
    with StrictServer(by_name({})) as server:
        server.faults.push(Endless())
        with pytest.raises(TransientError, match="sent more than 16777216 bytes as one reply"):
            run(reply_of(claude(server.url)))


def test_an_unreachable_server_is_retried_and_named() -> None:
    with StrictServer(by_name({})) as server:
        url = server.url
    with pytest.raises(TransientError, match="All connection attempts failed") as caught:
        run(reply_of(claude(url)))
    assert url in str(caught.value)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([*PASSING, Trickle()]), min_size=1, max_size=6))
def test_any_order_of_faults_ends_in_one_complete_reply(faults: list[Fault]) -> None:
    """It must not contain parts of a broken answer, least of all its tool calls.

    The server is overloaded between the faults, because two odd answers of a kind in a row are a
    pause.
    """
    policy = RetryPolicy(attempts=20, broken=20, first_seconds=0.001, longest_seconds=0.002)
    served = by_name({"alice": [HERE, say("One too many.")]})
    with StrictServer(served) as server, tempfile.TemporaryDirectory() as folder:
        server.faults.push(*(one for fault in faults for one in (fault, Status(529))))
        reasons: list[str] = []

        def retrying(model: Claude) -> Model:
            ledger = Ledger(Path(folder) / "ledger")
            tell = lambda error, *_: reasons.append(str(error))  # noqa: E731 -- one line
            return calls_to(model, ledger, policy=policy, tell=tell)

        reply = run(reply_of(claude(server.url), wrap=retrying))
        assert server.refused == []
        asked = len(server.requests)
    assert reply.text == "Here."
    assert [call["input"] for call in tool_calls(reply.content)] == [{"command": "ls"}]
    assert asked == len(reasons) + 1


@pytest.mark.parametrize(
    ("fault", "begun"),
    [
        (Status(429), False),
        (Status(529), False),
        (Status(500), False),
        (Reset(), True),
        *((kind(after=4), True) for kind in (Reset, Cut, Malformed, ErrorEvent)),
        *((kind(after=0), True) for kind in (Reset, Malformed)),
        *((kind(after=0), False) for kind in (Cut, ErrorEvent)),
    ],
    ids=str,
)  # fmt: skip
def test_a_failure_records_whether_the_server_may_charge_for_it(fault: Fault, begun: bool) -> None:
    """An error is free; an aborted reply was paid for and must count against the limits."""
    with StrictServer(by_name({"alice": (HERE,)})) as server:
        server.faults.push(fault)
        with pytest.raises(ModelError) as caught:
            run(reply_of(claude(server.url)))
    assert caught.value.begun is begun
