"""The connection to the broker: loss, reconnection, and no accidental plain text."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from teamd.postman.broker import Broker
from tests.hosts.brokers import Host, Town, free_port, past, plain, running
from tests.waiting import until


def test_hosts_reconnect_after_a_broker_restart_and_buffer_no_messages(
    tmp_path: Path,
) -> None:
    port = free_port()
    one, other = (Host(f"nats://127.0.0.1:{port}", None, f"mail.{name}.*") for name in "ab")

    async def talk() -> None:
        async with running(one, other):
            await one.says("nothing listens at")
            assert not one.broker.publish("mail.b.a", b"into the void")
            with plain(tmp_path, port) as server:
                await until(lambda: one.broker.up and other.broker.up)
                assert one.broker.publish("mail.b.a", b"1")
                await until(lambda: other.got)
                server.kill()
                await one.says("has closed the connection")
                assert not one.broker.publish("mail.b.a", b"into the void")
            with plain(tmp_path, port):
                await until(lambda: one.broker.up and other.broker.up)
                assert one.broker.publish("mail.b.a", b"2")
                await until(lambda: len(other.got) > 1)
        assert other.got == [("mail.b.a", b"1"), ("mail.b.a", b"2")]
        assert (one.ups, other.ups) == (2, 2)

    asyncio.run(talk())


def test_an_oversized_payload_does_not_end_any_connection(tmp_path: Path) -> None:
    port = free_port()
    one, other = (Host(f"nats://127.0.0.1:{port}", None, f"mail.{name}.*") for name in "ab")

    async def talk() -> None:
        with plain(tmp_path, port):
            async with running(one, other):
                await until(lambda: one.broker.up and other.broker.up)
                assert one.broker.publish("mail.b.a", b"x" * (1 << 20 | 1))
                assert one.broker.publish("mail.b.a", b"after it")
                await until(lambda: other.got)
        assert other.got == [("mail.b.a", b"after it")]
        assert (one.ups, one.lost) == (1, [])
        assert one.denied == ["1048577 bytes at a time, to mail.b.a"]

    asyncio.run(talk())


@pytest.mark.slow
def test_a_silent_broker_is_noticed_within_6_seconds_and_its_return_within_5(
    tmp_path: Path,
) -> None:
    """A stopped broker looks like a cut cable: the kernel still accepts writes."""
    port = free_port()
    host = Host(f"nats://127.0.0.1:{port}", None, "roster.*")

    async def talk() -> None:
        with plain(tmp_path, port) as server:
            async with running(host):
                await until(lambda: host.broker.up)
                server.send_signal(signal.SIGSTOP)
                begun = time.monotonic()
                # More than the kernel buffers; publishing must not block forever.
                while host.broker.up:
                    host.broker.publish("roster.a", bytes(100_000))
                    await (host.broker.drain() if host.broker.full else asyncio.sleep(0))
                assert time.monotonic() - begun < 6
                await host.says("is silent")
                server.send_signal(signal.SIGCONT)
                begun = time.monotonic()
                await until(lambda: host.broker.up)
                assert time.monotonic() - begun < 5

    asyncio.run(talk())


class Stubborn:
    """A broker that answers at first, then keeps sending but reads nothing until `again` is set."""

    def __init__(self) -> None:
        self.port = 0
        self.takes = True
        self.again = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen during the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 10)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        told = {"server_id": "x", "version": "2.10.0", "proto": 1, "max_payload": 1 << 20}
        writer.write(b"INFO %s\r\n" % json.dumps(told).encode())
        with suppress(OSError):
            while self.takes and (line := await reader.readline()):
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
            while not writer.is_closing() and not self.again.is_set():
                writer.write(b"PING\r\n")
                await asyncio.wait([asyncio.create_task(self.again.wait())], timeout=0.1)
            while await reader.read(1 << 16):
                pass


@pytest.mark.slow
def test_a_broker_that_sends_but_never_reads_is_disconnected() -> None:
    """Its data looks like a live connection, so a publisher would wait forever."""

    async def talk() -> None:
        stubborn = Stubborn()
        async with stubborn.serving():
            host = Host(f"nats://127.0.0.1:{stubborn.port}", None)
            async with running(host):
                await until(lambda: host.broker.up)
                stubborn.takes = False
                waits = 0
                async with asyncio.timeout(20):
                    while host.broker.up:
                        host.broker.publish("roster.a", bytes(100_000))
                        if host.broker.full:
                            waits += 1
                            await host.broker.drain()
                await host.says("is silent")
                assert waits < 10, "it waits, and does not ask again and again"

    asyncio.run(talk())


def test_publishers_wait_for_a_broker_that_briefly_stops_reading() -> None:
    async def talk() -> None:
        stubborn = Stubborn()
        async with stubborn.serving():
            host = Host(f"nats://127.0.0.1:{stubborn.port}", None)
            async with running(host):
                await until(lambda: host.broker.up)
                stubborn.takes = False
                while not host.broker.full:
                    host.broker.publish("roster.a", bytes(100_000))
                waits = asyncio.create_task(host.broker.drain())
                await asyncio.wait([waits], timeout=0.3)
                assert not waits.done()
                stubborn.again.set()
                await waits
                await until(lambda: not host.broker.full)
                assert (host.ups, host.lost) == (1, [])

    asyncio.run(talk())


@pytest.mark.parametrize(
    "line",
    [
        b"HPUB mail.b.a 8 8\r\nNATS/1.0\r\n",
        b"PUB mail.b.a \xff\xff 1\r\nx\r\n",
        b"HPUB mail.b.a more 21 22\r\nNATS/1.0 100 Idle\r\n\r\nx\r\n",
    ],
    ids=["headers", "reply", "control"],
)
def test_no_frame_from_one_host_stops_another_host_from_reading(
    tmp_path: Path, line: bytes
) -> None:
    """A client that cannot parse a frame would stop reading frames from all hosts."""
    port = free_port()
    one, other = (Host(f"nats://127.0.0.1:{port}", None, f"mail.{name}.*") for name in "ab")

    async def talk() -> None:
        with plain(tmp_path, port):
            async with running(one, other):
                await until(lambda: one.broker.up and other.broker.up)
                link = one.broker._link
                assert link is not None
                link._wire.write(line)

                def is_heard() -> bool:
                    one.broker.publish("mail.b.a", b"honest")  # delivery is not confirmed
                    return ("mail.b.a", b"honest") in other.got

                await until(is_heard)
        assert (other.ups, other.lost) == (1, [])

    asyncio.run(talk())


def test_a_client_that_stops_reading_reconnects_at_once(tmp_path: Path) -> None:
    port = free_port()
    host = Host(f"nats://127.0.0.1:{port}", None, "roster.*")

    async def talk() -> None:
        with plain(tmp_path, port):
            async with running(host):
                await until(lambda: host.broker.up)
                link = host.broker._link
                assert link is not None
                reading = link._client._reading_task
                assert reading is not None
                reading.cancel()  # must be noticed without 5 s of silence
                await until(lambda: host.ups == 2, timeout_seconds=3)

    asyncio.run(talk())


def test_the_last_published_messages_are_sent_before_closing(tmp_path: Path) -> None:
    port = free_port()
    one, other = (Host(f"nats://127.0.0.1:{port}", None, f"mail.{name}.*") for name in "ab")

    async def talk() -> None:
        with plain(tmp_path, port):
            async with running(other):
                async with running(one):
                    await until(lambda: one.broker.up and other.broker.up)
                    for number in range(100):
                        assert one.broker.publish("mail.b.a", b"%d" % number)
                await until(lambda: len(other.got) == 100)

    asyncio.run(talk())


def test_an_exception_in_a_receiver_ends_run_with_that_exception(tmp_path: Path) -> None:
    port = free_port()

    async def fail(_: str, __: bytes) -> None:
        raise LookupError("a mistake of ours")

    async def talk() -> None:
        receiver = Broker(
            [f"nats://127.0.0.1:{port}"],
            None,
            {"mail.b.*": fail},
            connected=lambda: None,
            disconnected=lambda _: None,
        )
        sender = Host(f"nats://127.0.0.1:{port}", None)
        with plain(tmp_path, port):
            async with running(sender), asyncio.timeout(20):
                run = asyncio.create_task(receiver.run())
                await until(lambda: receiver.up and sender.broker.up)
                sender.broker.publish("mail.b.a", b"")
                with pytest.raises(LookupError, match="a mistake of ours"):
                    await run

    asyncio.run(talk())


def test_nothing_is_sent_to_a_server_without_tls(tmp_path: Path) -> None:
    """An attacker in the broker's place must not get mail by not offering TLS."""
    town = Town.found(tmp_path, {"project": ["h1"]})
    heard = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.9.10","max_payload":1048576}\r\n')
        heard.append(await reader.read(100))
        writer.close()

    async def talk() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", town.record.port):
            host = Host(town.server, town.issue("project", "h1"), "mail.h1.*")
            async with running(host):
                await host.says("offers no TLS, so it is no broker of this team")
        assert set(heard) == {b""}
        assert host.ups == 0

    asyncio.run(talk())


