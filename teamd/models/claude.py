"""The Messages API through the official SDK: the only module that imports `anthropic`."""

from __future__ import annotations

import asyncio
import importlib
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Self
from urllib.parse import quote

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient
from anthropic.types import Message, RawMessageStreamEvent

from teamd.errors import TeamError
from teamd.masking import Mask
from teamd.model_server import connection, credentials
from teamd.models import Ask, LaterError, Provider, ProviderOptions, Reply, UnusableError
from teamd.models.encoding import encode_body
from teamd.models.errors import as_model_error, may_have_begun, redirect_error
from teamd.models.stream import ReplyBuilder, read_reply

CONNECT_SECONDS: Final = 10.0
PAGE_SECONDS: Final = 5.0  # for the page of a model
_NO_PAGE: Final = frozenset({400, 404, 405, 410, 422, 501})
_PATH: Final = "/v1/messages"
_OWN_HOST: Final = "api.anthropic.com"


@dataclass(slots=True, kw_only=True)
class Claude(Provider):
    """Answers through the server behind the base URL.

    Attributes:
        base_url: without `/v1`; `None` leaves it to `ANTHROPIC_BASE_URL`.
        key_command: prints the key; `None` leaves it to systemd or the environment.
        headers: sent with each request besides the SDK's own.
        timeout_seconds: how long the server may be silent.
        cache: whether to ask for prompt caching.
        cache_ttl: how long; "auto" is an hour if the server is Anthropic's own. Other servers may
            refuse the option.
        mask: learns each key that is sent, including one from a profile of the SDK.
        transport: replaces the server.
        key: replaces any key that is found.
    """

    base_url: str | None
    key_command: str | None
    headers: Mapping[str, str]
    timeout_seconds: float
    cache: bool
    cache_ttl: str = "auto"
    mask: Mask = field(default_factory=Mask)
    transport: httpx2.AsyncBaseTransport | None = None
    key: str = ""
    _client: AsyncAnthropic | None = field(default=None, init=False)
    _found_key: str | None = field(default=None, init=False)
    _ttl_refused: bool = field(default=False, init=False)

    @classmethod
    def make(cls, options: ProviderOptions) -> Self:
        return cls(
            base_url=options.base_url,
            key_command=options.key_command,
            headers=options.headers,
            timeout_seconds=options.timeout_seconds,
            cache=options.cache,
            cache_ttl=options.cache_ttl,
            mask=options.mask,
        )

    @classmethod
    def warm_up(cls) -> None:
        with suppress(OSError):  # certificates that cannot be read; each teammate says so
            shared_tls()
        importlib.import_module("anyio._backends._asyncio")

    @classmethod
    def finds_key(cls) -> bool:
        """Return whether the SDK finds a key, in the environment or a profile; ask no server."""
        with anthropic.Anthropic() as client:
            found = (client.api_key, client.auth_token, client.credentials)
            return any(one is not None for one in found)

    async def reply(self, ask: Ask) -> Reply:
        """Answer one request, streamed.

        Raises:
            TransientError: limits, overload, a broken connection or stream.
            UnusableError: a missing or wrong key, an unknown model, a refused request.
        """
        client = self._client or await self._connect()
        builder = ReplyBuilder(ask.heard, ask.thought)
        try:
            async with await self._send(client, ask) as stream:
                ask.begun()
                body = stream.response.aiter_bytes()
                await read_reply(body, builder, self.timeout_seconds)
            return builder.build(ask.model)
        # A broken stream shows as an error of the SDK or of its HTTP library.
        except Exception as error:
            if self._keeps_hour(client) and _refuses_ttl(error):
                self._ttl_refused = True
                return await self.reply(ask)
            url = str(client.base_url.copy_with(userinfo=b""))  # may hold a proxy's password
            failure = as_model_error(
                error, model=ask.model, url=url, name=ask.asker, mask=self.mask.text
            )
            failure.begun = failure.begun or builder.begun or may_have_begun(error)
            failure.usage, failure.broke_off = builder.usage, builder.broke_off
            if isinstance(failure, UnusableError):
                await self._forget(client)  # the repaired key must be read again
            if failure is error:
                raise
            raise failure from error

    async def learn_key(self) -> None:
        with suppress(UnusableError):
            self._client = self._client or await self._connect()

    async def ask_page(self, model: str) -> dict[str, Any] | None:
        """See `Provider`; imitators of the API answer with another status, with HTML, or never."""
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

    async def renew_key(self) -> bool:
        if self._client is not None:  # another conversation has renewed it meanwhile
            return True
        refused = self._found_key
        client = await self._connect()
        if self._found_key == refused:
            await self._forget(client)  # the next try finds the key again
            return False
        return True

    async def try_client(self) -> None:
        client = replace(self, key_command=None, key="no-key-is-sent")
        await client.learn_key()
        await client.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._forget(self._client)

    async def _forget(self, client: AsyncAnthropic) -> None:
        if client is self._client:
            self._client = None
        await client.close()

    async def _connect(self) -> AsyncAnthropic:
        try:
            key = self.key or await credentials.find_key(self.key_command)
        except TeamError as error:
            raise LaterError(str(error), about="key") from error
        self.mask.learn(key or "")
        try:
            client = self._make_client(key)
        except Exception as error:  # of the environment: a proxy, certificates, a profile
            wrong = next(connection.mistakes(self.base_url), None)
            text = wrong or f"no connection to the model's server can be made: {error}"
            raise LaterError(self.mask.text(text), about="connection") from error
        static = client.api_key or client.auth_token
        if static is None and client.credentials is None:
            wrong = credentials.MISSING
        elif static is not None and not credentials.plausible(static):
            wrong = credentials.IMPLAUSIBLE
        else:
            self._client, self._found_key = client, static
            return client
        await client.close()
        if self.key_command is not None:  # it may print a better one the next time
            raise LaterError(wrong, about="key", command=credentials.RESTART)
        raise UnusableError(wrong, command=credentials.RESTART)

    def _make_client(self, key: str | None) -> AsyncAnthropic:
        timeout = anthropic.Timeout(self.timeout_seconds, connect=CONNECT_SECONDS)
        way: Any = {"transport": self.transport} if self.transport else {"verify": shared_tls()}
        hooks: Any = {"request": [self._learn_key], "response": [_check_redirect]}
        return AsyncAnthropic(
            api_key=key,
            base_url=self.base_url,
            default_headers=self.headers,
            max_retries=0,  # `ModelCalls` does it: bounded, with jitter, and it can be cancelled
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(**way, timeout=timeout, event_hooks=hooks),
        )

    async def _learn_key(self, request: httpx2.Request) -> None:
        given = [request.headers.get(name, "") for name in ("x-api-key", "authorization")]
        self.mask.learn(*given, *(value.removeprefix("Bearer ") for value in given))

    async def _send(self, client: AsyncAnthropic, ask: Ask) -> AsyncStream[RawMessageStreamEvent]:
        """Send a request whose body is encoded already: the SDK refuses half a surrogate pair."""
        return await client.post(
            _PATH,
            content=encode_body(ask, cache=self.cache, hour=self._keeps_hour(client)),
            cast_to=Message,
            stream=True,
            stream_cls=AsyncStream[RawMessageStreamEvent],
        )

    def _keeps_hour(self, client: AsyncAnthropic) -> bool:
        """Return whether requests ask the cache to keep their older part for an hour."""
        if not self.cache or self._ttl_refused:
            return False
        own = client.base_url.host == _OWN_HOST
        return self.cache_ttl == "1h" or (self.cache_ttl == "auto" and own)


def _refuses_ttl(error: Exception) -> bool:
    """Return whether a server rejects the option that says how long to keep a cache entry."""
    if not isinstance(error, anthropic.BadRequestError | anthropic.UnprocessableEntityError):
        return False
    return "ttl" in str(error).lower()


async def _check_redirect(response: httpx2.Response) -> None:
    """Refuse to follow a server to another one, which would get the conversation and the headers.

    Raises:
        LaterError: the server redirects to another one.
    """
    if response.has_redirect_location:
        asked = response.request.url
        target = asked.join(response.headers["location"])
        if target.origin != asked.origin:
            base = str(asked.copy_with(raw_path=b"/", userinfo=b""))
            raise redirect_error(base, str(target.copy_with(raw_path=b"/", userinfo=b"")))


@cache
def shared_tls() -> ssl.SSLContext:
    """Return the TLS context of every `Claude`.

    It is made once: that takes 20 ms, and forked children share it.
    """
    return connection.make_tls()
