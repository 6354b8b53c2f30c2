"""What any program of the client's does: take a message and append it to a file, with a sync.

`python -m tests.hosts.bare_client FILE CONNECTION…`; it prints a line once it listens.
"""

from __future__ import annotations

import asyncio
import os
import sys

from nats.aio.msg import Msg

from tests.hosts import bare


async def main() -> None:
    """Listen until it is killed."""
    _, path, *connection = sys.argv
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def append(message: Msg) -> None:
        os.write(fd, message.data + b"\n")
        os.fdatasync(fd)

    client = await bare.connect(*connection)
    await client.subscribe(bare.SUBJECT, cb=append)
    await client.flush()
    print("listens", flush=True)  # noqa: T201 -- to who started it
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
