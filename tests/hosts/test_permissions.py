"""Permissions that the broker enforces without trust in any host's postman or the network."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamctl.hosts.server import MAX_PAYLOAD
from teamd.postman.certificates import Certificates
from tests.hosts.brokers import Host, Town, past, running
from tests.waiting import until

TEAM, OTHER = "project", "other"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A broker of two teams with hosts of the same names."""
    folder = tmp_path_factory.mktemp("town")
    made = Town.found(folder, {TEAM: ["h1", "h2", "h3"], OTHER: ["h1", "h2"]})
    with made.open():
        yield made


def host(town: Town, name: str, *subjects: str, team: str = TEAM) -> Host:
    """Return a host with its own certificate and these subscriptions."""
    return Host(town.server, town.issue(team, name), *subjects)


async def receive_nothing_but(receiver: Host, sender: Host, subject: str) -> None:
    """Publish an allowed message, and check that it is the first to arrive."""
    await until(lambda: receiver.broker.up and sender.broker.up)
    assert sender.broker.publish(subject, b"allowed")
    await until(lambda: receiver.got)
    assert receiver.got == [(subject, b"allowed")]


def test_a_host_can_send_to_another_host_in_its_own_name(town: Town) -> None:
    one, other = host(town, "h1", "mail.h1.*", "roster.*"), host(town, "h2", "mail.h2.*")

    async def talk() -> None:
        async with running(one, other):
            await receive_nothing_but(other, one, "mail.h2.h1")
            other.broker.publish("roster.h2", b"7")
            await until(lambda: one.got == [("roster.h2", b"7")])
        assert one.denied == other.denied == []

    asyncio.run(talk())


@pytest.mark.parametrize("subject", ["mail.h2.h3", "roster.h3", "mail.h2", "mail.h2.h1.more"])
def test_a_forged_sender_is_refused(town: Town, subject: str) -> None:
    thief = host(town, "h1")
    receiver = host(town, "h2", "mail.h2.*", "roster.*")

    async def talk() -> None:
        async with running(thief, receiver):
            await until(lambda: thief.broker.up and receiver.broker.up)
            thief.broker.publish(subject, b"forged")
            await until(lambda: thief.denied)
            assert thief.denied[0].lower() == f'permissions violation for publish to "{subject}"'
            await receive_nothing_but(receiver, thief, "mail.h2.h1")

    asyncio.run(talk())


@pytest.mark.parametrize(
    "subject",
    ["mail.h2.*", "mail.h2.h3", "mail.*.*", "mail.*.h3", "mail.>", ">", "*.*.*", "_INBOX.>"],
)
def test_a_subscription_to_anothers_mail_is_refused(town: Town, subject: str) -> None:
    thief = host(town, "h1", subject, "mail.h1.*")
    sender = host(town, "h3")

    async def talk() -> None:
        async with running(thief, sender):
            await until(lambda: thief.denied)
            assert "permissions violation for subscription" in thief.denied[0].lower()
            await until(lambda: sender.broker.up)
            sender.broker.publish("mail.h2.h3", b"of no concern to h1")
            await receive_nothing_but(thief, sender, "mail.h1.h3")

    asyncio.run(talk())


def test_hosts_cannot_reach_another_teams_account(town: Town) -> None:
    """Hosts of both teams have the same names, but neither mail nor rosters cross."""
    foreign = host(town, "h1", "mail.h1.*", "roster.*", team=OTHER)
    receiver = host(town, "h2", "mail.h2.*", "roster.*")
    sender = host(town, "h1", "mail.h1.*")

    async def talk() -> None:
        async with running(foreign, receiver, sender):
            await until(lambda: foreign.broker.up and receiver.broker.up)
            for subject in ("mail.h2.h1", "roster.h1"):
                assert foreign.broker.publish(subject, b"of another team")
            await receive_nothing_but(receiver, sender, "mail.h2.h1")
            receiver.broker.publish("mail.h1.h2", b"for h1 of its own team")
            await until(lambda: sender.got)
            assert foreign.got == []

    asyncio.run(talk())


