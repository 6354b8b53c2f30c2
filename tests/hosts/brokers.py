"""Real brokers for tests: nats-server on a loopback port, killed by its pid."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from teamctl.hosts import authority
from teamctl.hosts.authority import Pair, Validity
from teamctl.hosts.broker_folder import BrokerFolder, find_program
from teamctl.hosts.record import BrokerRecord
from teamd.postman.broker import Broker
from teamd.postman.certificates import Certificates
from tests.waiting import until, wait_until


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
    configuration.write_text(f'listen: "127.0.0.1:{port}"\n')
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
    broker: BrokerFolder
    record: BrokerRecord

    @classmethod
    def found(cls, folder: Path, teams: dict[str, Sequence[str]]) -> Self:
        """Set up a broker on an unused port."""
        listen = f"127.0.0.1:{free_port()}"
        record = BrokerRecord(id="abc123", listen=listen, addresses=("localhost",), teams={})
        for team, hosts in teams.items():
            for host in hosts:
                record = record.with_host(team, host)
        broker = BrokerFolder(folder / "broker")
        with broker.changing():
            broker.found(record)
            broker.certify_server(record)
            broker.write(record)
        return cls(folder, broker, record)

    def issue(self, team: str, host: str, *, valid: Validity | None = None) -> Certificates:
        """Issue a certificate for a host in the record."""
        user = self.record.user(team, host)
        ca = Pair(self.broker.files.ca_cert.read_bytes(), self.broker.files.ca_key.read_bytes())
        pair = authority.issue_host(ca, host, user, valid or Validity.long())
        return self.keep(user.replace(":", "-"), pair)

    def issue_by_itself(self, team: str, host: str) -> Certificates:
        """Issue a certificate by another CA of the same name."""
        ca = authority.new_authority(f"teamd broker {self.record.id}")
        pair = authority.issue_host(ca, host, self.record.user(team, host), Validity.long())
        return self.keep(f"false-{team}-{host}", pair)

    def issue_server(self, *addresses: str, valid: Validity | None = None) -> Pair:
        ca = Pair(self.broker.files.ca_cert.read_bytes(), self.broker.files.ca_key.read_bytes())
        return authority.issue_server(ca, "broker", addresses, valid or Validity.long())

    def keep(self, name: str, pair: Pair) -> Certificates:
        """Write a certificate and its key to files."""
        cert, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        cert.write_bytes(pair.cert)
        key.write_bytes(pair.key)
        return Certificates(cert, key, self.broker.files.ca_cert)

    @property
    def server(self) -> str:
        return self.record.nearest

    @contextmanager
    def open(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the broker during the block."""
        with serving(self.broker.files.configuration, self.record.port) as server:
            yield server


def past() -> Validity:
    """Return a period that has ended."""
    now = datetime.now(UTC)
    return Validity(now - timedelta(days=2), now - timedelta(days=1))


class Host:
    """A connection that records all callbacks."""

    def __init__(
        self, server: str | Sequence[str], certificates: Certificates | None, *subjects: str
    ) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.lost: list[str] = []
        self.denied: list[str] = []
        self.ups = 0
        self.broker = Broker(
            [server] if isinstance(server, str) else server,
            certificates,
            dict.fromkeys(subjects, self._receive),
            connected=self._up,
            disconnected=self.lost.append,
            denied=self.denied.append,
        )

    async def _receive(self, subject: str, payload: bytes) -> None:
        self.got.append((subject, payload))

    def _up(self) -> None:
        self.ups += 1

    async def says(self, text: str) -> None:
        """Wait until a reason for a lost connection contains this text."""
        await until(lambda: any(text in why for why in self.lost), what=f"{text!r} in {self.lost}")


@asynccontextmanager
async def running(*hosts: Host) -> AsyncIterator[None]:
    """Connect these hosts during the block."""
    async with asyncio.timeout(60):
        tasks = [asyncio.create_task(host.broker.run()) for host in hosts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
