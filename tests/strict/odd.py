"""Replies that gateways send but the API does not: the meaning and the cost of each body.

Every body answers a request for work with the tool `do`. Each is a known report against a real
server, or a variation of such a report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tests.strict.exchange import Exchange
from tests.strict.wire import Wire

EVENTS: Final = "text/event-stream"
JSON: Final = "application/json"
HTML: Final = "text/html"
IN, OUT = 12, 9  # tokens that each reply reports
CUT: Final = (IN, None)  # the reply ends before it reports its output tokens
BY_BYTES: Final = (IN, 726)  # its end reports no output: 64 bytes an event, and those of the text
CALL: Final[dict[str, Any]] = {"type": "tool_use", "id": "toolu_1", "name": "do", "input": {}}
INPUT: Final = '{"word": "a"}'

Events = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddReply:
    """One odd reply.

    Attributes:
        name: the name of the case.
        body: the bytes that are sent, with status 200.
        kind: its content type.
        does: the words that `do` is called with; `None` if the body is not a usable reply.
        error: part of the error result that the call gets in place of running.
        sentence: part of the notice after the reply came twice in a row.
        billed: input and output tokens that the server reports; `None` for a figure that is not
            reported.
        recovers: whether the next try is made at once, however often it has failed.
        ends: whether the reply ends the turn.
        open: whether the connection stays open after the body.
    """

    name: str
    body: bytes
    kind: str = EVENTS
    does: tuple[str, ...] | None = ()
    error: str = ""
    sentence: str = ""
    billed: tuple[int, int | None] | None = (IN, OUT)
    recovers: bool = False
    ends: bool = False
    open: bool = False

    def __str__(self) -> str:
        return self.name

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send the body, as a fault of the strict server."""
        if not self.open:
            wire.reply(200, self.body, {"content-type": self.kind})
            return
        wire.start()
        wire.send(self.body)
        exchange.wait_for_close(wire)


def start(**more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5",
        "content": [], "stop_reason": None, "usage": {"input_tokens": IN, "output_tokens": 1},
    }  # fmt: skip
    return {"type": "message_start", "message": {**message, **more}}


def block(index: Any, opening: dict[str, Any], *deltas: dict[str, Any]) -> Events:
    at = {} if index is None else {"index": index}
    return [
        {"type": "content_block_start", **at, "content_block": opening},
        *({"type": "content_block_delta", **at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **at},
    ]


def text(index: Any = 0, *pieces: Any) -> Events:
    opening = {"type": "text", "text": ""}
    said = pieces or ("I ", "look.")
    return block(index, opening, *({"type": "text_delta", "text": piece} for piece in said))


def call(index: Any = 1, given: Any = INPUT, **more: Any) -> Events:
    pieces = [given] if given is None or len(given) < 2 else [given[:2], given[2:]]
    opening = {key: value for key, value in {**CALL, **more}.items() if value != "-"}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, opening, *deltas)


def end(reason: Any = "tool_use", usage: Any = "-") -> Events:
    told = {} if usage is None else {"usage": {"output_tokens": OUT} if usage == "-" else usage}
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, **told},
        {"type": "message_stop"},
    ]


WHOLE: Final[Events] = [start(), *text(), *call(), *end()]


def sse(events: Events, *, names: bool = True, stop: str = "\n", gap: str = "\n") -> bytes:
    lines = []
    for event in events:
        name = [f"event: {event['type']}"] if names and "type" in event else []
        lines.append(stop.join([*name, f"data: {json.dumps(event)}"]) + stop + gap)
    return "".join(lines).encode()


def message(**more: Any) -> bytes:
    content = [{"type": "text", "text": "I look."}, {**CALL, "input": {"word": "a"}}]
    whole = start(content=content, stop_reason="tool_use",
                  usage={"input_tokens": IN, "output_tokens": OUT})["message"]  # fmt: skip
    return json.dumps({**whole, **more}).encode()


def _runs(name: str, body: bytes | Events, does: tuple[str, ...] = ("a",), **more: Any) -> OddReply:
    return OddReply(
        name=name, body=sse(body) if isinstance(body, list) else body, does=does, **more
    )


def _error(name: str, given: str, error: str) -> OddReply:
    events = [start(), *text(), *call(given=given), *end()]
    return OddReply(name=f"input {name}", body=sse(events), error=error)


def _no_reply(name: str, body: bytes | Events, sentence: str, **more: Any) -> OddReply:
    raw = sse(body) if isinstance(body, list) else body
    return OddReply(name=name, body=raw, sentence=sentence, does=None, **more)


