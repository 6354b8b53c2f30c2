"""One connection to the broker: the reason of each loss, and nothing secret in plain text."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import nkeys  # type: ignore[import-untyped]
import pytest

from teamd.errors import TeamError
from teamd.postman.connection import (
    CONFIRMED,
    MAIL,
    BrokerConnection,
    LostConnection,
    NoAnswer,
    find_trouble,
    make_context,
)
from teamd.settings.schema import HostSettings
from tests.hosts.brokers import PAST, Town, free_port, plain, serving

SILENT_SECONDS = 8.0  # within which a silent broker is noticed


def host(server: str, name: str = "h1") -> HostSettings:
    """Return the settings of a host without a certificate."""
    return HostSettings(name=name, servers=(server,))


def trouble(settings: HostSettings) -> str:
    """Return why the only server of a host does not accept it."""
    [found] = asyncio.run(find_trouble(settings))
    return found


def trouble_with(serve: Callable[..., Awaitable[None]], settings: HostSettings, port: int) -> str:
    """Return why a program that answers at a port does not accept a host."""

    async def look() -> list[str]:
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            return await find_trouble(settings)

    [found] = asyncio.run(look())
    return found


def give_server(town: Town, *addresses: str, **options: object) -> None:
    """Replace the broker's certificate."""
    made = town.keep("h1", "server", town.issue_server(*addresses, **options))  # type: ignore[arg-type]
    assert made.cert is not None
    assert made.key is not None
    made.cert.replace(town.broker.folder / "server.crt")
    made.key.replace(town.broker.folder / "server.key")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path, {"project": ["h1", "h2"]})


def test_a_broker_that_accepts_the_host_is_no_trouble(town: Town) -> None:
    with town.open():
        assert asyncio.run(find_trouble(town.issue("project", "h1"))) == []


def test_the_first_server_that_accepts_the_host_is_used(tmp_path: Path) -> None:
    port = free_port()
    servers = (f"nats://127.0.0.1:{free_port()}", f"nats://127.0.0.1:{port}")

    async def connect() -> str:
        async with BrokerConnection.open_any(replace(host(""), servers=servers)) as link:
            return link.server

    with plain(tmp_path, port):
        assert asyncio.run(connect()) == servers[1]
        assert asyncio.run(find_trouble(replace(host(""), servers=servers))) == []


def test_each_server_that_does_not_listen_is_reported() -> None:
    servers = tuple(f"nats://127.0.0.1:{free_port()}" for _ in range(2))
    found = asyncio.run(find_trouble(replace(host(""), servers=servers)))
    assert found == [f"nothing listens at {one}; does the broker run there?" for one in servers]


async def offer_no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Answer as a broker without TLS that asks for a signature; return what it was sent."""
    told = {"server_id": "x", "version": "2.10.0", "proto": 1, "max_payload": 1 << 20}
    with closing(writer):
        writer.write(
            b"INFO %s\r\n" % json.dumps(told | {"auth_required": True, "nonce": "n"}).encode()
        )
        heard = b""
        while line := await reader.readline():
            heard += line
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
    return heard


@pytest.mark.parametrize("creds", [False, True], ids=["certificate", "credentials"])
def test_no_mail_and_no_credentials_are_sent_to_a_server_without_tls(
    town: Town, tmp_path: Path, *, creds: bool
) -> None:
    """An attacker in the broker's place must not get either by not offering TLS."""
    heard = list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            heard.append(await offer_no_tls(reader, writer))

    settings = town.issue("project", "h1")
    if creds:
        file = tmp_path / "h1.creds"
        file.write_text(credentials())
        settings = replace(settings, cert=None, key=None, creds=file)
    found = trouble_with(serve, settings, town.record.port)
    assert found.startswith(f"{town.server} offers no TLS, so it is no broker of this team")
    [told] = heard
    assert told.count(b"\r\n") <= 2, "at most CONNECT and PING"
    for secret in (b"PUB", b"SUB", b'"jwt"', b'"sig"', b'"nkey"', b'"user"', b'"pass"'):
        assert secret not in told


