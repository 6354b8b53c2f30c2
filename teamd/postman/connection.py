"""One connection to the broker: the only module that uses nats-py.

Each connection uses a new client, because a client of nats-py stops permanently after some errors.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error, NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import (
    APIError,
    NoStreamResponseError,
    NotFoundError,
    ServiceUnavailableError,
)

from teamd.errors import TeamError
from teamd.settings.kinds import sends_plaintext
from teamd.settings.schema import HostSettings

STEP_SECONDS: Final = 3.0  # for each request to the broker
_CONNECT_SECONDS: Final = 8.0
_CLOSE_SECONDS: Final = 0.5
_PING_SECONDS: Final = 2
_ACK_SECONDS: Final = 4.0  # after which unacknowledged mail is delivered again
_MOST_UNACKNOWLEDGED: Final = 1024
_MEMORY_SECONDS: Final = 60.0  # for which the bucket of rosters keeps a value
_MOST_PENDING_BYTES: Final = 64 << 20
MAIL: Final = "mail"  # the stream, with the subjects `mail.RECEIVER.SENDER`
HOSTS: Final = "hosts"  # the bucket of beats and rosters, in memory
CONFIRMED: Final = "confirmed"  # the bucket of confirmations, by `SENDER.RECEIVER`

# Codes of OpenSSL's X509_V_ERR_…
_EXPIRED: Final = (9, 10)  # not yet valid, or expired
_FOREIGN: Final = (18, 19, 20, 21)  # self-signed, or issued by another CA
_OTHER_NAME: Final = (62, 64)  # a host name, an IP address
_NOT_ADMITTED: Final = ("authorization violation", "authorization failed", "authentication revoked")
_ENDED: Final = ("unexpected EOF", "empty response from server")  # wording of nats-py
_NO_JETSTREAM: Final = (
    "{server} stores no mail; run `teamctl hosts init --renew` on the broker's host, and restart "
    "the broker"
)
_NO_STREAM: Final = "the broker is empty; it is set up as soon as teamd runs on the broker's host"
_DENIED: Final = (
    "the broker does not let this host speak as {name}; [hosts] name must be the one that its "
    "certificate is for, which `teamctl hosts join` writes"
)
NO_SERVERS: Final = "[hosts] servers is empty; `teamctl hosts join FILE` fills it"


class NotSecure(ConnectionError):
    """The server does not offer TLS."""


class NotAdmitted(ConnectionError):
    """The broker ended the connection after it had identified this host."""


class LostConnection(Exception):
    """A connection ended or could not be made.

    Attributes:
        why: the reason, in a sentence with a remedy.
        was_up: whether the connection had been made.
        refused: whether only a person can fix the cause.
    """

    def __init__(self, why: str, *, was_up: bool = False, refused: bool = False) -> None:
        super().__init__(why)
        self.why, self.was_up, self.refused = why, was_up, refused


EXPECTED: Final = (Error, TimeoutError, ConnectionError)  # of a connection that ends
NotStored = APIError, NoStreamResponseError  # the broker's answers if it does not store a message


class NoAnswer(Exception):
    """A request was not answered in time; `nobody`: nobody listens to its subject."""

    def __init__(self, *, nobody: bool) -> None:
        super().__init__()
        self.nobody = nobody


class _TlsContext(ssl.SSLContext):
    """A TLS context that knows whether a connection has used it.

    nats-py talks plain text to a server that does not ask for TLS.
    """

    _last: ssl.SSLObject | None = None

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self._last = super().wrap_bio(*arguments, **options)
        return self._last

    @property
    def has_begun(self) -> bool:
        return self._last is not None

    @property
    def is_used(self) -> bool:
        # The version is unknown again after an alert, such as the refusal of a certificate.
        return self._last is not None and self._last.cipher() is not None


def make_context(settings: HostSettings) -> _TlsContext:
    """Return a TLS context that verifies the broker and shows it this host's certificate, if any.

    Raises:
        TeamError: a file is missing, or the files do not match.
    """
    context = _TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    places = f"{settings.ca}, {settings.cert} and {settings.key}"
    again = "`teamctl hosts join FILE` writes them anew"
    try:
        if settings.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=settings.ca)
        if settings.cert is not None:
            context.load_cert_chain(settings.cert, settings.key)
    except ssl.SSLError as error:
        why = error.reason or error
        raise TeamError(f"{places} do not belong together ({why}); {again}") from error
    except OSError as error:
        raise TeamError(f"one of {places} cannot be read ({error.strerror}); {again}") from error
    return context


async def find_trouble(settings: HostSettings) -> list[str]:
    """Connect to the first server that accepts this host, and disconnect again.

    Returns:
        Why each server failed; empty if one accepted this host.
    """
    troubles = []
    for server in settings.servers:
        try:
            async with BrokerConnection.open(server, settings):
                return []
        except LostConnection as lost:
            troubles.append(lost.why)
    return troubles


class BrokerConnection:
    """One connection to one server, until it is lost."""

    def __init__(self, server: str, settings: HostSettings) -> None:
        self.server, self.settings = server, settings
        self.name = (settings.name or "").lower()
        self.jetstream: JetStreamContext
        self._client = Client()
        self._tls: _TlsContext | None = None
        self._lost: asyncio.Future[BaseException | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._denied: list[str] = []
        self._failure: Exception | None = None  # of which nats-py raises only a summary

    @classmethod
    @asynccontextmanager
    async def open(cls, server: str, settings: HostSettings) -> AsyncIterator[BrokerConnection]:
        """Connect to a server for the duration of the block.

        Raises:
            LostConnection: the server does not accept this host.
        """
        for name in ("nats", "asyncio"):  # every reason is raised
            logging.getLogger(name).setLevel(logging.CRITICAL)
        link = cls(server, settings)
        try:
            await link._connect()
            yield link
        finally:
            with suppress(OSError, Error, TimeoutError, AssertionError, AttributeError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await link._client.close()

    @classmethod
    @asynccontextmanager
    async def open_any(cls, settings: HostSettings) -> AsyncIterator[BrokerConnection]:
        """Connect to the first server that accepts this host.

        Raises:
            LostConnection: no server does.
        """
        reasons: dict[str, None] = {}
        async with AsyncExitStack() as stack:
            for server in settings.servers:
                try:
                    link = await stack.enter_async_context(cls.open(server, settings))
                except LostConnection as lost:
                    reasons[lost.why] = None
                else:
                    yield link
                    return
        raise LostConnection("; ".join(reasons) or NO_SERVERS)

    async def _connect(self) -> None:
        try:
            options = self._secure()
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._client.connect(
                    [self.server.replace("tls:", "nats:", 1)],
                    name=f"teamd {self.name}",
                    error_cb=self._note_error,
                    closed_cb=self._note_end,
                    disconnected_cb=self._note_end,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=int(STEP_SECONDS),
                    ping_interval=_PING_SECONDS,
                    pending_size=_MOST_PENDING_BYTES,
                    inbox_prefix=f"_INBOX.{self.name}",
                    **options,
                )
                self._check_connected()
                await self._client.flush(int(STEP_SECONDS))
        except Exception as error:  # an unknown server may send anything
            raise self.explain(self._failure or error, was_up=False) from error
        self.jetstream = self._client.jetstream(timeout=STEP_SECONDS)

    def _secure(self) -> dict[str, Any]:
        """Return the options for TLS and credentials.

        Raises:
            NotSecure: mail would leave this machine without TLS.
            TeamError: a file is missing or invalid.
        """
        own, options = self.settings, dict[str, Any]()
        if own.cert is not None or self.server.startswith("tls:"):
            options["tls"] = self._tls = make_context(own)
        elif sends_plaintext(self.server) and not own.plaintext:
            raise NotSecure
        return options | ({} if own.creds is None else self._sign_by(own.creds))

    def _check_connected(self) -> None:
        if not self._client.is_connected:  # `connect` treats an early end as success
            raise self._client.last_error or EOFError(_ENDED[0])
        if self._tls is not None and not self._tls.is_used:
            raise NotSecure

    def _sign_by(self, creds: Path) -> dict[str, Any]:
        """Return the options for a credentials file; nothing is signed for a server without TLS."""
        import nkeys  # type: ignore[import-untyped]  # noqa: PLC0415 -- few hosts have such a file

        try:
            found = re.findall(r"-----BEGIN[^-]*-+\s+(\S+)\s+-+END", creds.read_text())
            jwt, seed = (one.encode() for one in found)
        except (OSError, ValueError) as error:
            raise TeamError(f"{creds} is not a credentials file of NATS ({error})") from error

        def sign(nonce: str) -> bytes:
            if self._tls is not None and not self._tls.is_used:
                raise NotSecure
            return base64.b64encode(nkeys.from_seed(bytearray(seed)).sign(nonce.encode()))

        return {"user_jwt_cb": lambda: bytearray(jwt), "signature_cb": sign}

    async def prepare(self) -> None:
        """Create the stream, the buckets and this host's consumer, as far as they are missing.

        Raises:
            LostConnection: the broker has no JetStream, or does not let this host create them.
        """
        own, js = self.settings, self.jetstream
        stream = StreamConfig(
            name=MAIL, subjects=[f"{MAIL}.*.*"], storage=StorageType.FILE,
            retention=RetentionPolicy.WORK_QUEUE, num_replicas=own.replicas,
        )  # fmt: skip
        consumer = ConsumerConfig(
            name=self.name, durable_name=self.name, filter_subject=f"{MAIL}.{self.name}.*",
            ack_policy=AckPolicy.EXPLICIT, ack_wait=_ACK_SECONDS,
            max_ack_pending=_MOST_UNACKNOWLEDGED,
        )  # fmt: skip
        buckets = (
            _bucket(HOSTS, StorageType.MEMORY, own.replicas, max_age=_MEMORY_SECONDS),
            _bucket(CONFIRMED, StorageType.FILE, own.replicas),
        )
        for wanted in (stream, *buckets):
            try:
                await js.stream_info(wanted.name or "")
            except NotFoundError:
                await self._create(wanted)
        await js.add_consumer(MAIL, consumer)

    async def _create(self, stream: StreamConfig) -> None:
        try:
            await self.jetstream.add_stream(stream)
        except TimeoutError as error:  # a call that is not allowed is not answered
            raise LostConnection(_NO_STREAM, was_up=True) from error

    async def last_number(self) -> int:
        """Return the number of the last message in the stream of mail."""
        return (await self.jetstream.stream_info(MAIL)).state.last_seq

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Any:
        """Store a message in the stream; return a future that ends once it is stored."""
        return await self.jetstream.publish_async(subject, payload, headers=dict(headers))

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        """Write a value into a bucket; it is stored when this returns.

        Raises:
            LostConnection: that failed.
        """
        try:
            await self.jetstream.publish(f"$KV.{bucket}.{key}", value)
        except (Error, TimeoutError) as error:
            raise self.explain(error) from error

    async def watch(self, bucket: str, keys: str) -> AsyncGenerator[tuple[str, bytes] | None, None]:
        """Yield the keys and values of a bucket, `None` once, and then all changes."""
        kv = await self.jetstream.key_value(bucket)
        watcher = await kv.watch(keys)
        try:
            while True:
                with suppress(TimeoutError):
                    entry = await watcher.updates(timeout=_MEMORY_SECONDS)  # type: ignore[no-untyped-call]
                    yield None if entry is None else (entry.key, entry.value or b"")
        finally:
            with suppress(Error, TimeoutError):  # otherwise it would collect all further changes
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await watcher.stop()  # type: ignore[no-untyped-call]

    async def fetch(self, most: int, *, seconds: float) -> list[Any]:
        """Return the next messages for this host, at least one; empty if there are none in time."""
        found = list[Any]()
        with suppress(TimeoutError):
            found += await self._mailbox.fetch(1, timeout=seconds)
            if more := min(found[0].metadata.num_pending, most - 1):
                found += await self._mailbox.fetch(more, timeout=1)
        return found

    async def bind(self) -> None:
        """Bind to this host's consumer, for `fetch`."""
        self._mailbox = await self.jetstream.pull_subscribe_bind(self.name, MAIL)

    async def answer(self, reply: Callable[[str, bytes], Awaitable[bytes | None]]) -> None:
        """Answer requests to this host, each in a task of its own.

        Args:
            reply: given the asking host and the payload, returns the answer, if any.
        """
        tasks = set[asyncio.Task[None]]()

        async def respond(message: Any) -> None:
            # The broker delivers stored messages with their own subject, and anybody may name any
            # subject for an answer.
            head, _, sender = str(message.subject).rpartition(".")
            ours = head == f"command.{self.name}"
            if not ours or not message.reply.startswith(f"_INBOX.{sender}."):
                return
            if (answer := await reply(sender, message.data)) is not None:
                await message.respond(answer)

        async def begin(message: Any) -> None:
            task = asyncio.create_task(respond(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        await self._client.subscribe(f"command.{self.name}.*", cb=begin)
        for _ in range(2):  # the first flush may overtake the subscription
            await self._client.flush(int(STEP_SECONDS))

    async def request(self, subject: str, payload: bytes, seconds: float) -> bytes:
        """Send a request once; return the answer.

        Raises:
            NoAnswer: nobody listens, or nobody answered in time.
            LostConnection: the connection ended.
        """
        try:
            found: bytes = (await self._client.request(subject, payload, timeout=seconds)).data
        except NoRespondersError as error:
            raise NoAnswer(nobody=True) from error
        except TimeoutError as error:
            raise NoAnswer(nobody=False) from error
        except Error as error:
            raise self.explain(error) from error
        return found

    async def wait(self) -> NoReturn:
        """Wait until the connection is lost.

        Raises:
            LostConnection: always.
        """
        raise self.explain(await self._lost)

    async def _note_error(self, error: Exception) -> None:
        if "permissions violation" in str(error).lower():
            self._denied.append(str(error))
        else:
            self._failure = error

    async def _note_end(self) -> None:
        if not self._lost.done():
            self._lost.set_result(self._client.last_error)

    def explain(self, error: BaseException | None, *, was_up: bool = True) -> LostConnection:
        """Return the loss of this connection that an error has caused or shows."""
        if isinstance(error, LostConnection):
            return error
        if any(f".{self.name}" in one.lower() for one in self._denied):
            error = TeamError(_DENIED.format(name=self.name))
        elif isinstance(error, ServiceUnavailableError) or (
            isinstance(error, APIError) and "not enabled" in str(error)
        ):
            error = TeamError(_NO_JETSTREAM.format(server=self.server))
        elif not was_up and self._tls is not None and self._tls.has_begun:
            # A refused certificate may show only as a closed connection.
            ended = error is None or isinstance(error, ConnectionError | EOFError)
            error = NotAdmitted() if ended else error
        name = urlsplit(self.server).hostname or self.server
        refused = is_refusal(error)
        return LostConnection(describe(error, self.server, name), was_up=was_up, refused=refused)


def _bucket(name: str, storage: StorageType, replicas: int, max_age: float = 0.0) -> StreamConfig:
    """Return the stream of a key-value bucket, by ADR-8 of NATS.

    Without rollups and direct reads, which nats-py would allow: by the first a host could empty
    the bucket, by the second let the broker send its words under the subject of another host.
    """
    return StreamConfig(
        name=f"KV_{name}", subjects=[f"$KV.{name}.>"], storage=storage, max_msgs_per_subject=1,
        num_replicas=replicas, max_age=max_age, deny_delete=True, allow_rollup_hdrs=False,
        allow_direct=False, duplicate_window=min(max_age or 120.0, 120.0),
    )  # fmt: skip


def decode_value(value: bytes) -> dict[str, Any]:
    """Return the object in a value of a bucket; empty if it is none."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_SENTENCES: Final[dict[type[Exception], str]] = {
    NotSecure: "{server} offers no TLS, so it is no broker of this team; no mail was sent to it",
    NotAdmitted: (
        "{server} refuses this host's certificate: it is another team's, or it has expired; "
        "`teamctl hosts remove` and `hosts add` on the broker's host make a new one"
    ),
    socket.gaierror: "no machine is known by the name {name}; look at [hosts] servers",
    ConnectionRefusedError: "nothing listens at {server}; does the broker run there?",
    TeamError: "{error}",
    TimeoutError: "{server} does not answer; is the machine up, and is the port open?",
}


def describe(error: BaseException | None, server: str, name: str) -> str:
    """Return why a server is unreachable, or no longer reachable.

    Args:
        error: the error; `None` if the server closed the connection.
        server: its address as in the settings.
        name: the machine in the address.
    """
    if isinstance(error, ssl.SSLError):
        return _explain_tls(error, server, name)
    for kind, sentence in _SENTENCES.items():
        if isinstance(error, kind):
            return sentence.format(server=server, name=name, error=error)
    words = str(error or _ENDED[0])
    if any(one in words.lower() for one in _NOT_ADMITTED):
        return (
            f"{server} does not admit this host: its certificate was removed; "
            "`teamctl hosts add` on the broker's host makes a new one"
        )
    if any(one in words for one in _ENDED):
        return f"{server} has closed the connection"
    if isinstance(error, OSError):
        return f"{server}: {error.strerror or words or type(error).__name__}"
    said = words.removeprefix("nats: ").strip().strip("'")
    return f"{server}: {said or 'the connection is lost'}"


def is_refusal(error: BaseException | None) -> bool:
    """Return whether only a person can fix the error, so that frequent retries are useless."""
    if isinstance(error, ssl.SSLError | NotAdmitted | NotSecure | TeamError):
        return True
    return error is not None and any(one in str(error).lower() for one in _NOT_ADMITTED)


def _explain_tls(error: ssl.SSLError, server: str, name: str) -> str:
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else None
    if code in _OTHER_NAME:
        return (
            f"the broker's certificate is not for {name}; take a name that it is for in "
            f"[hosts] servers, or run `teamctl hosts init --renew --address {name}` on the "
            "broker's host"
        )
    if code in _EXPIRED:
        return (
            f"the certificate of {server} has expired, or this machine's clock is wrong; "
            "`teamctl hosts init --renew` on the broker's host makes a new one"
        )
    if code in _FOREIGN:
        return f"the certificate of {server} is not of this team; look at [hosts] servers and ca"
    if "ALERT" in (error.reason or ""):
        return _SENTENCES[NotAdmitted].format(server=server)
    return f"{server}: TLS fails: {error.reason or error}"
