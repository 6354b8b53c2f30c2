"""A bare client of nats-py, connected as any host is: by TLS that proves both ends."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import nats
from nats.aio.client import Client

from teamd.postman.certificates import Certificates

SUBJECT: Final = "mail.h4.h3"  # from h3 to h4


def arguments(server: str, certificates: Certificates) -> list[str]:
    """Return what a program is told of a connection."""
    return [server, *map(str, (certificates.cert, certificates.key, certificates.ca))]


async def connect(server: str, *files: str) -> Client:
    """Connect as `arguments` say."""
    return await nats.connect(server, tls=Certificates(*map(Path, files)).context())
