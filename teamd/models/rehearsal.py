"""A rehearsal of the first model call, in a process that waits to be a teammate.

What the call touches of the memory that is shared with the supervisor is copied by that, page by
page: half of the time that it would take.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from teamd.models import Ask, ModelError, canned
from teamd.models.claude import Claude

if TYPE_CHECKING:
    import httpx2

_KEY: Final = "sk-ant-rehearsed"
_SECONDS: Final = 10.0


def rehearse() -> None:
    """Ask nobody, as a teammate asks its model for the first time; nothing leaves this process."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_rehearse())
    finally:
        loop.close()


async def _rehearse() -> None:
    asking = _make(canned.transport())
    with suppress(ModelError):  # the first call will fail as well, and is told of
        said = [{"role": "user", "content": [{"type": "text", "text": "."}]}]
        await asking.reply(Ask(model="none", system=".", tools=[], messages=said, max_tokens=1))
    await asking.close()
    connecting = _make(None)  # to a server, but for the connection
    await connecting.learn_key()
    await connecting.close()


def _make(transport: httpx2.AsyncBaseTransport | None) -> Claude:
    return Claude(
        base_url=canned.URL,
        key_command=None,
        headers={},
        timeout_seconds=_SECONDS,
        cache=True,
        transport=transport,
        key=_KEY,
    )
