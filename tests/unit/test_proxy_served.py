"""The proxy as a sandboxed command sees it: bytes in both directions, or a sentence."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from teamd.sandbox.proxy import HostProxy

HERE = "127.0.0.1"


class Site:
    """An outside server that returns its input in capitals once the input has ended."""

    port: int

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        said = await reader.read()
        self.heard.append(said)
        writer.write(said.upper())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    async with await asyncio.start_server(made.serve, HERE, 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


@asynccontextmanager
async def proxied(folder: Path, *hosts: str) -> AsyncIterator[tuple[HostProxy, str]]:
    proxy, path = HostProxy(hosts), str(folder / "s")
    failures: list[object] = []  # in Python 3.11 these include cancelled connections
    asyncio.get_running_loop().set_exception_handler(
        lambda _, what: failures.append(what.get("exception"))
    )
    async with await asyncio.start_unix_server(proxy._accept, path, limit=65_536):
        yield proxy, path
        proxy.close()
    assert [one for one in failures if not isinstance(one, asyncio.CancelledError)] == []


async def ask(path: str, *said: bytes) -> bytes:
    """Send these chunks to the proxy, and return the whole answer."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"".join(said))
    writer.write_eof()
    back = b""
    with suppress(ConnectionError):
        back = await reader.read()
    writer.close()
    return back


def test_a_tunnel_carries_bytes_both_ways_and_ends_with_either_side(tmp_path: Path) -> None:
    async def scenario() -> tuple[bytes, list[bytes]]:
        async with site() as far, proxied(tmp_path, f"{HERE}:{far.port}") as (_, path):
            begin = f"CONNECT {HERE}:{far.port} HTTP/1.1\r\nHost: x\r\n\r\n"
            return await ask(path, begin.encode(), b"hello"), far.heard

    back, heard = asyncio.run(scenario())
    assert heard == [b"hello"]
    assert back == b"HTTP/1.1 200 Connection established\r\n\r\nHELLO"


def test_a_plain_request_names_its_site_and_hides_the_proxy(tmp_path: Path) -> None:
    async def scenario() -> list[bytes]:
        async with site() as far, proxied(tmp_path, f"{HERE}:{far.port}") as (_, path):
            where = f"{HERE}:{far.port}"
            line = f"GET http://{where}/a?b=c#d HTTP/1.1\r\n"
            fields = "Host: evil.org\r\nProxy-Authorization: x\r\nAccept: */*\r\n\r\n"
            await ask(path, line.encode(), fields.encode())
            return [one.replace(where.encode(), b"SITE") for one in far.heard]

    expected = b"GET /a?b=c HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\nAccept: */*\r\n\r\n"
    assert asyncio.run(scenario()) == [expected]


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        ("GET / HTTP/1.1", 400, "this is not a proxy request"),
        ("GET https://example.com/ HTTP/1.1", 400, "this is not a proxy request"),
        ("GET http://me@example.com/ HTTP/1.1", 400, "this is not a proxy request"),
        ("GET http://example.com:none/ HTTP/1.1", 400, "this is not a proxy request"),
        ("CONNECT :443 HTTP/1.1", 400, "this is not a proxy request"),
        ("what is this", 400, "this is not a proxy request"),
        ("CONNECT evil.org:443 HTTP/1.1", 403, "evil.org:443 may not be reached; the hosts are: "),
        ("CONNECT evil.org HTTP/1.1", 403, "evil.org:443 may not be reached"),
        ("GET http://evil.org/ HTTP/1.1", 403, "evil.org:80 may not be reached"),
        (f"CONNECT {HERE}:1 HTTP/1.1", 502, f"{HERE}:1 cannot be reached: "),
    ],
)
def test_a_refusal_is_a_sentence(tmp_path: Path, line: str, status: int, sentence: str) -> None:
    """A command shows it to its agent, which then knows which access to request."""

    async def scenario() -> bytes:
        async with proxied(tmp_path, "example.com", f"{HERE}:1") as (_, path):
            return await ask(path, f"{line}\r\n\r\n".encode())

    back = asyncio.run(scenario()).decode()
    assert back.startswith(f"HTTP/1.1 {status} ")
    assert f"\r\n\r\nteamd: {sentence}" in back


@pytest.mark.parametrize("said", [b"", b"CONNECT exam", b"x" * 70_000])
def test_an_incomplete_or_endless_request_ends_the_connection(tmp_path: Path, said: bytes) -> None:
    async def scenario() -> tuple[bytes, bytes]:
        async with proxied(tmp_path, "example.com") as (proxy, path):
            first = await ask(path, said)
            assert not proxy._open
            return first, await ask(path, b"what is this\r\n\r\n")

    first, second = asyncio.run(scenario())
    assert first == b""
    assert second.startswith(b"HTTP/1.1 400 "), "the next one is served"


def test_beyond_a_hundred_connections_the_next_is_closed_and_none_stays_open(
    tmp_path: Path,
) -> None:
    """A command that opens connections endlessly must not exhaust its teammate's memory."""

    async def scenario() -> None:
        async with proxied(tmp_path, "example.com") as (proxy, path):
            held = [await asyncio.open_unix_connection(path) for _ in range(100)]
            assert await ask(path, b"what is this\r\n\r\n") == b""
            held[0][1].write(b"what is this\r\n\r\n")
            assert (await held[0][0].read()).startswith(b"HTTP/1.1 400 ")
            assert (await ask(path, b"what is this\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
            proxy.close()
            for reader, writer in held[1:]:
                assert await reader.read() == b""
                writer.close()
            held[0][1].close()

    asyncio.run(scenario())
