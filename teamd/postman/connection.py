"""One connection to the broker: the only module that talks NATS.

Each connection is a new client, since that of nats-py gives up for good at some errors, may wait
forever for a wire that is dead, and talks in plain text to a server that asks for no TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.errors import Error, SlowConsumerError

from teamd.postman.certificates import Certificates
from teamd.postman.reasons import NotAdmitted, NotSecure, Silence

_PING_SECONDS: Final = 2.5  # without a byte: where other hosts are, their beats come sooner
_SILENCE_SECONDS: Final = 5.0  # without a byte, pongs included: the way there is cut
_STEP_SECONDS: Final = 3  # for each step of connecting; nats-py counts in whole ones
_CONNECT_SECONDS: Final = 8.0  # for all of them
_SOON_SECONDS: Final = 0.05
_CLOSE_SECONDS: Final = 1.0  # to hand over what was published last
_MOST_WAITING_BYTES: Final = 8 << 20  # that were received and not yet dealt with
_FULL_BYTES: Final = 1 << 20  # that wait to be written: a publisher waits, too
_MOST_PENDING_BYTES: Final = 1 << 30  # where nats-py would wait, even for a wire that is dead
_NEVER_SECONDS: Final = 86_400 * 365


class LostConnection(Exception):
    """A connection has ended, or was never made.

    Attributes:
        error: why; `None` where the other end has closed it.
        was_up: whether it was made.
    """

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error
        self.was_up = False


class BrokerConnection:
    """One connection to one server, until it is lost."""

    def __init__(
        self, server: str, certificates: Certificates | None, denied: Callable[[str], None]
    ) -> None:
        parts = urlsplit(server)
        self.name = parts.hostname or server
        self._url = f"nats://{parts.netloc}"
        self._certificates = certificates
        self._denied = denied
        self._wire = _Wire(secure=certificates is not None or parts.scheme == "tls")
        self._client = _Client(self._wire)
        self._lost: asyncio.Future[BaseException | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._failure: BaseException | None = None
        self._begun = False

    async def open(self, subjects: Mapping[str, Callable[[str, bytes], Awaitable[None]]]) -> None:
        """Connect and subscribe.

        Raises:
            LostConnection: that failed.
        """
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._connect()
                for subject, receive in subjects.items():
                    handed = self._handing_to(receive)
                    most = _MOST_WAITING_BYTES
                    await self._client.subscribe(subject, cb=handed, pending_bytes_limit=most)
                await self._client.flush(_STEP_SECONDS)
        except LostConnection:
            raise
        except Exception as error:  # whoever listens there may say anything
            raise LostConnection(self._explained(self._failure or error)) from error

    async def _connect(self) -> None:
        options: dict[str, Any] = {}
        if self._certificates is not None:
            options["tls"] = self._certificates.context()
        self._begun = True
        await self._client.connect(
            [self._url],
            error_cb=self._note,
            closed_cb=self._closed,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_STEP_SECONDS,
            ping_interval=_NEVER_SECONDS,  # `wait` does that: theirs may wait forever as it closes
            pending_size=_MOST_PENDING_BYTES,
            no_echo=True,
            **options,
        )
        if not self._client.is_connected:  # it takes an end of file in the middle for success
            raise LostConnection(self._explained(self._failure))
        self._client.on_last_read(lambda: self._end(self._client.last_error or self._failure))

    def _explained(self, error: BaseException | None) -> BaseException | None:
        """Return why this was not let in: the refusal of a certificate may come as a mere end."""
        ended = error is None or isinstance(error, ConnectionError | EOFError)
        return NotAdmitted() if ended and self._wire.secured else error

    @property
    def full(self) -> bool:
        """Whether so much waits to be written that `drain` comes first."""
        return self._wire.waiting_bytes > _FULL_BYTES

    def publish(self, subject: str, payload: bytes) -> bool:
        """Hand over a payload; returns whether the connection has lasted so long.

        One that the broker does not take is dropped: it would end the connection, for all hosts.
        """
        if len(payload) > self._client.max_payload:
            self._denied(f"{len(payload)} bytes at a time, to {subject}")
            return not self._lost.done()
        # Written at once: a task of nats-py's would do so, some turns of the loop later.
        head = f"PUB {subject} {len(payload)}\r\n".encode()
        self._wire.write(b"%s%s\r\n" % (head, payload))
        return not self._lost.done()

    async def drain(self) -> None:
        """Wait until the wire takes more, or is lost: also one that takes nothing for long."""
        before, taken = self._wire.waiting_bytes, asyncio.ensure_future(self._wire.drained())
        either: list[asyncio.Future[Any]] = [taken, self._lost]
        done, _ = await asyncio.wait(
            either, timeout=_SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        taken.cancel()
        if not done and self._wire.waiting_bytes >= before:
            self._end(Silence())
        elif taken in done and self.full:  # it is closed already, and why is told soon
            await asyncio.wait([self._lost], timeout=_SOON_SECONDS)

    async def wait(self) -> NoReturn:
        """Wait until the connection is lost.

        Raises:
            LostConnection: it is.
        """
        loop = asyncio.get_running_loop()
        asked = -1.0  # when the last byte had come as the broker was asked for one
        while True:
            heard = self._wire.heard
            patience = _SILENCE_SECONDS if asked == heard else _PING_SECONDS
            await asyncio.wait([self._lost], timeout=max(0.0, heard + patience - loop.time()))
            if self._lost.done():
                raise LostConnection(self._lost.result())
            if self._wire.heard != heard:
                continue
            if asked == heard:
                self._end(Silence())
            else:
                self._wire.write(b"PING\r\n")
                asked = heard

    async def close(self) -> None:
        """Hand over what was published last, if that is quick, and close."""
        if not self._begun:
            return
        if self._lost.done():
            self._wire.abort()  # before it is closed, or that may wait for a dead wire
        with suppress(OSError, Error, AssertionError):  # the last: it never came to a connection
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._client.close()
        self._wire.abort()

    def _handing_to(
        self, receive: Callable[[str, bytes], Awaitable[None]]
    ) -> Callable[[Msg], Awaitable[None]]:
        async def hand(message: Msg) -> None:
            try:
                await receive(message.subject, message.data)
            except Exception as error:  # noqa: BLE001 -- it is raised where the connection is waited for
                if not self._lost.done():
                    self._lost.set_exception(error)

        return hand

    async def _note(self, error: Exception) -> None:
        """Take what nats-py reports: some of it ends the connection, some is only said."""
        if isinstance(error, SlowConsumerError):
            return  # what was dropped is asked for again
        if "permissions violation" in str(error).lower():
            self._denied(str(error).removeprefix("nats: "))
            return
        self._failure = error

    async def _closed(self) -> None:
        self._end(self._client.last_error or self._failure)

    def _end(self, error: BaseException | None) -> None:
        if not self._lost.done():
            self._lost.set_result(error)


class _Client(Client):
    """A client that talks over a wire of ours."""

    def __init__(self, wire: _Wire) -> None:
        super().__init__()
        self._transport = wire

    def on_last_read(self, tell: Callable[[], None]) -> None:
        """Have it told when nothing is read any more: some errors end the reader and no more."""
        assert self._reading_task is not None  # noqa: S101 -- it is connected
        self._reading_task.add_done_callback(lambda _: tell())

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """Take a message without reply subject and headers, which no host of ours sends.

        Where it cannot read those, the client would stop reading: one host could deafen another.
        """
        del reply, headers
        await super()._process_msg(sid, subject, b"", data, b"")


class _Wire(TcpTransport):
    """A connection that writes nothing before TLS, and can be dropped at once.

    Attributes:
        heard: when the last byte came, by the loop's clock.
        secured: whether the broker has proven itself by TLS.
    """

    def __init__(self, *, secure: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._may_write = not secure
        self.secured = False
        self.heard = asyncio.get_running_loop().time()

    def __bool__(self) -> bool:
        """It is there from the start, so that nats-py makes none of its own."""
        return True

    async def connect_tls(self, *arguments: Any) -> None:
        """Go over to TLS."""
        await super().connect_tls(*arguments)
        self._may_write = self.secured = True

    def write(self, payload: bytes) -> None:
        """Write, unless anybody on the way could read it."""
        if not self._may_write:
            raise NotSecure
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: Sequence[bytes]) -> None:
        """Write several, likewise."""
        for one in payload:
            self.write(one)

    @property
    def waiting_bytes(self) -> int:
        """How much was written that the system has not taken yet."""
        return 0 if self._io_writer is None else self._io_writer.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Wait until the system has taken nearly all that was written, or will take no more."""
        with suppress(OSError):
            await super().drain()  # type: ignore[no-untyped-call]

    async def read(self, buffer_size: int) -> bytes:
        """Read, and note when."""
        found: bytes = await super().read(buffer_size)
        self.heard = asyncio.get_running_loop().time()
        return found

    async def wait_closed(self) -> None:
        """Do not wait: the far end of a dead wire says no good-bye."""

    def abort(self) -> None:
        """Drop the connection with all that is under way.

        What is dropped is the TCP connection: in Python 3.11.2 a TLS transport that was closed
        twice cannot be aborted any more.
        """
        if self._bare_io_writer is not None:
            self._bare_io_writer.transport.abort()
