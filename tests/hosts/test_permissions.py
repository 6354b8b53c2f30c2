"""Permissions that the broker enforces without trust in any host's postman or the network."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nats.errors import Error, MaxPayloadError

from teamctl.hosts.broker import MAX_PAYLOAD
from teamd.postman.connection import find_trouble
from teamd.settings.schema import HostSettings
from tests.hosts.brokers import PAST, Raw, Town, connected
from tests.waiting import until

TEAM, OTHER = "project", "other"
OWN = "$JS.API.CONSUMER.CREATE.mail.h2.mail.h2.*"  # h2's consumer of its mail
CONFIG = {
    "name": "h2",
    "durable_name": "h2",
    "filter_subject": "mail.h2.*",
    "ack_policy": "explicit",
}
STREAMS = {
    "mail": {"name": "mail", "subjects": ["mail.*.*"]},
    **{
        f"KV_{bucket}": {
            "name": f"KV_{bucket}",
            "subjects": [f"$KV.{bucket}.>"],
            "max_msgs_per_subject": 1,
            "allow_direct": True,
        }
        for bucket in ("hosts", "confirmed")
    },
}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A broker of two teams with hosts of the same names; h1 is the broker's own host."""
    folder = tmp_path_factory.mktemp("town")
    made = Town.found(folder, {TEAM: ["h1", "h2", "h3"], OTHER: ["h1", "h2"]})
    with made.open():
        asyncio.run(create_streams(made))
        yield made


async def create_streams(town: Town) -> None:
    async with connected(town, TEAM, "h1") as one:
        for name, config in STREAMS.items():
            made = await one.ask(f"$JS.API.STREAM.CREATE.{name}", config)
            assert "error" not in made


@asynccontextmanager
async def hosts(town: Town) -> AsyncIterator[tuple[Raw, Raw, Raw]]:
    """Connect all hosts of the team, with empty streams."""
    async with (
        connected(town, TEAM, "h1") as one,
        connected(town, TEAM, "h2") as two,
        connected(town, TEAM, "h3") as three,
    ):
        for name in STREAMS:
            await one.ask(f"$JS.API.STREAM.PURGE.{name}")
        for consumer in (await one.ask("$JS.API.CONSUMER.NAMES.mail"))["consumers"]:
            await one.ask(f"$JS.API.CONSUMER.DELETE.mail.{consumer}")
        yield one, two, three


async def create_consumer(host: Raw, **config: Any) -> str:
    """Create a consumer of the stream `mail`; return the broker's error, if any."""
    made = await host.ask(OWN, {"stream_name": "mail", "config": {**CONFIG, **config}})
    return str(made.get("error", {}).get("description", ""))


async def subjects_in(host: Raw, stream: str) -> dict[str, int]:
    """Return how many messages a stream has for each subject."""
    told = await host.ask(f"$JS.API.STREAM.INFO.{stream}", {"subjects_filter": ">"})
    return dict(told["state"].get("subjects") or {})


def test_a_host_sends_mail_in_its_own_name_and_another_receives_it(town: Town) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            assert await create_consumer(two) == ""
            stored = await one.ask("mail.h2.h1", "hello")
            assert stored["stream"] == "mail"
            found = await two.pull()
            assert (found.subject, found.data) == ("mail.h2.h1", b'"hello"')
            await two.client.request(found.reply, b"+ACK", timeout=10)
            told = await two.ask("$JS.API.CONSUMER.INFO.mail.h2")
            assert (told["num_pending"], told["num_ack_pending"]) == (0, 0)
            assert not one.denied
            assert not two.denied

    asyncio.run(talk())


def test_a_host_writes_and_watches_the_buckets(town: Town) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            jetstream = two.client.jetstream()
            for bucket in ("hosts", "confirmed"):
                await one.ask(f"$KV.{bucket}.x.h1", "seen")
                values = await jetstream.key_value(bucket)
                watcher = await values.watchall()
                entry = await anext(aiter(watcher))
                assert entry is not None
                assert (entry.key, entry.value) == ("x.h1", b'"seen"')
                await watcher.stop()  # type: ignore[no-untyped-call]
            assert not two.denied

    asyncio.run(talk())