def _spoken(name: str, body: bytes | Events, **more: Any) -> OddReply:
    return _runs(name, body, does=(), ends=True, **more)


def _replaced(at: int, **more: Any) -> Events:
    return [*WHOLE[:at], {**WHOLE[at], **more}, *WHOLE[at + 1 :]]


FORM: Final = [
    _runs("as the API sends it", WHOLE),
    _runs("no event lines", sse(WHOLE, names=False)),
    _runs("CRLF", sse(WHOLE, stop="\r\n", gap="\r\n")),
    _runs("no blank lines", sse(WHOLE, gap="")),
    _runs("no blank lines and no event lines", sse(WHOLE, gap="", names=False)),
    _runs("no space behind data", sse(WHOLE).replace(b"data: ", b"data:")),
    _runs("byte order mark", b"\xef\xbb\xbf" + sse(WHOLE)),
    _runs("comments", b": hello\n\n: again\nretry: 100\nid: 7\n\n" + sse(WHOLE)),
    _runs("blank lines at first", b"\n\n\r\n" + sse(WHOLE)),
    _runs("done line", sse(WHOLE) + b"data: [DONE]\n\n"),
    _runs("data over two lines", sse(WHOLE).replace(b'{"type": "message_stop"}',
                                                      b'{"type":\ndata: "message_stop"}')),
    _runs("other content type", sse(WHOLE), kind="text/plain"),
    _runs("last line without an end", sse(WHOLE).rstrip(b"\n")),
    _runs("open connection", sse(WHOLE), open=True),
    _runs("zeros at the end for what the start reported",
          [*WHOLE[:-2], *end(usage={"input_tokens": 0, "output_tokens": OUT})]),
    _runs("no error in each event", [{**event, "error": None} for event in WHOLE]),
    _runs("count of thousands of digits", [start(usage={"input_tokens": 9 * 10**4299,
          "cache_read_input_tokens": 9 * 10**4299}), *WHOLE[1:]], billed=None),
    _runs("pings without data", b"event: ping\n\n" + sse(WHOLE)),
    _runs("ping with data", [{"type": "ping"}, *WHOLE[:3], {"type": "ping"}, *WHOLE[3:]]),
    _runs("unknown event", [{"type": "vendor_event", "x": 1}, *WHOLE, {"type": "trailer"}]),
    _runs("event without a type", [{"x": 1}, *WHOLE]),
    _runs("event behind the end", [*WHOLE, *text(9, "More.")]),
    _runs("no message_stop", WHOLE[:-1]),
    _runs("no message_start", WHOLE[1:], billed=None),
    _runs("two message_delta", [*WHOLE[:-1], {"type": "message_delta", "delta": {},
                                              "usage": {"output_tokens": OUT}}, WHOLE[-1]]),
    _runs("whole message as JSON", message(), kind=JSON),
    _runs("whole message as JSON in an event stream", message()),
    _runs("whole message, indented", json.dumps(json.loads(message()), indent=2).encode(),
          kind=JSON),
    _runs("whole message without usage", message(usage=None), kind=JSON, billed=None),
    _spoken("whole message whose content is a string",
            message(content="Hello.", stop_reason="end_turn"), kind=JSON),
    _spoken("whole message without content blocks", message(content=[], stop_reason="end_turn"),
            kind=JSON),
]  # fmt: skip

INDEXES: Final = [
    _runs("index from 1", [start(), *text(1), *call(2), *end()]),
    _runs("index gap", [start(), *text(0), *call(5), *end()]),
    _runs("no index", [start(), *text(None), *call(None), *end()]),
    _runs("index always 0", [start(), *text(0), *call(0), *end()]),
    _runs("index is text", [start(), *text("0"), *call("1"), *end()]),
    _runs("indexes downwards", [start(), *text(7), *call(3), *end()]),
    _runs("two calls at one index", [start(), *call(0, id="x1"),
                                     *call(0, '{"word": "b"}', id="x2"), *end()], ("a", "b")),
    _runs("text that was not begun", [start(), text()[1], *call(), *end()]),
    _runs("blocks that are not ended", [start(), *text()[:-1], *call()[:-1], *end()]),
    _runs("deltas of two blocks mixed", [start(), text()[0], call()[0], text()[1], *call()[1:-1],
                                         text()[2], *end()]),
    _runs("content in message_start", [start(content=[{"type": "text", "text": "I look."}]),
                                       *call(), *end()]),
]  # fmt: skip

