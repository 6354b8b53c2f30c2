"""Recently sent texts, as a conversation remembers them: across kills, for ten minutes."""

from __future__ import annotations

from typing import Any

import pytest

from teamd.agent.conversation.state import SAME_TEXT_SECONDS, ConversationState
from teamd.transcript.records import CallAnswered, Opened, Record, Replied

BEGAN = 1_800_000_000.0


def sent(at: float, result: str = "sent to bob", **facts: Any) -> list[Record]:
    """Return the records of a call and its result."""
    given = {"to": "bob", "content": "Thanks!"}
    call = {"type": "tool_use", "id": "1", "name": "send_message", "input": given}
    return [
        Replied(content=[call], stop_reason="tool_use", time=at),
        CallAnswered(tool_use_id="1", content=result, time=at, **facts),
    ]


def after(*records: Record) -> ConversationState:
    state = ConversationState()
    for record in (Opened(system="x", time=BEGAN), *records):
        state.apply(record)
    return state


def receivers(state: ConversationState, at: float, text: str = "Thanks!") -> list[str]:
    return list(state.talk.receivers(text, at))


def test_a_text_is_remembered_for_ten_minutes() -> None:
    state = after(*sent(BEGAN))
    assert receivers(state, BEGAN + SAME_TEXT_SECONDS - 1) == ["bob"]
    assert receivers(state, BEGAN + SAME_TEXT_SECONDS) == []
    assert receivers(state, BEGAN + 1, "Thank you!") == []


def test_a_refused_repeat_does_not_extend_the_time() -> None:
    """Otherwise an agent that repeats it continuously could never send it again."""
    state = after(*sent(BEGAN), *sent(BEGAN + 500, "not sent again", is_error=True))
    assert receivers(state, BEGAN + SAME_TEXT_SECONDS) == []


def test_a_failed_send_is_not_remembered() -> None:
    assert receivers(after(*sent(BEGAN, "no teammate", is_error=True)), BEGAN + 1) == []


def test_after_the_clock_is_set_back_by_an_hour_nothing_is_remembered() -> None:
    assert receivers(after(*sent(BEGAN)), BEGAN - 3600) == []


def test_another_conversation_remembers_it_as_well() -> None:
    state = after(*sent(BEGAN))
    state.apply(Opened(system="y", time=BEGAN + 1))
    assert receivers(state, BEGAN + 2) == ["bob"]


@pytest.mark.parametrize("given", [None, {}, {"to": 5, "content": "x"}, "text"])
def test_a_call_with_other_fields_is_ignored(given: object) -> None:
    call = {"type": "tool_use", "id": "1", "name": "send_message", "input": given}
    state = after(
        Replied(content=[call], stop_reason="tool_use"), CallAnswered(tool_use_id="1", content="ok")
    )
    assert receivers(state, BEGAN) == []


def test_only_texts_of_the_last_ten_minutes_are_kept() -> None:
    state = after(*sent(BEGAN))
    for number in range(100):
        given = {"to": "bob", "content": str(number)}
        call = {"type": "tool_use", "id": "1", "name": "send_message", "input": given}
        at = BEGAN + 1000 * number
        state.apply(Replied(content=[call], stop_reason="tool_use", time=at))
        state.apply(CallAnswered(tool_use_id="1", content="sent to bob", time=at))
    assert len(state.talk._sent) == 1