@pytest.mark.parametrize(
    "subject",
    [
        "mail.h1.h3",
        "mail.h1",
        "mail.h1.h2.more",
        "command.h1.h3",
        "$KV.hosts.roster.h3",
        "$KV.confirmed.h1.h3",
        "_INBOX.h1.guess",
        "$JS.ACK.mail.h3.1.1.1.1.1",
    ],
)
def test_a_forged_sender_is_refused(town: Town, subject: str) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            assert await two.is_denied(subject, b"forged")
            for stream in STREAMS:
                assert await subjects_in(one, stream) == {}

    asyncio.run(talk())


@pytest.mark.parametrize(
    "call",
    [
        "STREAM.CREATE.more",
        "STREAM.UPDATE.mail",
        "STREAM.DELETE.mail",
        "STREAM.PURGE.mail",
        "STREAM.MSG.DELETE.mail",
        "STREAM.MSG.GET.mail",
        "STREAM.MSG.GET.KV_hosts",
        "STREAM.SNAPSHOT.mail",
        "STREAM.RESTORE.mail",
        "DIRECT.GET.mail",
        "DIRECT.GET.KV_hosts",
        "DIRECT.GET.KV_hosts.$KV.hosts.roster.h3",
        "CONSUMER.CREATE.mail",
        "CONSUMER.CREATE.mail.h2",
        "CONSUMER.CREATE.mail.h2.mail.h3.*",
        "CONSUMER.CREATE.mail.h2.mail.*.*",
        "CONSUMER.CREATE.mail.h3.mail.h3.*",
        "CONSUMER.CREATE.mail.h3.mail.h2.*",
        "CONSUMER.DURABLE.CREATE.mail.h2",
        "CONSUMER.DELETE.mail.h2",
        "CONSUMER.DELETE.mail.h3",
        "CONSUMER.INFO.mail.h3",
        "CONSUMER.LIST.mail",
        "CONSUMER.MSG.NEXT.mail.h3",
    ],
)
def test_only_the_brokers_own_host_administers_streams_and_reads_all_mail(
    town: Town, call: str
) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            assert await two.is_denied(f"$JS.API.{call}", b"{}")
            if ">" not in call and "*" not in call:
                assert not await one.is_denied(f"$JS.API.{call}", b"not JSON, so nothing happens")

    asyncio.run(talk())


@pytest.mark.parametrize(
    "config",
    [
        {"filter_subject": "mail.h3.*"},
        {"filter_subject": "mail.*.*"},
        {"filter_subject": ""},
        {"filter_subject": "", "filter_subjects": ["mail.h2.*", "mail.h3.*"]},
        {"name": "h3", "durable_name": "h3"},
    ],
    ids=str,
)
def test_a_consumer_gets_the_filter_and_name_of_its_subject_only(
    town: Town, config: dict[str, Any]
) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            assert await create_consumer(two, **config) != ""
            assert (await one.ask("$JS.API.CONSUMER.NAMES.mail"))["consumers"] == []
            assert await create_consumer(two) == ""

    asyncio.run(talk())


@pytest.mark.parametrize(
    "subject",
    [
        "_INBOX.h1.>",
        "_INBOX.h1.x",
        "_INBOX.>",
        "_INBOX.*.x",
        "command.h1.*",
        "command.h1.h2",
        "command.*.*",
        "mail.h2.*",
        "mail.>",
        "$KV.hosts.>",
        "$JS.>",
        ">",
        "*.*.*",
    ],
)
def test_a_subscription_to_anothers_inbox_or_mail_is_refused(town: Town, subject: str) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, three):
            await two.listen(subject)
            await until(lambda: two.denied)
            assert f'permissions violation for subscription to "{subject.lower()}"' in two.denied[0]
            await one.listen("command.h1.*")
            await three.ask("mail.h2.h3", "not for h2's bare eyes")
            with pytest.raises(Error):  # nobody answers
                await three.client.request("command.h1.h3", b"for h1", timeout=0.2)
            await until(lambda: one.got)
            await two.client.flush()
            assert two.got == []

    asyncio.run(talk())