REASONS: Final = [
    *(_runs(f"call under {reason}", [start(), *text(), *call(), *end(reason)])
      for reason in ("end_turn", "stop", "tool_calls", "stop_sequence", "eos", "")),
    *(_spoken(f"text under {reason}", [start(), *text(), *end(reason)])
      for reason in ("end_turn", "stop", "eos", "stop_sequence")),
    OddReply(name="call under max_tokens", body=sse([start(), *call(0), *end("max_tokens")]),
             error="cut off"),
    OddReply(name="half a call under max_tokens",
             body=sse([start(), *call(0, '{"word": "a'), *end("max_tokens")]), error="cut off"),
    _spoken("refusal", [start(), *text(), *end("refusal")]),
    _spoken("refusal with a call", [start(), *text(), *call(), *end("refusal")]),
]  # fmt: skip

_ODD_IDS: Final[list[Any]] = ["", "a b", "call:1", "x" * 200, "\u00e9", None, 5, [], "-"]
IDS: Final = [
    *(_runs(f"call id {odd!r}"[:30], [start(), *call(0, id=odd), *end()]) for odd in _ODD_IDS),
    _runs("one id for two calls", [start(), *call(0), *call(1, '{"word": "b"}'), *end()],
          ("a", "b")),
    _runs("empty id for two calls", [start(), *call(0, id=""), *call(1, '{"word": "b"}', id=""),
                                     *end()], ("a", "b")),
    OddReply(name="tool name with a dot", body=sse([start(), *call(name="x.do"), *end()]),
             error="x_do"),
    OddReply(name="tool name too long", body=sse([start(), *call(name="n" * 300), *end()]),
             error="n" * 128),
    OddReply(name="tool name of another script", body=sse([start(), *call(name="\u6771"), *end()]),
             error="no tool"),
]  # fmt: skip

INPUTS: Final = [
    _runs("input in the start", [start(), *call(0, None, input={"word": "a"}), *end()]),
    _runs("input in the start and in pieces", [start(), *call(0, input={"word": "a"}), *end()]),
    _runs("input as text in the start", [start(), *call(0, None, input=INPUT), *end()]),
    _runs("input that is null", [start(), *call(0, None, input=None), *end()], ("",)),
    _runs("no input", [start(), *call(0, "", input="-"), *end()], ("",)),
    _runs("null pieces of input", [start(), *call(0)[:1], {**call(0)[1], "delta":
          {"type": "input_json_delta", "partial_json": None}}, *call(0)[1:], *end()]),
    _error("is a list", "[1]", "an array, not an object"),
    _error("is a string", '"rm"', "a string, not an object"),
    _error("is a number", "70", "a number, not an object"),
    _error("is null", "null", "null, not an object"),
    _error("is true", "true", "a boolean, not an object"),
    _error("is cut", '{"word": "a', "Unterminated string"),
    _error("has half a number", '{"word": 12', "Expecting ',' delimiter"),
    _error("has single quotes", "{'word': 'a'}", "property name enclosed in double quotes"),
    _error("has NaN", '{"word": NaN}', "not JSON compliant"),
    _error("has infinity", '{"word": 1e999}', "not JSON compliant"),
    _error("has half a surrogate pair", '{"word": "\\ud800"}', "surrogates not allowed"),
    _error("goes on behind its end", '{"word": "a"} x', "Extra data"),
    _error("is two objects", '{"word": "a"}{"word": "b"}', "Extra data"),
    _error("is nested too deeply", "[" * 100_000 + "]" * 100_000, "nested too deeply"),
    _error("is prose", "I would call do", "Expecting value"),
    _error("is XML", "<word>a</word>", "Expecting value"),
    OddReply(name="input is a number in the start",
             body=sse([start(), *call(0, None, input=5), *end()]), error="a number"),
    OddReply(name="input is a list in the start",
             body=sse([start(), *call(0, None, input=["a"]), *end()]), error="an array"),
]  # fmt: skip

