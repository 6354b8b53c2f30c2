"""One connection to the broker: the only module that uses NATS.

Each connection uses a new client, because the client of nats-py stops permanently after some
errors, may wait forever on a dead connection, and talks plain text to a server that does not
require TLS.
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

_PING_SECONDS: Final = 2.5  # without data; beats of other hosts normally arrive sooner
_SILENCE_SECONDS: Final = 5.0  # without data, including pongs: the connection counts as lost
_STEP_SECONDS: Final = 3  # for each step of connecting; nats-py needs whole seconds
_CONNECT_SECONDS: Final = 8.0  # for all steps together
_SOON_SECONDS: Final = 0.05
_CLOSE_SECONDS: Final = 1.0  # to send the data published last
_MOST_WAITING_BYTES: Final = 8 << 20  # received and not yet processed
_FULL_BYTES: Final = 1 << 20  # of unsent data, above which publishers wait
_MOST_PENDING_BYTES: Final = 1 << 30  # above which nats-py would block, even on a dead connection
_NEVER_SECONDS: Final = 86_400 * 365


class LostConnection(Exception):
    """A connection ended or could not be made.

    Attributes:
        error: the reason; `None` if the other side closed the connection.
        was_up: whether the connection had been made.
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
        except Exception as error:  # an unknown server may send anything
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
            # `wait` pings; nats-py's own ping may block forever while closing.
            ping_interval=_NEVER_SECONDS,
            pending_size=_MOST_PENDING_BYTES,
            no_echo=True,
            **options,
        )
        if not self._client.is_connected:  # `connect` treats an early end of file as success
            raise LostConnection(self._explained(self._failure))
        self._client.on_last_read(lambda: self._end(self._client.last_error or self._failure))

    def _explained(self, error: BaseException | None) -> BaseException | None:
        """Return why the connection failed.

        A refused certificate may show only as a closed connection.
        """
        ended = error is None or isinstance(error, ConnectionError | EOFError)
        return NotAdmitted() if ended and self._wire.secured else error

    @property
    def full(self) -> bool:
        """Whether so much unsent data is buffered that `drain` must come first."""
        return self._wire.waiting_bytes > _FULL_BYTES

    def publish(self, subject: str, payload: bytes) -> bool:
        """Send a payload; return whether the connection still exists.

        A payload over the broker's limit is dropped: it would end the connection for all hosts.
        """
        if len(payload) > self._client.max_payload:
            self._denied(f"{len(payload)} bytes at a time, to {subject}")
            return not self._lost.done()
        # Written at once; a task of nats-py would do so some loop iterations later.
        head = f"PUB {subject} {len(payload)}\r\n".encode()
        self._wire.write(b"%s%s\r\n" % (head, payload))
        return not self._lost.done()

    async def drain(self) -> None:
        """Wait until the connection accepts more data or is lost, including by a timeout."""
        before, taken = self._wire.waiting_bytes, asyncio.ensure_future(self._wire.drained())
        either: list[asyncio.Future[Any]] = [taken, self._lost]
        done, _ = await asyncio.wait(
            either, timeout=_SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        taken.cancel()
        if not done and self._wire.waiting_bytes >= before:
            self._end(Silence())
        elif taken in done and self.full:  # the connection is closed, and the reason follows soon
            await asyncio.wait([self._lost], timeout=_SOON_SECONDS)

    async def wait(self) -> NoReturn:
        """Wait until the connection is lost.

        Raises:
            LostConnection: always.
        """
        loop = asyncio.get_running_loop()
        asked = -1.0  # the value of `heard` at the last ping
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
        """Send the data published last, if that is quick, and close."""
        if not self._begun:
            return
        if self._lost.done():
            self._wire.abort()  # before closing, which may block on a dead connection
        # AssertionError: there never was a connection.
        with suppress(OSError, Error, AssertionError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._client.close()
        self._wire.abort()

    def _handing_to(
        self, receive: Callable[[str, bytes], Awaitable[None]]
    ) -> Callable[[Msg], Awaitable[None]]:
        async def hand(message: Msg) -> None:
            try:
                await receive(message.subject, message.data)
            except Exception as error:  # noqa: BLE001 -- raised again by `wait`
                if not self._lost.done():
                    self._lost.set_exception(error)

        return hand

    async def _note(self, error: Exception) -> None:
        """Handle an error from nats-py: some end the connection, others are only reported."""
        if isinstance(error, SlowConsumerError):
            return  # dropped data is requested again
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
    """A client that uses our transport."""

    def __init__(self, wire: _Wire) -> None:
        super().__init__()
        self._transport = wire

    def on_last_read(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the reader ends: after some errors nothing else is closed."""
        assert self._reading_task is not None  # noqa: S101 -- it is connected
        self._reading_task.add_done_callback(lambda _: tell())

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """Handle a message without reply subject and headers, which our hosts never send.

        The client stops reading if it cannot parse them, so one host could cut off another.
        """
        del reply, headers
        await super()._process_msg(sid, subject, b"", data, b"")


class _Wire(TcpTransport):
    """A transport that writes nothing before TLS, and can be dropped immediately.

    Attributes:
        heard: when data last arrived, by the loop's clock.
        secured: whether the TLS handshake has verified the broker.
    """

    def __init__(self, *, secure: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._may_write = not secure
        self.secured = False
        self.heard = asyncio.get_running_loop().time()

    def __bool__(self) -> bool:
        """Always true, so that nats-py does not create a transport of its own."""
        return True

    async def connect_tls(self, *arguments: Any) -> None:
        """Upgrade to TLS."""
        await super().connect_tls(*arguments)
        self._may_write = self.secured = True

    def write(self, payload: bytes) -> None:
        """Write, unless the connection is still in plain text."""
        if not self._may_write:
            raise NotSecure
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: Sequence[bytes]) -> None:
        for one in payload:
            self.write(one)

    @property
    def waiting_bytes(self) -> int:
        """The number of written bytes that the operating system has not accepted yet."""
        return 0 if self._io_writer is None else self._io_writer.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Wait until the operating system has accepted nearly all data, or the connection fails."""
        with suppress(OSError):
            await super().drain()  # type: ignore[no-untyped-call]

    async def read(self, buffer_size: int) -> bytes:
        """Read, and record the time."""
        found: bytes = await super().read(buffer_size)
        self.heard = asyncio.get_running_loop().time()
        return found

    async def wait_closed(self) -> None:
        """Do nothing: the other side of a dead connection never confirms a close."""

    def abort(self) -> None:
        """Drop the connection with all unsent data.

        This aborts the TCP transport: in Python 3.11.2 a TLS transport that was closed twice can no
        longer be aborted.
        """
        if self._bare_io_writer is not None:
            self._bare_io_writer.transport.abort()
