"""A bare client of nats-py, connected like a host: by mutual TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import nats
from nats.aio.client import Client

from teamd.postman.certificates import Certificates

SUBJECT: Final = "mail.h4.h3"  # from h3 to h4


def arguments(server: str, certificates: Certificates) -> list[str]:
    """Return the command-line arguments for a connection."""
    return [server, *map(str, (certificates.cert, certificates.key, certificates.ca))]


async def connect(server: str, *files: str) -> Client:
    """Connect with the arguments from `arguments`."""
    return await nats.connect(server, tls=Certificates(*map(Path, files)).context())