BLOCKS: Final = [
    _runs("null text", [start(), *text(0, None, "x", None), *call(), *end()]),
    _runs("text that is null in the start", [start(), *block(0, {"type": "text", "text": None}),
                                             *call(), *end()]),
    _runs("text without text", [start(), *block(0, {"type": "text"}), *call(), *end()]),
    _runs("blank text", [start(), *text(0, " ", "\n"), *call(), *end()]),
    _runs("text in the start", [start(), *block(0, {"type": "text", "text": "All."}), *call(),
                                *end()]),
    _runs("split surrogate pair", sse([start(), *text(0, "\ud83d", "\ude00"), *call(), *end()])),
    _runs("half a surrogate pair", sse([start(), *text(0, "x\ud83d"), *call(), *end()])),
    _runs("text that is not UTF-8", sse(WHOLE).replace(b"look", b"\xff\xfe")),
    _runs("unsigned thinking", [start(), *block(0, {"type": "thinking", "thinking": ""},
          {"type": "thinking_delta", "thinking": "Hm"}), *call(), *end()]),
    _runs("thinking with an empty signature", [start(), *block(0, {"type": "thinking",
          "thinking": "Hm", "signature": ""}), *call(), *end()]),
    _runs("thinking whose signature is null", [start(), *block(0, {"type": "thinking",
          "thinking": "Hm", "signature": None}), *call(), *end()]),
    _runs("thinking that was not begun", [start(), {"type": "content_block_delta", "index": 0,
          "delta": {"type": "thinking_delta", "thinking": "Hm"}}, *call(), *end()]),
    _runs("redacted thinking without data", [start(), *block(0, {"type": "redacted_thinking"}),
                                             *call(), *end()]),
    _runs("redacted thinking whose data is a number", [start(), *block(0, {
          "type": "redacted_thinking", "data": 5}), *call(), *end()]),
    _runs("unknown block", [start(), *block(0, {"type": "reasoning", "text": "Hm"}), *call(),
                            *end()]),
    _runs("block of a server tool", [start(), *block(0, {"type": "server_tool_use", "id": "s1",
          "name": "web_search", "input": {}}), *call(), *end()]),
    _runs("unknown delta", [start(), *text()[:1], {"type": "content_block_delta", "index": 0,
          "delta": {"type": "citations_delta", "citation": {}}}, *text()[1:], *call(), *end()]),
    _runs("delta that is null", [start(), *text()[:1], {"type": "content_block_delta", "index": 0,
          "delta": None}, *text()[1:], *call(), *end()]),
    _runs("keys that the API does not have", [start(), *call(0, id="c1", cost=1.5, extra={}),
                                              *end()]),
    _runs("message_start without a message", [{"type": "message_start", "message": None},
                                              *WHOLE[1:]], billed=None),
    _runs("model is null", [start(model=None), *WHOLE[1:]]),
    _spoken("nothing said", [start(), *end("end_turn")]),
    _spoken("only thinking", [start(), *block(0, {"type": "thinking", "thinking": "Hm"}),
                              *end("end_turn")]),
    _spoken("only blank text", [start(), *text(0, "  "), *end("end_turn")]),
]  # fmt: skip

USAGES: Final = [
    _runs("no usage", [start(usage=None), *WHOLE[1:-2], *end(usage=None)], billed=None),
    _runs("no usage in message_start", [start(usage=None), *WHOLE[1:-2],
          *end(usage={"input_tokens": 30, "output_tokens": 5})], billed=(30, 5)),
    _runs("no usage in message_delta", [start(), *WHOLE[1:-2], *end(usage=None)], billed=BY_BYTES),
    _runs("usage with nulls", [start(), *WHOLE[1:-2], *end(usage={"input_tokens": None,
          "output_tokens": OUT, "cache_read_input_tokens": None})]),
    _runs("usage that is a list", [start(usage=[]), *WHOLE[1:-2], *end(usage=[])], billed=None),
    _runs("usage of text", [start(), *WHOLE[1:-2], *end(usage={"output_tokens": "9"})]),
    _runs("usage with a fraction", [start(), *WHOLE[1:-2], *end(usage={"output_tokens": 9.0})]),
    _runs("negative usage", [start(), *WHOLE[1:-2], *end(usage={"output_tokens": -9})],
          billed=BY_BYTES),
    _runs("usage of zero", [start(usage={"input_tokens": 0, "output_tokens": 0}), *WHOLE[1:-2],
                            *end(usage={"output_tokens": 0})], billed=None),
    _runs("stop reason null", [*WHOLE[:-2], *end(None)]),
    _runs("whole message with stop reason null", message(stop_reason=None), kind=JSON),
    _runs("call of the server's own whose input is streamed", [start(), *call(0, type=
          "server_tool_use", id="srvtoolu_1", name="web_search"), *call(1), *end()]),
    _runs("input told again at the end", [start(), *WHOLE[1:-2],
          *end(usage={"input_tokens": 40, "output_tokens": OUT})], billed=(40, OUT)),
]  # fmt: skip