def credentials() -> str:
    """Return a credentials file as `nsc` writes it."""
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER).decode()
    return (
        "-----BEGIN NATS USER JWT-----\nsecret.jwt\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def test_a_damaged_credentials_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "h1.creds"
    file.write_text("no credentials\n")
    settings = replace(host("tls://127.0.0.1:9"), creds=file)
    assert trouble(settings).startswith(f"{file} is not a credentials file of NATS")


def test_plain_text_is_refused_beyond_this_machine_unless_it_is_allowed() -> None:
    settings = host("nats://broker.invalid:4222")
    assert "offers no TLS, so it is no broker of this team" in trouble(settings)
    assert trouble(replace(settings, plaintext=True)) == (
        "no machine is known by the name broker.invalid; look at [hosts] servers"
    )


def test_an_expired_broker_certificate_is_reported(town: Town) -> None:
    give_server(town, "localhost", "127.0.0.1", lifetime=PAST)
    with town.open():
        assert "has expired, or this machine's clock is wrong" in trouble(
            town.issue("project", "h1")
        )


def test_a_broker_certificate_for_another_name_is_reported(town: Town) -> None:
    give_server(town, "localhost")
    own = replace(
        town.issue("project", "h1"), servers=(f"tls://127.0.0.1:{town.record.port}",)
    )  # fmt: skip
    with town.open():
        assert trouble(own) == (
            "the broker's certificate is not for 127.0.0.1; take a name that it is for in [hosts] "
            "servers, or run `teamctl hosts init --renew --address 127.0.0.1` on the broker's host"
        )


def test_a_broker_of_another_team_is_reported(town: Town, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Town.found(tmp_path / "other", {"project": ["h1"]})
    own = replace(town.issue("project", "h1"), servers=(other.server,))
    with other.open():
        assert trouble(own) == (
            f"the certificate of {other.server} is not of this team; look at [hosts] servers and ca"
        )


@pytest.mark.parametrize("whose", ["another CA", "the past"])
def test_a_refused_host_certificate_is_reported(town: Town, whose: str) -> None:
    if whose == "the past":
        own = town.issue("project", "h1", lifetime=PAST)
    else:
        own = town.issue_by_itself("project", "h1")
    with town.open():
        assert trouble(own).startswith(
            f"{town.server} refuses this host's certificate: it is another team's, or it has "
            "expired; `teamctl hosts remove` and `hosts add`"
        )


def test_a_removed_certificate_is_reported(town: Town) -> None:
    own = town.issue("project", "h2")
    with town.broker.changing():
        town.broker.write(town.record.without_host("project", "h2"))
    with town.open():
        assert trouble(own) == (
            f"{town.server} does not admit this host: its certificate was removed; "
            "`teamctl hosts add` on the broker's host makes a new one"
        )


def test_a_missing_key_file_is_reported(town: Town) -> None:
    own = town.issue("project", "h1")
    assert own.key is not None
    own.key.unlink()
    assert "cannot be read (No such file or directory); `teamctl hosts join FILE`" in trouble(own)


def test_a_key_of_another_certificate_is_reported(town: Town) -> None:
    own = replace(town.issue("project", "h1"), key=town.issue("project", "h2").key)
    with pytest.raises(TeamError, match=r"do not belong together .*; `teamctl hosts join FILE`"):
        make_context(own)


def test_only_tls_1_3_is_used(town: Town) -> None:
    assert make_context(town.issue("project", "h1")).minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_server_that_closes_at_once_is_reported() -> None:
    """Like a tunnel whose other end is down."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    port = free_port()
    server = f"nats://127.0.0.1:{port}"
    assert trouble_with(close, host(server), port) == f"{server} has closed the connection"


@pytest.mark.parametrize(
    "words",
    [
        b"INFO []\r\n",
        b"INFO {}\r\n" * 3,
        b"x" * 100_000,
        b"INFO {\r\n",
        b"\r\n",
        b"-ERR '\xff'\r\n",
    ],
    ids=["list", "thrice", "long", "torn", "empty", "error"],
)
def test_a_server_that_does_not_speak_nats_is_reported_in_a_sentence(words: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError), closing(writer):
            writer.write(words)
            await reader.read(100)

    port = free_port()
    found = trouble_with(answer, host(f"nats://127.0.0.1:{port}"), port)
    assert found.startswith((f"nats://127.0.0.1:{port} ", f"nats://127.0.0.1:{port}: "))
    assert "\n" not in found


@pytest.mark.slow
def test_a_server_that_accepts_connections_but_stays_silent_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        begun = time.monotonic()
        assert trouble(host(f"nats://127.0.0.1:{port}")) == (
            f"nats://127.0.0.1:{port} does not answer; is the machine up, and is the port open?"
        )
        assert time.monotonic() - begun < 2 * SILENT_SECONDS


def test_the_broker_is_reachable_through_a_tunnel(town: Town) -> None:
    """As with `ssh -L`: another port, and `localhost` as the name."""
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

    async def talk() -> list[str]:
        port = free_port()
        async with await asyncio.start_server(forward, "127.0.0.1", port):
            own = replace(town.issue("project", "h1"), servers=(f"tls://localhost:{port}",))
            found = await find_trouble(own)
            await ended.wait()
        return found

    with town.open():
        assert asyncio.run(talk()) == []


def lost(link: BrokerConnection) -> asyncio.Task[str]:
    """Return a task that ends with the reason once the connection is lost."""

    async def wait() -> str:
        with pytest.raises(LostConnection) as error:
            await link.wait()
        assert error.value.was_up
        return error.value.why

    return asyncio.create_task(wait())


def test_a_broker_shutdown_is_reported_without_extra_log_messages(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the library's message would be in the log at each broker shutdown."""

    async def talk() -> str:
        own = town.issue("project", "h1")
        with town.open() as server:
            async with BrokerConnection.open(town.server, own) as link:
                reason = lost(link)
                server.kill()
                return await asyncio.wait_for(reason, 20)

    assert asyncio.run(talk()) == f"{town.server} has closed the connection"
    assert caplog.messages == []


@pytest.mark.slow
def test_a_silent_broker_is_noticed_within_8_seconds(tmp_path: Path) -> None:
    """A stopped broker looks like a cut cable: the kernel still accepts writes."""
    port = free_port()

    async def talk() -> str:
        with plain(tmp_path, port) as server:
            async with BrokerConnection.open(f"nats://127.0.0.1:{port}", host("")) as link:
                server.send_signal(signal.SIGSTOP)
                begun = time.monotonic()
                reason = await asyncio.wait_for(lost(link), 20)
                assert time.monotonic() - begun < SILENT_SECONDS
                server.send_signal(signal.SIGCONT)
                return reason

    assert asyncio.run(talk()).startswith(f"nats://127.0.0.1:{port}")


def test_a_broker_without_jetstream_is_named_with_the_remedy(tmp_path: Path) -> None:
    port = free_port()
    configuration = tmp_path / "old.conf"
    configuration.write_text(f'listen: "127.0.0.1:{port}"\n')

    async def talk() -> LostConnection:
        server = f"nats://127.0.0.1:{port}"
        async with BrokerConnection.open(server, host(server)) as link:
            try:
                await link.prepare()
            except Exception as error:  # noqa: BLE001 -- as the postman explains it
                return link.explain(error)
        raise AssertionError("it was prepared")

    with serving(configuration, port):
        found = asyncio.run(talk())
    assert found.refused
    assert found.why == (
        f"nats://127.0.0.1:{port} stores no mail; run `teamctl hosts init --renew` on the "
        "broker's host, and restart the broker"
    )


def test_a_host_that_may_not_create_streams_says_where_they_are_created(town: Town) -> None:
    async def talk(name: str) -> str:
        async with BrokerConnection.open(town.server, town.issue("project", name)) as link:
            try:
                await link.prepare()
            except LostConnection as error:
                return error.why
        return ""

    with town.open():
        assert asyncio.run(talk("h2")) == (
            "the broker is empty; it is set up as soon as teamd runs on the broker's host"
        )
        assert asyncio.run(talk("h1")) == ""
        assert asyncio.run(talk("h2")) == ""


def test_another_hosts_name_is_reported_with_the_setting(town: Town) -> None:
    async def talk() -> str:
        own = replace(town.issue("project", "h2"), name="h1")
        async with BrokerConnection.open(town.server, own) as link:
            await link.answer(_nothing)
            with pytest.raises(LostConnection) as error:
                await link.put(CONFIRMED, "h2.h1", b"{}")
            return error.value.why

    async def _nothing(_: str, __: bytes) -> None: ...

    with town.open():
        assert asyncio.run(talk()).startswith("the broker does not let this host speak as h1; ")


def test_an_oversized_message_does_not_end_the_connection(tmp_path: Path) -> None:
    port = free_port()

    async def talk() -> None:
        server = f"nats://127.0.0.1:{port}"
        async with BrokerConnection.open(server, host(server)) as link:
            await link.prepare()
            with pytest.raises(Exception, match=r"(?i)maximum payload"):
                await link.publish(f"{MAIL}.h2.h1", b"x" * (1 << 20 | 1), {})
            await (await link.publish(f"{MAIL}.h1.h2", b"after it", {}))
            await link.bind()
            assert [one.data for one in await link.fetch(10, seconds=5)] == [b"after it"]

    with plain(tmp_path, port):
        asyncio.run(talk())


def test_a_request_that_nobody_hears_is_distinguished_from_one_without_an_answer(
    tmp_path: Path,
) -> None:
    port = free_port()
    asked = list[tuple[str, bytes]]()

    async def ignore(sender: str, payload: bytes) -> None:
        asked.append((sender, payload))

    async def talk() -> list[bool]:
        server, found = f"nats://127.0.0.1:{port}", []
        async with (
            BrokerConnection.open(server, host(server)) as link,
            BrokerConnection.open(server, host(server, "h2")) as other,
        ):
            for _ in range(2):
                with pytest.raises(NoAnswer) as error:
                    await link.request("command.h2.h1", b"?", 0.3)
                found.append(error.value.nobody)
                await other.answer(ignore)
                with suppress(NoAnswer):
                    await other.request("nobody", b"", 5)  # so the broker knows the subscription
        return found

    with plain(tmp_path, port):
        assert asyncio.run(talk()) == [True, False]
    assert asked == [("h1", b"?")]
