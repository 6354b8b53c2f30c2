"""The Messages API through the official SDK: the only module that imports `anthropic`."""

from __future__ import annotations

import asyncio
import importlib
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient
from anthropic.types import Message, RawMessageStreamEvent

from teamd import credentials
from teamd.errors import TeamError
from teamd.masking import Mask
from teamd.models import UnusableError
from teamd.models.encoding import PerMessage, breakpoints, encode, encode_body
from teamd.models.errors import as_model_error, may_have_begun
from teamd.models.stream import ReplyBuilder, read_reply

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from teamd.models import Ask, Reply

CONNECT_SECONDS: Final = 10.0
PAGE_SECONDS: Final = 5.0  # for the page of a model
_NO_PAGE: Final = frozenset({400, 404, 405, 410, 422, 501})
_PATH: Final = b"v1/messages"


@dataclass(slots=True, kw_only=True)
class Claude:
    """Answers through whatever server stands behind the base URL.

    Attributes:
        base_url: without `/v1`; `None` leaves it to `ANTHROPIC_BASE_URL`.
        key_command: prints the key; `None` leaves it to systemd or the environment.
        headers: sent with each request besides the SDK's own.
        timeout_seconds: how long the server may be silent.
        cache: whether to ask for prompt caching.
        mask: learns each key that is sent, also of a profile of the SDK's.
        transport: answers in the place of a server.
        key: in the place of any that is found.
    """

    base_url: str | None
    key_command: str | None
    headers: Mapping[str, str]
    timeout_seconds: float
    cache: bool
    mask: Mask = field(default_factory=Mask)
    transport: httpx2.AsyncBaseTransport | None = None
    key: str = ""
    _client: AsyncAnthropic | None = field(default=None, init=False)
    _url: str = field(default="", init=False)
    _encoded: PerMessage[bytes] = field(default_factory=lambda: PerMessage(encode), init=False)

    async def reply(self, ask: Ask) -> Reply:
        """Answer one request, streamed.

        Raises:
            TransientError: limits, overload, a broken connection or stream.
            UnusableError: no or a wrong key, an unknown model, a refused request.
        """
        client = self._client or await self._connect()
        builder = ReplyBuilder(ask.heard, ask.thought)
        try:
            async with await self._send(client, ask) as stream:
                ask.begun()
                body = stream.response.aiter_bytes()
                await read_reply(body, builder, self.timeout_seconds)
            return builder.build(ask.model)
        # A broken stream shows as an error of the SDK or of its HTTP library, depending on where it
        # broke.
        except Exception as error:
            url = str(client.base_url.copy_with(userinfo=b""))  # may hold a proxy's password
            failure = as_model_error(
                error, model=ask.model, url=url, name=ask.asker, mask=self.mask.text
            )
            failure.begun = builder.begun or may_have_begun(error)
            failure.usage = builder.usage
            if isinstance(failure, UnusableError):
                await self.close()  # a key that was mended must be read anew
            if failure is error:
                raise
            raise failure from error

    async def learn_key(self) -> None:
        """Find the key before the first request; where there is none, that tells what to mend."""
        with suppress(UnusableError):
            self._client = self._client or await self._connect()

    async def ask_page(self, model: str) -> dict[str, Any] | None:
        """Return the server's page of a model: empty if it has none, `None` if it does not answer.

        Servers that imitate the API may answer with another status, with HTML or never.
        """
        try:
            client = self._client or await self._connect()
            async with asyncio.timeout(min(PAGE_SECONDS, self.timeout_seconds)):
                path = f"/v1/models/{quote(model, safe='')}"
                page = (await client.get(path, cast_to=httpx2.Response)).json()
        except anthropic.APIStatusError as error:
            return {} if error.status_code in _NO_PAGE else None
        except (ValueError, RecursionError):
            return {}
        # As in `reply`; whatever is wrong, the next request for a message reports it.
        except Exception:  # noqa: BLE001
            return None
        return page if isinstance(page, dict) else {}

    async def close(self) -> None:
        """Give back connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _connect(self) -> AsyncAnthropic:
        try:
            key = self.key or await credentials.find_key(self.key_command)
        except TeamError as error:
            raise UnusableError(str(error)) from error
        self.mask.learn(key or "")
        timeout = anthropic.Timeout(self.timeout_seconds, connect=CONNECT_SECONDS)
        way: Any = {"transport": self.transport} if self.transport else {"verify": shared_tls()}
        client = AsyncAnthropic(
            api_key=key,
            base_url=self.base_url,
            default_headers=self.headers,
            max_retries=0,  # `Retrying` does it: bounded, with jitter, and it can be cancelled
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(
                **way, timeout=timeout, event_hooks={"request": [self._learn_key]}
            ),
        )
        if sys.platform == "linux":  # as it would find out itself, in a thread for that alone
            client._platform = "Linux"  # noqa: SLF001
        static = client.api_key or client.auth_token
        if static is None and client.credentials is None:
            wrong = credentials.MISSING
        elif static is not None and not credentials.plausible(static):
            wrong = credentials.IMPLAUSIBLE
        else:
            self._client, self._url = client, _join(client.base_url)
            return client
        await client.close()
        raise UnusableError(wrong)

    async def _learn_key(self, request: httpx2.Request) -> None:
        given = [request.headers.get(name, "") for name in ("x-api-key", "authorization")]
        self.mask.learn(*given, *(value.removeprefix("Bearer ") for value in given))

    async def _send(self, client: AsyncAnthropic, ask: Ask) -> AsyncStream[RawMessageStreamEvent]:
        """Send a request whose body is encoded already: the SDK would encode all of it again."""
        return await client.post(
            self._url,
            content=self._body(ask),
            cast_to=Message,
            stream=True,
            stream_cls=AsyncStream[RawMessageStreamEvent],
        )

    def _body(self, ask: Ask) -> bytes:
        messages = list(self._encoded.values(ask.messages))
        if self.cache:
            for number, marked_message in breakpoints(ask.messages).items():
                messages[number] = encode(marked_message)
        return encode_body(ask, messages, mark=self.cache)


def _join(base: httpx2.URL) -> str:
    """Return the address of requests, joined once: the SDK parses a path anew at each request."""
    return str(base.copy_with(raw_path=base.raw_path + _PATH))


@cache
def shared_tls() -> ssl.SSLContext:
    """Return the TLS context of every `Claude`, as the SDK itself would make it.

    It is made once: that takes 20 ms, and forked children share it.
    """
    return httpx2.create_ssl_context()


def finds_key() -> bool:
    """Return whether the SDK finds a key, in the environment or a profile; ask no server."""
    with anthropic.Anthropic() as client:
        found = (client.api_key, client.auth_token, client.credentials)
        return any(one is not None for one in found)


@cache
def warm_up() -> None:
    """Load, before forking, what the first call of every teammate would load anew."""
    shared_tls()
    importlib.import_module("anyio._backends._asyncio")