NO_REPLY: Final = [
    _no_reply("web page", b"<!DOCTYPE html><html><h1>Sign in</h1></html>", "a web page",
              kind=HTML, billed=(0, 0)),
    _no_reply("web page in an event stream", b"<html>Bad gateway</html>", "a web page",
              billed=(0, 0)),
    _no_reply("empty body", b"", "an empty body", billed=(0, 0)),
    _no_reply("blank body", b"\n \n", "an empty body", billed=(0, 0)),
    _no_reply("only a done line", b"data: [DONE]\n\n", "an empty body", billed=(0, 0)),
    _no_reply("only comments", b": processing\n\n: processing\n\n", "an empty body", billed=(0, 0)),
    _no_reply("plain text", b"upstream connect error", "neither events nor a message",
              kind="text/plain", billed=(0, 0)),
    _no_reply("empty object", b"{}", "neither events nor a message", kind=JSON, billed=(0, 0)),
    _no_reply("list", b"[]", "neither events nor a message", kind=JSON, billed=(0, 0)),
    _no_reply("null", b"null", "neither events nor a message", kind=JSON, billed=(0, 0)),
    _no_reply("OpenAI's reply", b'{"choices": [{"message": {"content": "Hi."}}]}',
              "OpenAI's format", kind=JSON, billed=None),
    _no_reply("OpenAI's stream", b'data: {"choices": [{"delta": {"content": "Hi."}}]}\n\n',
              "OpenAI's format", billed=None),
    _no_reply("half a reply", WHOLE[:-2], "half a reply", billed=CUT),
    _no_reply("nothing but the start", WHOLE[:1], "half a reply", billed=CUT),
    _no_reply("half an event", sse(WHOLE[:-1])[:-20], "not JSON", billed=CUT),
    _no_reply("event that is not JSON", sse(WHOLE[:3]) + b"data: {oops\n\n" + sse(WHOLE[3:]),
              "not JSON", billed=CUT),
    _no_reply("event that is a list", sse(WHOLE[:3]) + b"data: []\n\n", "not an object",
              billed=CUT),
    _no_reply("event that is null", sse(WHOLE[:3]) + b"data: null\n\n", "not an object",
              billed=CUT),
    _no_reply("call without a name", [start(), *call(name="-"), *end()], "without a name"),
    _no_reply("whole message with a call without a name",
              message(content=[{**CALL, "name": ""}]), "without a name", kind=JSON),
    _no_reply("overload in the middle of a reply", sse([*WHOLE[:3], {"type": "error", "error":
              {"type": "overloaded_error", "message": "busy"}}]), "busy", billed=CUT,
              recovers=True),
    _no_reply("call whose name is empty", [start(), *call(name=""), *end()], "without a name"),
    _no_reply("call whose name is a number", [start(), *call(name=5), *end()], "without a name"),
    _no_reply("text that is a number", [start(), *text(0, 5), *end()], "not a string"),
    _no_reply("block without a type", [start(), *block(0, {"text": "x"}), *end()],
              "without a type"),
    _no_reply("block without a type before the start",
              [*block(0, {"text": "x"}), start(), *end()], "without a type"),
    _no_reply("block without a type, and no last event",
              [start(), *block(0, {"text": "x"}), *end()[:1]], "without a type"),
    _no_reply("block that is null", [start(), *block(0, None), *end()],  # type: ignore[arg-type]
              "without a type"),
    _no_reply("input without a call", [start(), *text(), call()[1], *end()],
              "input of a tool call that it has not begun"),
    _no_reply("stop reason that is a number", [*WHOLE[:-2], *end(5)], "not a string"),
    _no_reply("stop reason that is a list", [*WHOLE[:-2], *end(["end_turn"])], "not a string"),
    _no_reply("number that JSON does not have", sse([start(), *block(0, {"type": "odd",
              "cost": float("inf")}), *end()]), "a number that JSON does not have"),
    _no_reply("overload as a JSON body", b'{"type": "error", "error": {"type": "overloaded_error",'
              b' "message": "busy"}}', "busy", kind=JSON, billed=(0, 0), recovers=True),
    _no_reply("overload as an event", b'event: error\ndata: {"type": "error", "error": {"type":'
              b' "overloaded_error", "message": "busy"}}\n\n', "busy", billed=(0, 0),
              recovers=True),
    _no_reply("error that is text", b'{"error": "model is loading"}', "model is loading",
              kind=JSON, billed=(0, 0), recovers=True),
    _no_reply("error event without a type", b'data: {"error": {"message": "boom"}}\n\n', "boom",
              billed=(0, 0), recovers=True),
    _no_reply("error event whose data is empty", b"event: error\ndata: {}\n\n", "answered",
              billed=(0, 0), recovers=True),
]  # fmt: skip

ODD_REPLIES: Final = [*FORM, *INDEXES, *REASONS, *IDS, *INPUTS, *BLOCKS, *USAGES, *NO_REPLY]
