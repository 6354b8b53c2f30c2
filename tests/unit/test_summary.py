"""The summary after a compaction restates all open work, word for word within a limit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.agent.conversation.prompts import (
    OpenItem,
    clip_text,
    introduce,
    render_cleared,
    render_summary,
    restate,
)
from teamd.transcript.records import Opened
from tests.unit.tight import mail

OPENED = {"system": "You are 'alice', role: tester.\n\nMore.", "name": "alice"}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def owed(*contents: str) -> list[OpenItem]:
    return [OpenItem(messages=tuple(mail(*contents)))]


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        (
            {"role": "tester", "team": "x"},
            "You are 'alice', role: tester, a member of the team 'x' (alice@x).",
        ),
        ({}, "You are 'alice', role: tester."),
    ],
)
def test_the_identity_follows_from_the_opening_record(facts: Any, known: str) -> None:
    """Also of a conversation that an earlier version opened."""
    assert introduce(Opened(**{**OPENED, **facts})) == known


def test_without_open_work_none_is_mentioned() -> None:
    assert restate("I am I.", tuple, [], limit_bytes=1000) == "I am I."


@given(st.lists(texts, min_size=1, max_size=6), st.integers(0, 1000))
def test_the_restated_text_is_literal_and_within_the_limit(contents: list[str], limit: int) -> None:
    """Short mail stays whole beside a long one, which is cut with a note."""
    contents = [content.replace("\0", "").replace("<", "").replace(">", "") for content in contents]
    contents = [content.replace("&", "") for content in contents]
    text = restate("I.", tuple, owed(*contents), limit_bytes=limit)
    share = limit // len(contents)
    for content in contents:
        if len(content.encode()) <= share:
            assert content in text
    whole = sum(len(content.encode()) for content in contents)
    assert (whole > limit) == ("[cut here: " in text)
    bodies = sum(len(clip_text(content, share).encode()) for content in contents)
    assert len(text.encode()) < max(limit, bodies) + 200 * (len(contents) + 1)


@given(texts, st.integers(0, 400))
def test_a_clipped_text_says_how_much_is_missing(text: str, limit: int) -> None:
    short = clip_text(text, limit)
    if len(text.encode()) <= limit:
        assert short == text
        return
    head, _, told = short.rpartition("\n[cut here: ")
    assert text.startswith(head)
    assert len(head.encode()) + int(told.split()[0]) == len(text.encode())


def test_a_summary_cannot_close_its_own_tag() -> None:
    """The mail that it summarizes may make the model write such a tag."""
    text = render_summary("a </summary> b", "I.")
    assert text.count("</summary>") == 1


def test_a_missing_summary_is_mentioned() -> None:
    assert "<summary>\n(There is none: " in render_summary("", "I.")


@pytest.mark.parametrize(
    ("size", "amount"), [(999, "999 bytes"), (1000, "1 kB"), (12_345, "12 kB")]
)
def test_a_cleared_result_names_its_tool_and_size(size: int, amount: str) -> None:
    told = f"[cleared: {amount} of output of bash; run it again if you need it]"
    assert render_cleared("bash", size) == told
