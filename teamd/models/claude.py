"""The Messages API through the official SDK: the only module that imports `anthropic`."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import anthropic
import httpx2
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from teamd import credentials
from teamd.errors import TeamError
from teamd.models import Reply, TransientError, UnusableError, shape
from teamd.models.errors import as_model_error, may_have_begun
from teamd.tokens import Usage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from anthropic import AsyncMessageStream
    from anthropic.types import Message

    from teamd.models import Ask

CONNECT_SECONDS: Final = 10.0
# A model may think for long before its next word, and its server pings meanwhile, but not for ever.
_PINGS_ONLY: Final = 3  # times the silence that is borne
_BREAKPOINT: Final = {"type": "ephemeral"}
_CACHEABLE: Final = frozenset({"text", "tool_use", "tool_result"})


class Claude:
    """Answers through whatever server stands behind the base URL.

    Args:
        base_url: without `/v1`; `None` leaves it to `ANTHROPIC_BASE_URL`.
        key_command: prints the key; `None` leaves it to systemd or the environment.
        headers: sent with each request besides the SDK's own.
        timeout_seconds: how long the server may be silent.
        cache: whether to ask for prompt caching.
        tls: made once and used by every teammate; building one costs 20 ms.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        key_command: str | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
        cache: bool,
        tls: ssl.SSLContext,
    ) -> None:
        self._base_url = base_url
        self._key_command = key_command
        self._headers = dict(headers)
        self._timeout_seconds = timeout_seconds
        self._cache = cache
        self._tls = tls
        self._client: AsyncAnthropic | None = None

    async def reply(self, ask: Ask) -> Reply:
        """Answer one request, streamed.

        Raises:
            TransientError: limits, overload, a broken connection or stream.
            UnusableError: no or a wrong key, an unknown model, a refused request.
        """
        client = self._client or await self._connect()
        begun = False
        try:
            async with client.messages.stream(**self._body(ask)) as stream:
                begun = True
                inputs = await self._follow(stream, ask.heard)
                return _whole(await stream.get_final_message(), inputs)
        # A broken stream shows as an error of the SDK, of its HTTP library, of its JSON parser or
        # as a failed assertion within it, depending on where it broke; all of them end up here.
        except Exception as error:
            url = str(client.base_url.copy_with(userinfo=b""))  # may hold a proxy's password
            failure = as_model_error(error, model=ask.model, url=url, name=ask.asker)
            failure.begun = begun or may_have_begun(error)
            if isinstance(failure, UnusableError):
                await self.close()  # a key that was mended must be read anew
            if failure is error:
                raise
            raise failure from error

    async def close(self) -> None:
        """Give back connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _follow(
        self, stream: AsyncMessageStream, heard: Callable[[str], None] | None
    ) -> Mapping[int, str]:
        """Read a stream to its end; returns the inputs of its tool calls, word for word.

        The SDK passes over pings: they keep the connection, and prolong nothing else.
        """
        inputs: defaultdict[int, str] = defaultdict(str)
        most = _PINGS_ONLY * self._timeout_seconds
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(most) as silence:
                async for event in stream:
                    silence.reschedule(clock() + most)
                    if event.type == "content_block_delta":
                        if event.delta.type == "input_json_delta":
                            inputs[event.index] += event.delta.partial_json
                    elif event.type == "text" and heard is not None:
                        heard(event.text)
        except TimeoutError as error:
            text = f"the model's server sent nothing but pings for {most:g} s"
            raise TransientError(text) from error
        return inputs

    async def _connect(self) -> AsyncAnthropic:
        try:
            key = await credentials.find_key(self._key_command)
        except TeamError as error:
            raise UnusableError(str(error)) from error
        timeout = anthropic.Timeout(self._timeout_seconds, connect=CONNECT_SECONDS)
        client = AsyncAnthropic(
            api_key=key,
            base_url=self._base_url,
            default_headers=self._headers or None,
            max_retries=0,  # `Retrying` does it: bounded, with jitter, and it can be cancelled
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(verify=self._tls, timeout=timeout),
        )
        static = client.api_key or client.auth_token
        if static is None and client.credentials is None:
            await client.close()
            raise UnusableError(credentials.MISSING)
        if static is not None and not credentials.plausible(static):
            await client.close()
            raise UnusableError(credentials.IMPLAUSIBLE)
        self._client = client
        return client

    def _body(self, ask: Ask) -> dict[str, Any]:
        """The request: no more than every server that speaks the protocol takes."""
        system: dict[str, Any] = {"type": "text", "text": ask.system}
        messages = ask.messages
        if self._cache:
            system["cache_control"] = _BREAKPOINT
            messages = with_breakpoints(messages)
        return {
            "model": ask.model,
            "max_tokens": ask.max_tokens,
            "system": [system],
            "tools": ask.tools,
            "messages": messages,
        }


def with_breakpoints(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the ends of the last two user messages for the prompt cache.

    The end of the last is written to the cache; the one before is what the previous request
    wrote, and so is found even when more than the 20 blocks that the server looks back lie
    between. Source: the API's documentation, "Prompt caching".
    """
    users = [number for number, message in enumerate(messages) if message["role"] == "user"]
    marked = list(messages)
    for number in users[-2:]:
        content = [dict(block) for block in messages[number]["content"]]
        if content[-1]["type"] in _CACHEABLE:
            content[-1]["cache_control"] = _BREAKPOINT
        marked[number] = {**messages[number], "content": content}
    return marked


def _whole(message: Message, inputs: Mapping[int, str]) -> Reply:
    if not isinstance(message.stop_reason, str):
        raise TransientError("the model's server ended its reply half way")
    if message.stop_reason == "tool_use":
        # The SDK makes something of half an input too, and half a call must never run.
        for whole in filter(None, inputs.values()):
            json.loads(whole)
    content = [
        shape.checked(block.to_dict(mode="json", exclude_none=True, warnings=False))
        for block in message.content
    ]
    usage = message.usage
    return Reply(
        content=content,
        stop_reason=message.stop_reason,
        model=message.model,
        usage=Usage(
            input_tokens=shape.count(usage.input_tokens),
            cache_read_tokens=shape.count(usage.cache_read_input_tokens),
            cache_write_tokens=shape.count(usage.cache_creation_input_tokens),
            output_tokens=shape.count(usage.output_tokens),
        ),
    )


@cache
def shared_tls() -> ssl.SSLContext:
    """Return the TLS context that `Claude` takes, as the SDK itself would make it.

    It is made once: that takes 20 ms, and forked children share it.
    """
    return httpx2.create_ssl_context()


def finds_key() -> bool:
    """Whether the SDK finds a key by itself, in the environment or a profile; asks no server."""
    client = anthropic.Anthropic()
    try:
        return any(
            found is not None for found in (client.api_key, client.auth_token, client.credentials)
        )
    finally:
        client.close()
