"""Make a running broker reload its configuration, and verify that it has."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from teamctl.hosts.record import BrokerRecord
from teamd.files import files
from teamd.postman.broker import find_trouble
from teamd.postman.certificates import Certificates

if TYPE_CHECKING:
    from teamctl.hosts.broker_folder import BrokerFolder

_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1


class Reload(Enum):
    """The result of a reload."""

    NOT_RUNNING = auto()
    IN_FORCE = auto()
    UNKNOWN = auto()


def reload(broker: BrokerFolder, record: BrokerRecord) -> Reload:
    """Make the broker reload its configuration and drop hosts that are no longer admitted.

    nats-server does not report whether it has reloaded. So each revision of the configuration
    admits a witness user that no other revision admits; a successful login shows that it is in
    force.
    """
    if not broker.signal_reload():
        return Reload.UNKNOWN if _listens(record) else Reload.NOT_RUNNING
    with _witness(broker, record) as certificates:
        admitted = asyncio.run(_is_admitted(record, certificates))
    return Reload.IN_FORCE if admitted else Reload.UNKNOWN


def _listens(record: BrokerRecord) -> bool:
    """Return whether a server listens there, such as a broker that was started in another way."""
    place = urlsplit(record.nearest)
    try:
        socket.create_connection((place.hostname, place.port), timeout=_SECONDS).close()
    except OSError as error:
        return isinstance(error, TimeoutError)
    return True


async def _is_admitted(record: BrokerRecord, certificates: Certificates) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS):
            while True:
                if not await find_trouble([record.nearest], certificates):
                    return True
                await asyncio.sleep(_PAUSE_SECONDS)
    return False


@contextmanager
def _witness(broker: BrokerFolder, record: BrokerRecord) -> Iterator[Certificates]:
    """Issue the witness's certificate for the duration of the block."""
    folder = broker.files.folder
    found = Certificates(folder / "witness.crt", folder / "witness.key", broker.files.ca_cert)
    pair = broker.issue_witness(record)
    files.replace(found.cert, pair.cert, durable=False)
    files.replace(found.key, pair.key, durable=False)
    try:
        yield found
    finally:
        files.remove(found.cert)
        files.remove(found.key)
