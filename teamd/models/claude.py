"""The Messages API through the official SDK: the only module that imports `anthropic`."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient
from anthropic.lib.streaming import AsyncMessageStreamManager
from anthropic.types import Message, ParsedMessage, RawMessageStreamEvent

from teamd import credentials
from teamd.errors import TeamError
from teamd.masking import Mask
from teamd.models import CUT_OFF_REASONS, Reply, TransientError, UnusableError, canned
from teamd.models.encoding import PerMessage, breakpoints, encode, encode_body
from teamd.models.errors import as_model_error, may_have_begun
from teamd.tokens import Usage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from anthropic import AsyncMessageStream
    from anthropic.types import ContentBlock

    from teamd.models import Ask, Block

CONNECT_SECONDS: Final = 10.0
# A model may think for long before its next word, and its server pings meanwhile, but not for ever.
_PINGS_ONLY: Final = 3  # times the silence that is borne
_MOST_BYTES: Final = 1 << 24  # of one reply, far beyond any model's; some server may never end it
_PATH: Final = b"v1/messages"
_EVENT_BYTES: Final = 64  # what one takes besides its text
_ENDLESS: Final = f"the model's server sent more than {_MOST_BYTES} bytes as one reply"
_PARTS: Final[Mapping[str, Mapping[str, type]]] = {
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
# The SDK makes this class at each reply, 3 ms of it, unless somebody holds it.
_held_classes: list[type] = []


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
        begun = False
        try:
            async with self._stream(client, ask) as stream:
                begun = True
                ask.begun()
                inputs = await self._follow(stream, ask.heard)
                return _whole(await stream.get_final_message(), inputs)
        # A broken stream shows as an error of the SDK, of its HTTP library, of its JSON parser or
        # as a failed assertion within it, depending on where it broke; all of them end up here.
        except Exception as error:
            url = str(client.base_url.copy_with(userinfo=b""))  # may hold a proxy's password
            failure = as_model_error(
                error, model=ask.model, url=url, name=ask.asker, mask=self.mask.text
            )
            failure.begun = begun or may_have_begun(error)
            if isinstance(failure, UnusableError):
                await self.close()  # a key that was mended must be read anew
            if failure is error:
                raise
            raise failure from error

    async def learn_key(self) -> None:
        """Find the key before the first request; where there is none, that tells what to mend."""
        with suppress(UnusableError):
            self._client = self._client or await self._connect()

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
        left = _MOST_BYTES
        most = _PINGS_ONLY * self.timeout_seconds
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(most) as silence:
                async for event in stream:
                    silence.reschedule(clock() + most)
                    left -= _size(event)
                    if left < 0:
                        raise TransientError(_ENDLESS)
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

    def _stream(self, client: AsyncAnthropic, ask: Ask) -> AsyncMessageStreamManager[None]:
        """Send a request, as `client.messages.stream` does: only, the body is encoded already.

        The SDK would copy and encode all of the conversation once more.
        """
        request = client.post(
            self._url,
            content=self._body(ask),
            cast_to=Message,
            stream=True,
            stream_cls=AsyncStream[RawMessageStreamEvent],
        )
        return AsyncMessageStreamManager(request)

    def _body(self, ask: Ask) -> bytes:
        messages = list(self._encoded.values(ask.messages))
        if self.cache:
            for number, marked_message in breakpoints(ask.messages).items():
                messages[number] = encode(marked_message)
        return encode_body(ask, messages, mark=self.cache)


def _join(base: httpx2.URL) -> str:
    """Return the address of requests, joined once: the SDK parses a path anew at each request."""
    return str(base.copy_with(raw_path=base.raw_path + _PATH))


def _size(event: object) -> int:
    """Return about how much of the memory an event of a stream takes, for good."""
    said = getattr(event, "delta", None) or getattr(event, "content_block", None)
    parts = vars(said).values() if hasattr(said, "__dict__") else ()
    return _EVENT_BYTES + sum(len(part) for part in parts if isinstance(part, str))


def _whole(message: Message, inputs: Mapping[int, str]) -> Reply:
    if not isinstance(message.stop_reason, str):
        raise TransientError("the model's server ended its reply half way")
    if message.stop_reason not in CUT_OFF_REASONS:
        # The SDK makes something of half an input too, and half a call must never run.
        for whole in filter(None, inputs.values()):
            json.loads(whole)
    usage = message.usage
    return Reply(
        content=list(map(_checked, message.content)),
        stop_reason=message.stop_reason,
        model=message.model,
        usage=Usage(
            input_tokens=_count(usage.input_tokens),
            cache_read_tokens=_count(usage.cache_read_input_tokens),
            cache_write_tokens=_count(usage.cache_creation_input_tokens),
            output_tokens=_count(usage.output_tokens),
        ),
    )


def _checked(given: ContentBlock) -> Block:
    """Return the block as the API takes it back; the SDK checks nothing of it.

    What lacks a part would be met again at each resume of its conversation, and never be got rid
    of.

    Raises:
        TransientError: it has not the parts that its type has.
    """
    block: Block = given.to_dict(mode="json", exclude_none=True, warnings=False)
    for part, kind in _PARTS.get(block["type"], {}).items():
        if not isinstance(block.get(part), kind):
            what = block["type"].replace("_", " ")
            raise TransientError(f"the model's server sent a {what} block without a proper {part}")
    return block


def _count(tokens: object) -> int:
    """A number of tokens; servers that imitate the API leave it out, or make something up."""
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


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
    """Do once, before forking, what the first call of every teammate would do anew.

    A whole reply is read from a transport that has no network, so that what the SDK loads and
    builds at its first use is shared by all children. No thread is started: the process that
    forks must have none, which is why the SDK's other, synchronous client does it.
    """
    shared_tls()
    importlib.import_module("anyio._backends._asyncio")  # the other client's, else loaded late
    http = anthropic.DefaultHttpxClient(transport=canned.transport())
    with anthropic.Anthropic(api_key="none", base_url=canned.URL, http_client=http) as client:
        talk: Any = [{"role": "user", "content": "."}]
        with client.messages.stream(model="none", max_tokens=1, messages=talk) as stream:
            stream.get_final_message()
            _held_classes[:] = ParsedMessage.__subclasses__()
