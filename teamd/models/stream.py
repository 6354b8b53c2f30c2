"""Reads a reply: the event stream of the Messages API, or the variants that other servers send.

Source: the API's documentation, "Streaming messages". Gateways number blocks from 1 or not at all,
leave out `event:` lines and usage, or answer with the whole message as one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from teamd.model_server import Usage
from teamd.models import Block, OddReplyError, Reply, TransientError, parse_tool_input

MOST_BYTES: Final = 1 << 24  # of one reply, far beyond any model's; a server may never end it
_PINGS_ONLY: Final = 3  # times the silence that is allowed
_MOST_TOKENS: Final = 10**12  # of a reply; a greater count is none
_PROGRESS: Final = (
    "message_start",
    "message",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
)
_END_SECONDS: Final = 1.0  # for the end of the body behind the last event; then it is cut off
_EVENT_BYTES: Final = 64  # that an event takes besides its text
_SHOWN: Final = 120  # characters of an odd reply that an error quotes
_END: Final = b"no more lines"  # recognized by its identity
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 128
_DELTAS: Final = {"text_delta": "text", "thinking_delta": "thinking"}
_OPENAI: Final = "a reply in OpenAI's format, not in that of the Messages API"
# Of the blocks that are sent back, the keys that the API takes; gateways add others.
_KEYS: Final = {
    "text": {"type", "text"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "caller"},
}


class ErrorEvent(Exception):
    """An error that the server sent with status 200, as the API does in the middle of a stream.

    Attributes:
        body: with `error`, as in the body of an HTTP error.
    """

    status_code = 200

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("error")))
        self.body = dict(body)


@dataclass(slots=True)
class ReplyBuilder:
    """Puts a reply together from events.

    Attributes:
        heard: called with each piece of text.
        thought: called with each piece of thinking.
        begun: whether the model has begun to reply, which the server charges for.
        ended: whether the last event has come.
        odd: why this is not a reply. Later events are read only for their usage.
    """

    heard: Callable[[str], None] | None = None
    thought: Callable[[str], None] | None = None
    begun: bool = False
    ended: bool = False
    odd: OddReplyError | None = None
    _blocks: list[Block] = field(default_factory=list)
    _inputs: dict[int, str] = field(default_factory=dict)  # JSON text by the place of the block
    _places: dict[Any, int] = field(default_factory=dict)  # by the index that the server gives
    _usage: dict[str, Any] = field(default_factory=dict)
    _output_told: bool = False
    _model: str = ""
    _stop_reason: Any = None
    _bytes: int = 0

    def add(self, event: Mapping[str, Any]) -> None:
        """Take the next event; unknown ones are skipped.

        Raises:
            ErrorEvent: the event is an error.
            OddReplyError: it is in another API's format.
            TransientError: the reply has become too long.
        """
        if "choices" in event and not event.get("type"):
            self.begun = True  # the model has replied
            raise OddReplyError(_OPENAI)
        _raise_error(event)
        self.begun = self.begun or event.get("type") != "ping"
        self._take_bytes(_EVENT_BYTES)
        if self.odd is not None:
            event = _without_content(event)
        try:
            self._add(event)
        except OddReplyError as error:
            self.odd = self.odd or error

    def _add(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self._add_message(event.get("message"))
            case "message":
                self._stop_reason = event.get("stop_reason")
                self.ended = True
                self._note_output(event.get("usage"))
                self._add_message(event)
            case "content_block_start":
                self._start_block(event.get("index"), event.get("content_block"))
            case "content_block_delta":
                self._add_delta(event.get("index"), _object(event.get("delta")))
            case "message_delta":
                reason = _object(event.get("delta")).get("stop_reason")
                self._stop_reason = self._stop_reason if reason is None else reason
                self._add_usage(event.get("usage"))
                self._note_output(event.get("usage"))
            case "message_stop":
                self.ended = True

    @property
    def usage(self) -> Usage | None:
        """The tokens that the server reports; `None` if it has not reported any.

        Gateways begin with zeros, so zeros are not a report if the reply broke off. The output is
        reported at the end; if it is not, it counts by its bytes.
        """
        if "input_tokens" not in self._usage:
            return None
        counts = {name: _count(self._usage.get(key)) for name, key in _COUNTS.items()}
        if not self._output_told:  # no token is shorter than a byte
            counts["output_tokens"] = max(counts["output_tokens"], self._bytes)
        if max(counts.values()) > _MOST_TOKENS:
            return None
        written = _object(self._usage.get("cache_creation"))
        hour = _count(written.get("ephemeral_1h_input_tokens"))
        usage = Usage(cache_hour_tokens=hour, **counts)
        unsure = self.broke_off or not self._output_told
        return None if unsure and not usage.total_input_tokens else usage

    @property
    def broke_off(self) -> bool:
        """Whether `usage` covers only the input: the output is reported at the end of a reply."""
        return not self.ended and self._stop_reason is None

    def build(self, model: str) -> Reply:
        """Return the whole reply; `model` is for servers that do not name theirs.

        Raises:
            OddReplyError: it is not a reply, or is incomplete.
        """
        if self.odd is not None:
            raise self.odd
        if self._stop_reason is None and self.ended:  # whole: some gateways never tell why
            self._stop_reason = "end_turn"
        if self._stop_reason is None:
            raise OddReplyError("half a reply, without a stop reason")
        if not isinstance(self._stop_reason, str):
            raise OddReplyError("a stop reason that is not a string")
        for place, text in self._inputs.items():
            self._blocks[place]["input"] = parse_tool_input(_joined(text))
        return Reply(
            content=[_finished(block) for block in self._blocks],
            stop_reason=self._stop_reason,
            model=self._model or model,
            usage=self.usage or Usage(),
        )

    def _add_message(self, given: Any) -> None:
        message = _object(given)
        model, content = message.get("model"), message.get("content")
        self._model = model if isinstance(model, str) else ""
        self._add_usage(message.get("usage"))
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for index, block in enumerate(content if isinstance(content, list) else ()):
            self._start_block(index, block)

    def _add_usage(self, usage: Any) -> None:
        # Some servers end with zeros for what they reported at the start.
        told = {key: count for key, count in _object(usage).items() if count is not None}
        self._usage |= {key: told[key] for key in told if told[key] or key not in self._usage}

    def _note_output(self, usage: Any) -> None:
        self._output_told = self._output_told or _count(_object(usage).get("output_tokens")) > 0

    def _start_block(self, index: Any, given: Any) -> None:
        block = {key: value for key, value in _object(given).items() if value is not None}
        kind = block.get("type")
        if not isinstance(kind, str):
            raise OddReplyError("a block without a type")
        place = self._places[_index(index)] = len(self._blocks)
        self._blocks.append(block)
        match kind:
            case "text" | "thinking":
                block[kind] = self._piece(block.get(kind), kind)
            case "tool_use":
                self._start_call(place, block)

    def _start_call(self, place: int, block: Block) -> None:
        name, call_id, given = block.get("name"), block.get("id"), block.get("input")
        if not isinstance(name, str) or not name:
            raise OddReplyError("a tool call without a name")
        block["name"] = _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME]
        block["id"] = call_id if isinstance(call_id, str) else ""
        # The API opens a call with an empty object and streams its text; gateways send all at once.
        whole = given if isinstance(given, str) else json.dumps(given or {})
        self._take_bytes(len(whole))
        self._inputs[place] = "" if whole == "{}" else whole

    def _add_delta(self, index: Any, delta: Mapping[str, Any]) -> None:
        kind = delta.get("type")
        match kind:
            case "text_delta" | "thinking_delta":
                key = _DELTAS[kind]
                block = self._open_block(index, key)
                block[key] += self._piece(delta.get(key), key)
            case "signature_delta":
                block = self._open_block(index, "thinking")
                block["signature"] = self._piece(delta.get("signature"), "signature")
            case "input_json_delta":
                place = self._places.get(_index(index), len(self._blocks) - 1)
                if place >= 0 and self._blocks[place]["type"] not in _KEYS:
                    self._piece(delta.get("partial_json"), "partial_json")
                    return  # of a call that the server runs itself, such as a search
                if place not in self._inputs:
                    raise OddReplyError("the input of a tool call that it has not begun")
                piece = self._piece(delta.get("partial_json"), "partial_json")
                opened = self._blocks[place].get("input")
                if piece and isinstance(opened, dict) and self._inputs[place] == json.dumps(opened):
                    self._inputs[place] = ""  # told whole at the start, and again in pieces
                self._inputs[place] += piece

    def _open_block(self, index: Any, kind: str) -> Block:
        """Return the block of this index, or a new one if the server has not begun it."""
        place = self._places.get(_index(index))
        if place is None or self._blocks[place]["type"] != kind:
            self._start_block(index, {"type": kind})
            place = self._places[_index(index)]
        return self._blocks[place]

    def _piece(self, text: Any, key: str) -> str:
        if not isinstance(text, str | None):
            raise OddReplyError(f"a {key} that is not a string")
        self._take_bytes(len((text or "").encode(errors="surrogatepass")))
        hear = {"text": self.heard, "thinking": self.thought}.get(key)
        if text and hear is not None:
            hear(text)
        return text or ""

    def _take_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes > MOST_BYTES:
            raise _endless()


_COUNTS: Final = {
    "input_tokens": "input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
    "output_tokens": "output_tokens",
}


async def read_reply(
    chunks: AsyncIterator[bytes], builder: ReplyBuilder, silence_seconds: float
) -> None:
    """Feed the body of an HTTP response to `builder`, up to the last event.

    Pings and unknown events keep the connection; they do not extend the time in which the model
    must go on.

    Raises:
        ErrorEvent: the server sent an error.
        OddReplyError: the body is not a reply.
        TransientError: it sent too much, or no part of a reply for three times `silence_seconds`.
    """
    most = _PINGS_ONLY * silence_seconds
    clock = asyncio.get_running_loop().time
    async with aclosing(_read_events(chunks, builder)) as events:
        try:
            async with asyncio.timeout(most) as silence:
                async for event in events:
                    if event.get("type") in _PROGRESS:
                        silence.reschedule(clock() + most)
                    builder.add(event)
                    if builder.ended:
                        break
        except TimeoutError as error:
            text = f"the model's server sent nothing but pings for {most:g} s"
            raise builder.odd or TransientError(text) from error
        if builder.ended:  # a connection whose body was read to its end is used again
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    async for _ in events:
                        pass


async def _read_events(
    chunks: AsyncIterator[bytes], builder: ReplyBuilder
) -> AsyncGenerator[Mapping[str, Any]]:
    lines = _read_lines(chunks)
    first = b""
    async for line in lines:
        if first := line.strip():
            break
    if first and not first.startswith(_FIELDS):
        text = (first + b"\n" + await _read_rest(lines)).decode(errors="replace")
        body = _parse_json(text)
        builder.begun = body is None and text.startswith("{")  # half a message
        yield _find_message(body, text)
        return
    parser, line = _EventParser(), first
    try:
        while line is not _END:
            parser.take(line)
            if parser.event:
                yield parser.event
            line = await anext(lines, _END)
        parser.take(b"")
    except OddReplyError:
        builder.begun = True  # the model may have said it
        raise
    if not builder.begun:
        raise OddReplyError("an empty body")


@dataclass(slots=True)
class _EventParser:
    """Parses the lines of an event stream.

    Attributes:
        event: the event that the last line completed, if any.
    """

    event: dict[str, Any] | None = None
    _name: str = ""
    _data: str = ""

    def take(self, line: bytes) -> None:
        key, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        self.event = None
        if key == "event":
            self._name = value
        elif key == "data" and value.strip() != "[DONE]":
            self._data = f"{self._data}\n{value}" if self._data else value
            if (event := _parse_event(self._data)) is not None:
                self.event, self._data = {"type": self._name, **event}, ""
        elif not line:
            if self._data:
                raise OddReplyError(f"an event that is not JSON: {_excerpt(self._data)}")
            self._name = ""


async def _read_rest(lines: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for line in lines:
        body += line + b"\n"
        if len(body) > MOST_BYTES:
            raise _endless()
    return bytes(body)


async def _read_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf")
        if len(rest) > MOST_BYTES:
            raise _endless()
    if rest:
        yield rest


def _endless() -> TransientError:
    error = TransientError(f"the model's server sent more than {MOST_BYTES} bytes as one reply")
    error.begun = True  # the model may have said it
    return error


def _parse_event(data: str) -> dict[str, Any] | None:
    """Return the event; `None` if the text is not JSON, or is still incomplete."""
    with suppress(ValueError, RecursionError):
        event = json.loads(data)
        if not isinstance(event, dict):
            raise OddReplyError(f"an event that is not an object: {_excerpt(data)}")
        return event
    return None


def _without_content(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return only those parts of an event that are about usage and the end of the reply."""
    message, delta = _object(event.get("message")), _object(event.get("delta"))
    return {
        "type": event.get("type"),
        "usage": event.get("usage"),
        "message": {"usage": message.get("usage")},
        "delta": {"stop_reason": delta.get("stop_reason")},
    }


