"""The connections to the broker, one after the other.

A broker is a plain router here: it stores nothing, and what is published while nobody listens is
gone. So nothing is kept back for later either: `publish` says whether there is a connection, and
whoever needs more asks the far side.
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
_LONGEST_PAUSE_SECONDS: Final = 1.5  # what waits moves soon after a heal
_REFUSED_PAUSE_SECONDS: Final = 15.0  # where only a person can mend it
_NO_SERVERS: Final = "[hosts] servers is empty; `teamctl hosts join FILE` fills it"


async def find_trouble(servers: Sequence[str], certificates: Certificates) -> list[str]:
    """Connect to the first of these servers that takes this host, and leave it again.

    Returns:
        Why none does, for each; nothing where one does.
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
    logging.getLogger("nats").addHandler(logging.NullHandler())  # every reason is told here
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each broker that ends


class Broker:
    """One connection after the other to a team's broker.

    Args:
        servers: the broker's addresses, each `tls://HOST:PORT`; the first is tried first.
        certificates: for TLS; `None` for a server without, as on a loopback port of a test.
        subjects: what to subscribe, and what to call with a subject and its payload. Such calls
            come one after the other for each of these.
        connected: is called once all of that is subscribed.
        disconnected: is called with the reason when a connection is lost, and with those of all
            servers when none of them takes this host.
        denied: is called with what the broker does not allow this host.
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
        """Whether so much waits to be taken that `drain` comes before another `publish`."""
        return self._link is not None and self._link.full

    def publish(self, subject: str, payload: bytes) -> bool:
        """Hand a payload to the broker.

        Returns:
            Whether it was handed over; nothing says that it arrives.
        """
        return self._link is not None and self._link.publish(subject, payload)

    async def drain(self) -> None:
        """Wait until the broker has taken what was published, or the connection is lost."""
        if self._link is not None:
            await self._link.drain()

    async def run(self) -> NoReturn:
        """Connect, and connect again, until this is cancelled; the last payloads are handed over.

        Raises:
            Exception: what a callback has raised.
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
            # Jitter: all hosts lose a broker in the same moment.
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 -- no secret
            pause = min(2 * pause, _REFUSED_PAUSE_SECONDS if refused else _LONGEST_PAUSE_SECONDS)

    async def _serve(self, server: str) -> tuple[LostConnection, str]:
        """Connect to a server, and return how that ended, also in a sentence."""
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
