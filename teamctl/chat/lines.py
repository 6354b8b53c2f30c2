"""Lines that come from no terminal that could draw: a pipe, a file, or a person beside a pipe."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SIZE: Final = 1 << 16


async def lines(fd: int) -> AsyncIterator[str]:
    """Yield lines as they come; the loop goes on meanwhile. What is not UTF-8 is no crash."""
    rest = b""
    while part := await _read(fd):
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:  # epoll(7) takes no regular file, which lets nobody wait
        return os.read(fd, _SIZE)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _SIZE)