def test_a_command_is_answered_once_and_by_the_asked_host_only(town: Town) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, three):
            asked = await two.client.subscribe("command.h2.*")
            await two.client.flush()
            waiting = asyncio.ensure_future(one.client.request("command.h2.h1", b"?", timeout=10))
            question = await asked.next_msg(timeout=10)
            assert await three.is_denied(question.reply, b"of another")
            assert not await two.is_denied(question.reply, b"yes")
            assert (await waiting).data == b"yes"
            assert await two.is_denied(question.reply, b"no")

    asyncio.run(talk())


def test_mail_pushed_to_anothers_command_subject_keeps_its_own_subject(town: Town) -> None:
    """So h1 recognizes that h3 has not asked, although the broker delivers it there."""

    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            await one.listen("command.h1.h3")  # a push ignores subscriptions with wildcards
            assert await create_consumer(two, deliver_subject="command.h1.h3") == ""
            await two.ask("mail.h2.h2", "shutdown everybody")
            await until(lambda: one.got)
            assert one.got == [("mail.h2.h2", b'"shutdown everybody"')]

    asyncio.run(talk())


@pytest.mark.parametrize("target", ["command.h1.h3", "$KV.hosts.roster.h3", "mail.h1.h3"])
def test_mail_pulled_to_anothers_subject_keeps_its_own_subject(town: Town, target: str) -> None:
    """Streams that capture it store it under the subject of its sender."""

    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            await one.listen("command.h1.*")
            await create_consumer(two)
            await two.ask("mail.h2.h2", "forged")
            await two.client.publish("$JS.API.CONSUMER.MSG.NEXT.mail.h2", reply=target)
            await until_pulled(two)
            stored = {name for stream in STREAMS for name in await subjects_in(one, stream)}
            assert stored == {"mail.h2.h2"}
            if target.startswith("command"):
                await until(lambda: one.got == [("mail.h2.h2", b'"forged"')])

    asyncio.run(talk())


async def until_pulled(host: Raw) -> None:
    """Wait until the host's consumer has delivered a message."""
    async with asyncio.timeout(20):
        while True:
            told = await host.ask(f"$JS.API.CONSUMER.INFO.mail.{host.name}")
            if told["delivered"]["consumer_seq"]:
                return


@pytest.mark.parametrize(
    ("target", "stream"), [("$KV.hosts.roster.h3", "KV_hosts"), ("mail.h1.h3", "mail")]
)
def test_an_answer_of_the_broker_is_stored_in_anothers_name_but_has_no_headers(
    town: Town, target: str, stream: str
) -> None:
    """A host chooses where the broker answers, so receivers must ignore messages without headers.

    The text of an answer may contain words that the host has chosen.
    """

    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            config = {**CONFIG, "description": "forged"}
            request = json.dumps({"stream_name": "mail", "config": config}).encode()
            await two.client.publish(OWN, request, reply=target)
            async with asyncio.timeout(20):
                while target not in await subjects_in(one, stream):
                    await one.client.flush()
            call = f"$JS.API.STREAM.MSG.GET.{stream}"
            found = (await one.ask(call, {"last_by_subj": target}))["message"]
            assert "hdrs" not in found
            assert b"io.nats.jetstream" in base64.b64decode(found["data"])

    asyncio.run(talk())


def test_an_answer_of_the_broker_reaches_anothers_command_subject_without_headers(
    town: Town,
) -> None:
    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            await one.listen("command.h1.*")
            await two.client.publish("mail.h2.h2", b"x", reply="command.h1.h3")
            await until(lambda: one.got)
            ((subject, answer),) = one.got
            assert subject == "command.h1.h3"
            assert json.loads(answer)["stream"] == "mail"

    asyncio.run(talk())


def test_mail_pushed_into_a_stream_is_not_stored_in_anothers_name(town: Town) -> None:
    async def talk() -> None:
        for target in ("$KV.hosts.roster.h3", "mail.h1.h3"):
            async with hosts(town) as (one, two, _):
                await create_consumer(two, deliver_subject=target)
                await two.ask("mail.h2.h2", "forged")
                await two.ask("$JS.API.CONSUMER.INFO.mail.h2")
                stored = {name for stream in STREAMS for name in await subjects_in(one, stream)}
                assert stored == {"mail.h2.h2"}

    asyncio.run(talk())


