"""A minimal receiver: append each message to a file and sync it.

`python -m tests.hosts.bare_client FILE CONNECTION…`; it prints a line once it listens.
"""

from __future__ import annotations

import asyncio
import os
import sys

from nats.aio.msg import Msg

from tests.hosts import bare


async def main() -> None:
    """Receive messages until killed."""
    _, path, *connection = sys.argv
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def append(message: Msg) -> None:
        os.write(fd, message.data + b"\n")
        os.fdatasync(fd)

    client = await bare.connect(*connection)
    await client.subscribe("command.h4.*", cb=append)
    await client.flush()
    print("listens", flush=True)  # noqa: T201 -- for the parent process
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
