"""A minimal receiver: count messages.

`python -m tests.hosts.bare_counter COUNT CONNECTION…`; it prints a line once it listens, and
another after COUNT messages.
"""

from __future__ import annotations

import asyncio
import sys

from nats.aio.msg import Msg

from tests.hosts import bare


async def main() -> None:
    """Count messages until the total is reached."""
    _, most, *connection = sys.argv
    came, done = 0, asyncio.Event()

    async def count(_: Msg) -> None:
        nonlocal came
        came += 1
        if came == int(most):
            done.set()

    client = await bare.connect(*connection)
    await client.subscribe("command.h4.*", cb=count)
    await client.flush()
    print("listens", flush=True)  # noqa: T201 -- for the parent process
    await done.wait()
    print("done", flush=True)  # noqa: T201 -- the same
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