def test_a_host_cannot_empty_a_bucket_by_a_rollup(town: Town) -> None:
    """A stream that allows rollups would lose the messages of all hosts."""

    async def talk() -> None:
        async with hosts(town) as (one, two, _):
            await one.ask("$KV.hosts.roster.h1", "seen")
            headers = {"Nats-Rollup": "all"}
            done = await two.client.request("$KV.hosts.roster.h2", b"", timeout=10, headers=headers)
            assert "rollup not permitted" in json.loads(done.data)["error"]["description"]
            assert list(await subjects_in(one, "KV_hosts")) == ["$KV.hosts.roster.h1"]

    asyncio.run(talk())


def test_hosts_cannot_reach_another_teams_account(town: Town) -> None:
    """Hosts of both teams have the same names, but neither mail nor buckets cross."""

    async def talk() -> None:
        async with hosts(town) as (one, two, _), connected(town, OTHER, "h1") as foreign:
            assert (await foreign.ask("$JS.API.STREAM.NAMES"))["streams"] is None
            await foreign.listen("command.h1.*")
            await two.listen("command.h2.*")
            await one.listen("command.h1.*")
            for subject in ("mail.h2.h1", "$KV.hosts.roster.h1", "command.h2.h1"):
                with pytest.raises(Error):  # nothing listens there
                    await foreign.client.request(subject, b"of another team", timeout=1)
            await two.client.publish("command.h1.h2", b"to h1 of its own team")
            await until(lambda: one.got)
            await foreign.client.flush()
            assert foreign.got == two.got == []
            for stream in STREAMS:
                assert await subjects_in(one, stream) == {}

    asyncio.run(talk())


def test_a_client_without_a_certificate_is_refused(town: Town) -> None:
    context = ssl.create_default_context(cafile=str(town.broker.ca_cert))
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


def troubles(settings: HostSettings) -> list[str]:
    """Return why the broker refuses a host with these settings."""
    return asyncio.run(find_trouble(settings))


def test_a_plain_text_client_is_refused(town: Town) -> None:
    plain = town.server.replace("tls://", "nats://")
    assert troubles(HostSettings(name="h1", servers=(plain,)))


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
            found = replace(found, ca=town.broker.ca_cert)
        case "itself":
            found = town.issue_by_itself(TEAM, "h1")
        case "the past":
            found = town.issue(TEAM, "h1", lifetime=PAST)
        case _:
            found = replace(town.issue(TEAM, "h1"), cert=town.broker.cert, key=town.broker.key)
    (why,) = troubles(found)
    assert any(word in why for word in ("refuses this host", "does not admit")), why


def test_a_removed_certificate_is_disconnected_at_the_reload_and_stays_refused(
    tmp_path: Path,
) -> None:
    """This holds even when another host gets the same name; stored mail stays."""
    town = Town.found(tmp_path, {TEAM: ["h1", "h2"]})
    old = town.issue(TEAM, "h2")

    async def talk() -> None:
        await create_streams(town)
        async with connected(town, TEAM, "h1") as stays, connected(town, TEAM, "h2") as removed:
            await stays.ask("mail.h2.h1", "waits")
            town.record = town.record.without_host(TEAM, "h2").with_host(TEAM, "h2")
            await asyncio.to_thread(town.broker.write, town.record)
            assert await asyncio.to_thread(town.broker.reload, town.record)
            await until(lambda: removed.client.is_closed)
            async with connected(town, TEAM, "h2") as again:
                await create_consumer(again)
                assert (await again.pull()).data == b'"waits"'
            assert stays.client.is_connected

    with town.open():
        asyncio.run(talk())
        (why,) = troubles(old)
    assert "does not admit this host: its certificate was removed" in why


def test_the_brokers_limit_for_a_message_is_known_to_clients(town: Town) -> None:
    async def talk() -> None:
        async with connected(town, TEAM, "h1") as one:
            with pytest.raises(MaxPayloadError):
                await one.client.publish("mail.h2.h1", bytes(MAX_PAYLOAD + 1))

    asyncio.run(talk())