def test_a_client_without_a_certificate_is_refused(town: Town) -> None:
    context = ssl.create_default_context(cafile=str(town.broker.files.ca_cert))
    with socket.create_connection(("localhost", town.record.port), timeout=20) as line:
        assert line.recv(4096).startswith(b"INFO")
        with context.wrap_socket(line, server_hostname="localhost") as tls:
            assert answer(tls) == b""


def answer(tls: ssl.SSLSocket) -> bytes:
    """Return the server's answer to a login; empty if it closes the connection."""
    try:
        tls.sendall(b"CONNECT {}\r\nPING\r\n")
        return tls.recv(100)
    except OSError:
        return b""


def test_a_plain_text_client_is_refused(town: Town) -> None:
    async def talk() -> None:
        plain = Host(town.server.replace("tls://", "nats://"), None, "mail.h1.*")
        async with running(plain):
            await until(lambda: plain.lost)
        assert plain.ups == 0

    asyncio.run(talk())


@pytest.mark.parametrize("whose", ["another CA", "itself", "the past", "the server"])
def test_a_foreign_certificate_is_refused(
    town: Town, tmp_path_factory: pytest.TempPathFactory, whose: str
) -> None:
    """This includes a certificate with exactly the name that the broker admits."""
    match whose:
        case "another CA":
            elsewhere = Town.found(tmp_path_factory.mktemp("elsewhere"), {TEAM: ["h1"]})
            elsewhere.record = town.record
            found = elsewhere.issue(TEAM, "h1")
            found = Certificates(found.cert, found.key, town.broker.files.ca_cert)
        case "itself":
            found = town.issue_by_itself(TEAM, "h1")
        case "the past":
            found = town.issue(TEAM, "h1", valid=past())
        case _:
            files = town.broker.files
            found = Certificates(files.cert, files.key, files.ca_cert)
    thief = Host(town.server, found, "mail.h1.*")

    async def talk() -> None:
        async with running(thief):
            await until(lambda: thief.lost)
        assert thief.ups == 0
        assert any(word in thief.lost[0] for word in ("refuses this host", "does not admit")), (
            thief.lost
        )

    asyncio.run(talk())


def test_a_removed_certificate_is_disconnected_at_the_reload_and_stays_refused(
    tmp_path: Path,
) -> None:
    """This holds even when another host gets the same name."""
    town = Town.found(tmp_path, {TEAM: ["h1", "h2"]})
    removed, stays = host(town, "h2", "mail.h2.*"), host(town, "h1", "mail.h1.*")
    town.record = town.record.without_host(TEAM, "h2").with_host(TEAM, "h2")
    again = host(town, "h2", "mail.h2.*")

    async def talk() -> None:
        async with running(removed, stays):
            await until(lambda: removed.broker.up and stays.broker.up)
            await asyncio.to_thread(town.broker.write, town.record)
            assert town.broker.signal_reload()
            await until(lambda: not removed.broker.up)
            await removed.says("does not admit this host: its certificate was removed")
            async with running(again):
                await receive_nothing_but(again, stays, "mail.h2.h1")
            assert (removed.ups, stays.ups) == (1, 1)

    with town.open():
        asyncio.run(talk())


def test_a_payload_over_the_limit_is_dropped_before_it_is_sent(town: Town) -> None:
    """Otherwise the broker would close the connection for all hosts."""
    sender = host(town, "h1")

    async def talk() -> None:
        async with running(sender):
            await until(lambda: sender.broker.up)
            assert sender.broker.publish("mail.h2.h1", bytes(MAX_PAYLOAD + 1))
            assert sender.denied == [f"{MAX_PAYLOAD + 1} bytes at a time, to mail.h2.h1"]
            assert sender.broker.up

    asyncio.run(talk())
