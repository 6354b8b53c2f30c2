"""The SDK, loaded and used once before any teammate is forked; no server is asked."""

from __future__ import annotations

import importlib
from typing import Any, Final

import anthropic
import httpx2

from teamd.models import claude

_NOWHERE: Final = "http://127.0.0.1:9"
_STREAM: Final = {"content-type": "text/event-stream"}
_WARM: Final = """\
event: message_start
data: {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", \
"model": "none", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "."}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 0}

event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}

event: message_stop
data: {"type": "message_stop"}

"""


def warm_up() -> None:
    """Do once, before forking, what the first call of every teammate would do anew.

    A whole reply is read from a transport that has no network, so that what the SDK loads and
    builds at its first use is shared by all children. No thread is started: the process that
    forks must have none, which is why the SDK's other, synchronous client does it.
    """
    claude.shared_tls()
    importlib.import_module("anyio._backends._asyncio")  # the other client's, else loaded late
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, text=_WARM, headers=_STREAM))
    http_client = anthropic.DefaultHttpxClient(transport=transport)
    with anthropic.Anthropic(api_key="none", base_url=_NOWHERE, http_client=http_client) as client:
        talk: Any = [{"role": "user", "content": "."}]
        with client.messages.stream(model="none", max_tokens=1, messages=talk) as stream:
            stream.get_final_message()
