"""Real brokers for tests: nats-server on a loopback port, killed by its pid."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.msg import Msg

from teamctl.hosts import broker, certificates
from teamctl.hosts.broker import BrokerRecord, find_program
from teamctl.hosts.certificates import TEN_YEARS, Pair
from teamd.postman.connection import make_context
from teamd.settings.schema import HostSettings
from tests.waiting import wait_until


def free_port() -> int:
    """Return an unused loopback port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serving(configuration: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run nats-server during the block."""
    log = configuration.with_suffix(".log").open("ab")
    argv = [find_program(), "-c", str(configuration)]
    with log, subprocess.Popen(argv, stdout=log, stderr=log) as server:
        try:
            wait_until(lambda: listens(port), what=f"nats-server on {port}")
            yield server
        finally:
            server.kill()


@contextmanager
def plain(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a broker without TLS."""
    configuration = folder / "plain.conf"
    store = folder / "jetstream"
    configuration.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{store}" }}\n')
    with serving(configuration, port) as server:
        yield server


@dataclass(slots=True)
class Town:
    """A broker's folder with hosts, whose certificates are issued on request.

    Attributes:
        folder: the folder for all files.
        broker: the broker's folder.
        record: the broker's record.
    """

    folder: Path
    broker: broker.Broker
    record: BrokerRecord

    @classmethod
    def found(cls, folder: Path, teams: dict[str, Sequence[str]]) -> Self:
        """Set up a broker on an unused port."""
        listen = f"127.0.0.1:{free_port()}"
        record = BrokerRecord(id="abc123", listen=listen, addresses=("localhost",), teams={})
        for team, hosts in teams.items():
            for host in hosts:
                record = record.with_host(team, host)
        record = record.changed(own={team: hosts[0] for team, hosts in teams.items()})
        made = broker.Broker(folder / "broker")
        with made.changing():
            made.create_authority(record)
            made.certify_server(record)
            made.write(record)
        return cls(folder, made, record)

    def issue(self, team: str, host: str, *, lifetime: timedelta = TEN_YEARS) -> HostSettings:
        """Issue a certificate for a host in the record."""
        user = self.record.user(team, host)
        ca = self.broker.authority()
        pair = certificates.issue_host(ca, host, user, lifetime)
        return self.keep(host, user.replace(":", "-"), pair)

    def issue_by_itself(self, team: str, host: str) -> HostSettings:
        """Issue a certificate by another CA of the same name."""
        ca = certificates.new_authority(f"teamd broker {self.record.id}")
        pair = certificates.issue_host(ca, host, self.record.user(team, host))
        return self.keep(host, f"false-{team}-{host}", pair)

    def issue_server(self, *addresses: str, lifetime: timedelta = TEN_YEARS) -> Pair:
        ca = self.broker.authority()
        return certificates.issue_server(ca, "broker", addresses, lifetime)

    def keep(self, host: str, name: str, pair: Pair) -> HostSettings:
        """Write a certificate and its key to files; return the settings of the host."""
        cert, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        cert.write_bytes(pair.cert)
        key.write_bytes(pair.key)
        servers, ca = (self.server,), self.broker.ca_cert
        return HostSettings(name=host, servers=servers, cert=cert, key=key, ca=ca)

    @property
    def server(self) -> str:
        return self.record.nearest

    @contextmanager
    def open(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the broker during the block."""
        with serving(self.broker.configuration, self.record.port) as server:
            yield server


PAST = timedelta(days=-1)  # the lifetime of a certificate that has expired


@dataclass(slots=True)
class Raw:
    """A bare client of nats-py with a host's certificate.

    Attributes:
        got: the subjects and payloads that its subscriptions received.
        denied: the errors of the broker, in lower case.
    """

    name: str
    client: Client
    got: list[tuple[str, bytes]] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)

    async def listen(self, subject: str) -> None:
        async def receive(message: Msg) -> None:
            self.got.append((message.subject, message.data))

        await self.client.subscribe(subject, cb=receive)
        await self.client.flush()  # the first may overtake the subscription
        await self.client.flush()

    async def ask(self, subject: str, document: Any = None) -> Any:
        """Return JetStream's answer to an API call."""
        payload = b"" if document is None else json.dumps(document).encode()
        return json.loads((await self.client.request(subject, payload, timeout=10)).data)

    async def is_denied(self, subject: str, payload: bytes = b"") -> bool:
        """Publish to a subject, and return whether the broker reports a violation."""
        await self.client.publish(subject, payload)
        await self.client.flush()  # the first may overtake the message
        await self.client.flush()
        told = f'permissions violation for publish to "{subject.lower()}"'
        return any(told in one for one in self.denied)

    async def pull(self) -> Msg:
        """Return the next message of the consumer with the host's name."""
        inbox = self.client.new_inbox()
        subscription = await self.client.subscribe(inbox)
        await self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.mail.{self.name}", reply=inbox)
        return await subscription.next_msg(timeout=10)


@asynccontextmanager
async def connected(town: Town, team: str, name: str) -> AsyncIterator[Raw]:
    """Connect a bare client in the name of a host during the block."""
    host = Raw(name, Client())

    async def note(error: Exception) -> None:
        host.denied.append(str(error).lower())

    await host.client.connect(
        town.server,
        tls=make_context(town.issue(team, name)),
        inbox_prefix=f"_INBOX.{name}".encode(),
        error_cb=note,
        allow_reconnect=False,
    )
    try:
        async with asyncio.timeout(60):
            yield host
    finally:
        await host.client.close()
