"""Replies of gateways that imitate the API: the conversation stays acceptable to the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.strict.replies import Answer, say, use
from tests.unit.life import Life

ODD_IDS = ["", "a b", "call:1", "x" * 200, "\u00e9"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd(Answer):
    """An answer with exactly the given blocks."""

    blocks: tuple[Mapping[str, Any], ...] = ()

    def content(self, body: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        del body
        return [dict(block) for block in self.blocks]


def call(call_id: str, word: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "do", "input": {"word": word}}


@pytest.mark.parametrize("reason", ["tool_use", "end_turn", "stop", "tool_calls", "stop_sequence"])
def test_a_complete_call_runs_whatever_the_stop_reason_is(tmp_path: Path, reason: str) -> None:
    life = Life(tmp_path, use(("do", {"word": "a"}), stop_reason=reason), say("Done."))
    life.send("work")
    life.live(calls=2)
    assert life.do.done == ["a"]
    assert life.model.last()[0]["is_error"] is False


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_a_call_that_may_be_cut_off_does_not_run(tmp_path: Path, reason: str) -> None:
    life = Life(tmp_path, use(("do", {"word": "a"}), stop_reason=reason), say("Done."))
    life.send("work")
    life.live(calls=1 if reason == "refusal" else 2)
    assert life.do.done == []


@pytest.mark.parametrize("odd", ODD_IDS, ids=repr)
def test_a_malformed_call_id_is_replaced(tmp_path: Path, odd: str) -> None:
    life = Life(tmp_path, Odd(blocks=(call(odd, "a"),), stop_reason="tool_use"), say("Done."))
    life.send("work")
    life.live(calls=2)
    assert life.do.done == ["a"]


def test_two_calls_with_one_id_are_two_calls(tmp_path: Path) -> None:
    same = Odd(blocks=(call("1", "a"), call("1", "b")), stop_reason="tool_use")
    again = Odd(blocks=(call("1", "c"),), stop_reason="tool_use")
    life = Life(tmp_path, same, again, say("Done."))
    life.send("work")
    life.live(calls=3)
    assert life.do.done == ["a", "b", "c"]


@pytest.mark.parametrize(
    "foreign",
    [
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": ""},
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": " "},
    ],
    ids=str,
)
def test_a_block_that_the_api_does_not_accept_back_is_kept_and_not_sent(
    tmp_path: Path, foreign: dict[str, Any]
) -> None:
    life = Life(tmp_path, Odd(blocks=(foreign, call("1", "a")), stop_reason="tool_use"))
    life.send("work")
    life.live(calls=2)
    sent = life.model.asked[1].messages[1]["content"]
    assert [block["type"] for block in sent] == ["tool_use"]
    assert foreign["type"] in life.paths.transcript("alice").read_text()