def test_a_broker_shutdown_is_reported_without_extra_log_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise asyncio's message would be in teamd's log at each broker shutdown."""
    town = Town.found(tmp_path, {"project": ["h1"]})

    async def talk() -> None:
        host = Host(town.server, town.issue("project", "h1"), "mail.h1.*")
        async with running(host):
            with town.open():
                await until(lambda: host.broker.up)
            await host.says("has closed the connection")

    asyncio.run(talk())
    assert caplog.messages == []


def test_a_server_that_closes_at_once_is_reported_in_a_sentence() -> None:
    """Like a tunnel whose other end is down."""
    port = free_port()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def talk() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            host = Host(f"nats://127.0.0.1:{port}", None)
            async with running(host):
                await host.says(f"nats://127.0.0.1:{port} has closed the connection")
        assert set(host.lost) == {f"nats://127.0.0.1:{port} has closed the connection"}

    asyncio.run(talk())


def test_several_addresses_are_tried_in_turn(tmp_path: Path) -> None:
    port = free_port()
    nobody = f"nats://127.0.0.1:{free_port()}"

    async def talk() -> None:
        host = Host([nobody, f"nats://127.0.0.1:{port}"], None)
        with plain(tmp_path, port):
            async with running(host):
                await until(lambda: host.broker.up)
        assert host.lost == []

    asyncio.run(talk())


def test_the_broker_is_reachable_through_a_tunnel(tmp_path: Path) -> None:
    """As with `ssh -L`: another port, and `localhost` as the name."""
    town = Town.found(tmp_path, {"project": ["h1"]})

    ended = asyncio.Event()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", town.record.port)
        await asyncio.gather(pump(reader, back), pump(there, writer))
        ended.set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def talk() -> None:
        port = free_port()
        async with await asyncio.start_server(forward, "127.0.0.1", port):
            host = Host(f"tls://localhost:{port}", town.issue("project", "h1"), "mail.h1.*")
            with town.open():
                async with running(host):
                    await until(lambda: host.broker.up)
                await ended.wait()
        assert host.lost == []

    asyncio.run(talk())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("tls://no-such-machine.invalid:4222", "no machine is known by the name"),
        ("tls://127.0.0.1:{port}", "the broker's certificate is not for 127.0.0.1; take a name"),
    ],
)
def test_the_reason_for_an_unusable_address_is_reported(
    tmp_path: Path, server: str, why: str
) -> None:
    town = Town.found(tmp_path, {"project": ["h1"]})
    own = town.keep("server", town.issue_server("localhost"))
    for place, made in ((own.cert, "server.crt"), (own.key, "server.key")):
        place.replace(town.broker.files.folder / made)

    async def talk() -> None:
        host = Host(server.format(port=town.record.port), town.issue("project", "h1"))
        with town.open():
            async with running(host):
                await host.says(why)

    asyncio.run(talk())


def test_an_expired_broker_certificate_is_reported(tmp_path: Path) -> None:
    town = Town.found(tmp_path, {"project": ["h1"]})
    own = town.keep("server", town.issue_server("localhost", valid=past()))
    for place, made in ((own.cert, "server.crt"), (own.key, "server.key")):
        place.replace(town.broker.files.folder / made)

    async def talk() -> None:
        host = Host(town.server, town.issue("project", "h1"))
        with town.open():
            async with running(host):
                await host.says("has expired, or this machine's clock is wrong")

    asyncio.run(talk())


def test_a_missing_key_file_is_reported(tmp_path: Path) -> None:
    town = Town.found(tmp_path, {"project": ["h1"]})
    certificates = town.issue("project", "h1")
    certificates.key.unlink()

    async def talk() -> None:
        host = Host(town.server, certificates)
        async with running(host):
            await host.says("cannot be read (No such file or directory); `teamctl hosts join FILE`")

    asyncio.run(talk())


@pytest.mark.slow
def test_a_server_that_accepts_connections_but_stays_silent_times_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]

        async def talk() -> None:
            host = Host(f"nats://127.0.0.1:{port}", None)
            async with running(host):
                await host.says("does not answer; is the machine up")

        asyncio.run(talk())


def test_several_failing_addresses_are_reported_once_as_one_reason() -> None:
    """Otherwise each attempt would add log lines, and the view would only show the last reason."""
    told: list[str] = []
    ports = free_port(), free_port()
    servers = [f"nats://127.0.0.1:{port}" for port in ports]

    async def talk() -> None:
        broker = Broker(servers, None, {}, connected=lambda: None, disconnected=told.append)
        task = asyncio.create_task(broker.run())
        await until(lambda: len(told) >= 2)
        task.cancel()

    asyncio.run(talk())
    assert len(set(told)) == 1
    assert all(server in told[0] for server in servers)


@pytest.mark.parametrize("words", [b"INFO []\r\n", b"INFO {}\r\n" * 3, b"x" * 100_000])
def test_a_server_that_does_not_speak_nats_is_reported_without_a_crash(words: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError), closing(writer):
            writer.write(words)
            await reader.read()

    async def talk() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            host = Host(f"nats://127.0.0.1:{port}", None)
            async with running(host):
                await until(lambda: len(host.lost) >= 2)

    asyncio.run(talk())
