"""Streams whose events are not those of the API: each an answer that no client may take."""

from __future__ import annotations

from typing import Any, Final

from tests.strict.faults import Malformed
from tests.strict.sse import event


def _with_block(block: dict[str, Any], stop_reason: object = "tool_use") -> Malformed:
    """A stream that is whole, but for the shape of its one block."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    events = (
        event("content_block_start", index=0, content_block=block),
        event("content_block_stop", index=0),
        event("message_delta", delta=delta, usage={"output_tokens": 1}),
        event("message_stop"),
    )
    return Malformed(after=1, data=b"".join(events))


def _delta(**data: Any) -> Malformed:
    return Malformed(data=event("content_block_delta", **data))


_REASONS: Final[list[object]] = [5, ["end_turn"], {}]
_CALL: Final[dict[str, Any]] = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}

MISSHAPEN: Final[list[Malformed]] = [
    *(_with_block({**_CALL, "name": wrong}) for wrong in (None, 5)),
    _with_block({"type": "text", "text": 5}, "end_turn"),
    _with_block({"text": "of no type"}, "end_turn"),
    *(_with_block({"type": "text", "text": "x"}, reason) for reason in _REASONS),
    _delta(index=77, delta={"type": "text_delta", "text": "x"}),
    _delta(index=0),
    *(
        Malformed(data=b"event: content_block_delta\ndata: " + rest)
        for rest in (b"null\n\n", b"[]\n\n", b"\xff\xfe\n\n", b"{}\n\n")
    ),
    *(
        Malformed(data=data)
        for data in (b"data: [DONE]\n\n", b"event: error\ndata: {}\n\n", b"<html>\n\n", b"\n\n\n")
    ),
    Malformed(after=1, data=event("message_start", message=None)),
]
