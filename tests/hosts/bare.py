"""A bare client of nats-py, connected like a host: by mutual TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import nats
from nats.aio.client import Client

from teamd.postman.connection import make_context
from teamd.settings.schema import HostSettings

SUBJECT: Final = "command.h4.h3"  # from h3 to h4, and not stored


def arguments(server: str, settings: HostSettings) -> list[str]:
    """Return the command-line arguments for a connection."""
    return [server, *map(str, (settings.cert, settings.key, settings.ca))]


async def connect(server: str, *files: str) -> Client:
    """Connect with the arguments from `arguments`."""
    cert, key, ca = map(Path, files)
    context = make_context(HostSettings(servers=(server,), cert=cert, key=key, ca=ca))
    return await nats.connect(server, tls=context)
