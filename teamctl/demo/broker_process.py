"""The demo's broker: nats-server, which ends with the demo, however that ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

from teamd.errors import TeamError
from teamd.programs.reaped import Reaped

_START_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
_LONGEST_LOG: Final = 1 << 16


@dataclass(slots=True)
class BrokerProcess:
    """nats-server on a port of this machine, to be started and ended in turn.

    Attributes:
        argv: the command that starts it.
    """

    argv: Sequence[str]
    port: int
    _loop: asyncio.Runner | None = field(default=None, init=False)
    _program: Reaped | None = field(default=None, init=False)
    _said: bytearray = field(default_factory=bytearray, init=False)

    def start(self) -> None:
        """Start it; it listens when this returns.

        Raises:
            TeamError: it does not.
        """
        self._loop = asyncio.Runner()
        self._loop.run(self._start())

    def end(self) -> None:
        """End it, if it runs; its process is gone when this returns."""
        if self._loop is None:
            return
        with self._loop as loop:
            self._loop = None
            if self._program is not None:
                with self._program as program:
                    self._program = None
                    loop.run(program.end())

    async def _start(self) -> None:
        self._program = Reaped(self.argv, output=self._hear, cwd=None, env=None)
        ended = asyncio.ensure_future(self._program.wait())
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not listens(self.port):
                    await asyncio.wait([ended], timeout=_PAUSE_SECONDS)
                    if ended.done():
                        self._program.drain()
                        raise self._failure(f"exit status {ended.result()}")
        except OSError as error:  # a TimeoutError, too
            raise self._failure(str(error) or f"nothing after {_START_SECONDS:g} s") from error
        finally:
            ended.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await ended

    def _hear(self, said: bytes) -> None:
        self._said += said
        del self._said[:-_LONGEST_LOG]

    def _failure(self, why: str) -> TeamError:
        said = self._said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return TeamError(f"the demo failed: nats-server did not start: {said or why}")


def find_free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether anybody listens on a port of loopback."""
    with closing(socket.socket()) as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