def _raise_error(event: Mapping[str, Any]) -> None:
    kind = event.get("type")
    if kind == "error" or (kind != "message" and event.get("error") is not None):
        raise ErrorEvent(event)


def _parse_json(text: str) -> Any:
    """Return the value of a JSON text; `None` if it is not JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _find_message(body: Any, text: str) -> dict[str, Any]:
    """Return the message that a server sent as one JSON document in place of a stream."""
    if isinstance(body, dict):
        if body.get("error"):
            return {**body, "type": "error"}
        if "content" in body:
            return {**body, "type": "message"}
        if "choices" in body:
            return body
    if text.lstrip()[:1] == "<":
        raise OddReplyError(f"a web page: {_excerpt(text)}")
    raise OddReplyError(f"a body that is neither events nor a message: {_excerpt(text)}")


def _finished(block: Block) -> Block:
    keys = _KEYS.get(block["type"], block.keys())
    whole = {key: value for key, value in block.items() if key in keys}
    for key in ("text", "thinking"):
        if isinstance(whole.get(key), str):
            whole[key] = _joined(whole[key])
    try:
        json.dumps(whole, allow_nan=False)
    except ValueError as error:
        raise OddReplyError("a number that JSON does not have") from error
    return whole


def _joined(text: str) -> str:
    """Join surrogate pairs, which servers split between two events."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _index(index: Any) -> Any:
    return index if isinstance(index, int) else None


def _count(tokens: Any) -> int:
    """Return a count, which some servers write as 50.0 or "50"; 0 for anything else."""
    with suppress(TypeError, ValueError, OverflowError):
        return max(int(tokens), 0)
    return 0


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
