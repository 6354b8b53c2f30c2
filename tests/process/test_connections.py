"""Connections to the model's server: proxies, certificates and redirects."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from teamctl.hosts.certificates import issue_server, new_authority
from teamd.models import Ask, LaterError, ModelError, Reply, TransientError
from tests.strict.refusals import Page
from tests.strict.replies import say
from tests.strict.server import StrictServer

ASK = Ask(
    model="claude-sonnet-5-5",
    system="You are 'alice', role: tester.",
    tools=[],
    messages=[{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    max_tokens=100,
)
SECRET_HEADER = "X-Gateway-Key"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set a key and remove all proxies and certificates."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "SSL_CERT_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    resolve_name("teamd.models.claude:shared_tls").cache_clear()


async def ask(url: str) -> Reply:
    given = {"key_command": None, "headers": {SECRET_HEADER: "gateway-secret"}}
    make: Any = resolve_name("teamd.models.claude:Claude")
    claude = make(base_url=url, timeout_seconds=30.0, cache=True, **given)
    try:
        reply: Reply = await claude.reply(ASK)
    finally:
        await claude.close()
    return reply


def failure_of(url: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        asyncio.run(ask(url))
    assert "\n" not in str(caught.value)
    assert "test-key" not in str(caught.value)
    return caught.value


@asynccontextmanager
async def socks_proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """Run a SOCKS5 proxy without a login (RFC 1928).

    Yield its address and the requested targets.
    """
    wanted: list[str] = []
    ended = asyncio.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\x05\x00")
        *_, kind = await reader.readexactly(4)
        length = 4 if kind == 1 else (await reader.readexactly(1))[0]
        host = await reader.readexactly(length)
        name = socket.inet_ntoa(host) if kind == 1 else host.decode()
        port = int.from_bytes(await reader.readexactly(2))
        wanted.append(f"{name}:{port}")
        there, back = await asyncio.open_connection(name, port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        with suppress(ConnectionError):
            await asyncio.gather(pump(reader, back), pump(there, writer))
        await asyncio.gather(back.wait_closed(), writer.wait_closed(), return_exceptions=True)
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}", wanted
        await ended.wait()


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_a_socks_proxy_from_the_environment_is_used(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(url: str) -> list[str]:
        async with socks_proxy() as (address, wanted):
            monkeypatch.setenv("ALL_PROXY", f"{scheme}://{address}")
            assert (await ask(url)).text == "Here."
            return wanted

    with StrictServer(lambda _: say("Here.")) as server:
        assert asyncio.run(scenario(server.url)) == [server.url.removeprefix("http://")]


def test_an_unreachable_proxy_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "http://me:pass-word@127.0.0.1:9")
    error = failure_of("http://model.example")
    assert isinstance(error, TransientError)
    assert "through the proxy http://127.0.0.1:9 of all_proxy" in str(error)
    assert "pass-word" not in str(error)
    assert not error.begun


def test_a_proxy_that_requires_a_login_is_reported_and_nothing_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def scenario() -> tuple[str, ModelError]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            monkeypatch.setenv("HTTPS_PROXY", f"http://{host}:{port}")
            with pytest.raises(ModelError) as caught:
                await ask("https://model.example")
            return f"HTTPS_PROXY is http://{host}:{port}", caught.value

    named, error = asyncio.run(scenario())
    assert isinstance(error, LaterError)
    assert "wants a login" in str(error)
    assert named in str(error)
    assert not error.begun


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ALL_PROXY", "socks4://localhost:1080", "ALL_PROXY names a socks4:// proxy"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE names /nowhere/ca.pem"),
    ],
)
def test_an_unusable_environment_variable_pauses_the_teammate_and_is_named(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to end the process of each teammate again and again."""
    monkeypatch.setenv(variable, value)
    error = failure_of("https://model.example")
    assert isinstance(error, LaterError)
    assert words in str(error)
    assert not error.begun


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a company's certificate, and the TLS context of a server with it."""
    folder = tmp_path_factory.mktemp("authority")
    ca = new_authority("company")
    pair = issue_server(ca, "model", ["127.0.0.1"])
    for name, data in (("ca", ca.cert), ("cert", pair.cert), ("key", pair.key)):
        (folder / name).write_bytes(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return folder / "ca", context


def secured(server: StrictServer, context: ssl.SSLContext) -> str:
    """Make a server use TLS before it starts; return its address."""
    listener = server._listener
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    return server.url.replace("http:", "https:")


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_company_s_certificate_is_trusted_if_a_variable_names_it(
    variable: str,
    authority: tuple[Path, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, context = authority
    monkeypatch.setenv(variable, str(file))
    server = StrictServer(lambda _: say("Here."))
    url = secured(server, context)
    with server:
        assert asyncio.run(ask(url)).text == "Here."


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        (None, "set SSL_CERT_FILE or REQUESTS_CA_BUNDLE to a file"),
        ("REQUESTS_CA_BUNDLE", "REQUESTS_CA_BUNDLE is {file}: add the missing certificate there"),
    ],
)
def test_an_untrusted_certificate_is_reported_with_the_variable(
    variable: str | None,
    words: str,
    authority: tuple[Path, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(new_authority("another").cert)
    if variable is not None:
        monkeypatch.setenv(variable, str(other))
    server = StrictServer(lambda _: say("Here."))
    url = secured(server, authority[1])
    with server:
        error = failure_of(url)
    assert isinstance(error, LaterError)
    assert f"the certificate of {url} is not trusted" in str(error)
    assert words.format(file=other) in str(error)
    assert not error.begun


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_server_is_refused_and_does_not_get_the_key(status: int) -> None:
    """The library only drops `Authorization`; it would send the conversation and other headers."""
    with StrictServer(lambda _: say("Stolen.")) as other, StrictServer(lambda _: say()) as server:
        server.faults.push(Page(status, {"location": f"{other.url}/v1/messages"}))
        error = failure_of(server.url)
        assert (other.requests, other.refused) == ([], [])
    assert isinstance(error, LaterError)
    assert f"{server.url}/ redirects to {other.url}/, which does not get the key" in str(error)
    assert "[model] base_url" in str(error)
    assert not error.begun


def test_a_redirect_within_the_server_is_followed() -> None:
    with StrictServer(lambda _: say("Here.")) as server:
        server.faults.push(Page(307, {"location": "/v1/messages"}))
        assert asyncio.run(ask(server.url)).text == "Here."
