"""What any program of the client's does at least: take messages, and count them.

`python -m tests.hosts.bare_counter SERVER COUNT`; it prints a line once it listens, and another
one once so many have come.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import nats

if TYPE_CHECKING:
    from nats.aio.msg import Msg


async def main() -> None:
    """Count to the end."""
    _, server, most = sys.argv
    came, done = 0, asyncio.Event()

    async def count(_: Msg) -> None:
        nonlocal came
        came += 1
        if came == int(most):
            done.set()

    client = await nats.connect(server)
    await client.subscribe("bare", cb=count)
    await client.flush()
    print("listens", flush=True)  # noqa: T201 -- to who started it
    await done.wait()
    print("done", flush=True)  # noqa: T201 -- the same
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
