"""Connections to the broker, one after another.

The broker only routes here: it stores nothing, and messages without a listener are lost. So nothing
is buffered on this side either: `publish` returns whether there is a connection, and callers that
need a confirmation ask the other host for one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn

from teamd.postman.certificates import Certificates
from teamd.postman.connection import BrokerConnection, LostConnection
from teamd.postman.reasons import explain, is_refusal

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.5  # waiting mail moves soon after the network is repaired
_REFUSED_PAUSE_SECONDS: Final = 15.0  # for errors that only a person can fix
_NO_SERVERS: Final = "[hosts] servers is empty; `teamctl hosts join FILE` fills it"


async def find_trouble(servers: Sequence[str], certificates: Certificates) -> list[str]:
    """Connect to the first of these servers that accepts this host, and disconnect again.

    Returns:
        Why each server failed; empty if one accepted this host.
    """
    _quieten_libraries()
    troubles = []
    for server in servers:
        link = BrokerConnection(server, certificates, lambda _: None)
        try:
            await link.open({})
        except LostConnection as lost:
            troubles.append(explain(lost.error, server, link.name))
        else:
            return []
        finally:
            await link.close()
    return troubles


def _quieten_libraries() -> None:
    logging.getLogger("nats").addHandler(logging.NullHandler())  # `explain` reports every reason
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns at each broker shutdown


class Broker:
    """A sequence of connections to a team's broker.

    Args:
        servers: the broker's addresses, each `tls://HOST:PORT`, in the order in which they are
            tried.
        certificates: for TLS; `None` for a server without TLS, such as a test's on a loopback port.
        subjects: the subjects to subscribe to, each with a callback for subject and payload. Calls
            for one subject do not overlap.
        connected: called once all subjects are subscribed.
        disconnected: called with the reason when a connection is lost, and with all reasons when no
            server accepts this host.
        denied: called with each operation that the broker does not allow this host.
    """

    def __init__(
        self,
        servers: Sequence[str],
        certificates: Certificates | None,
        subjects: Mapping[str, Callable[[str, bytes], Awaitable[None]]],
        *,
        connected: Callable[[], None],
        disconnected: Callable[[str], None],
        denied: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._servers = tuple(servers)
        self._certificates = certificates
        self._subjects = dict(subjects)
        self._connected = connected
        self._disconnected = disconnected
        self._denied = denied
        self._link: BrokerConnection | None = None
        _quieten_libraries()

    @property
    def up(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._link is not None

    @property
    def full(self) -> bool:
        """Whether so much data is buffered that `drain` must precede another `publish`."""
        return self._link is not None and self._link.full

    def publish(self, subject: str, payload: bytes) -> bool:
        """Send a payload to the broker.

        Returns:
            Whether there was a connection. Delivery is not confirmed.
        """
        return self._link is not None and self._link.publish(subject, payload)

    async def drain(self) -> None:
        """Wait until the broker has accepted the published data, or the connection is lost."""
        if self._link is not None:
            await self._link.drain()

    async def run(self) -> NoReturn:
        """Connect and reconnect until cancelled; on cancellation the last payloads are sent.

        Raises:
            Exception: an exception from a callback.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            refused, reasons = False, dict[str, None]()
            for server in self._servers:
                lost, why = await self._serve(server)
                refused = refused or is_refusal(lost.error)
                reasons[why] = None
                if lost.was_up:
                    pause, reasons = _FIRST_PAUSE_SECONDS, {why: None}
                    break
            self._disconnected("; ".join(reasons) or _NO_SERVERS)
            # Jitter, because all hosts lose a broker at the same moment.
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 -- no secret
            pause = min(2 * pause, _REFUSED_PAUSE_SECONDS if refused else _LONGEST_PAUSE_SECONDS)

    async def _serve(self, server: str) -> tuple[LostConnection, str]:
        """Connect to a server; return how the connection ended, and a sentence about it."""
        link = BrokerConnection(server, self._certificates, self._denied)
        try:
            await link.open(self._subjects)
            self._link = link
            self._connected()
            await link.wait()
        except LostConnection as lost:
            lost.was_up = self._link is not None
            self._link = None
            return lost, explain(lost.error, server, link.name)
        finally:
            self._link = None
            await link.close()
