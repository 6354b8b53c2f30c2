"""A broker that runs reads its configuration again, and is asked whether it has."""

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
    """How a reload went."""

    NOT_RUNNING = auto()
    IN_FORCE = auto()
    UNKNOWN = auto()


def reload(broker: BrokerFolder, record: BrokerRecord) -> Reload:
    """Have the broker read its configuration again, and drop whom that does not admit.

    nats-server does not say whether it has. So each revision of the configuration admits a witness
    that no other admits, and it is in force once that is let in.
    """
    if not broker.signal_reload():
        return Reload.UNKNOWN if _listens(record) else Reload.NOT_RUNNING
    with _witness(broker, record) as certificates:
        admitted = asyncio.run(_is_admitted(record, certificates))
    return Reload.IN_FORCE if admitted else Reload.UNKNOWN


def _listens(record: BrokerRecord) -> bool:
    """Return whether something listens there: a broker that was started in another way, say."""
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
    """Issue the witness's certificate, for as long as the block lasts."""
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
