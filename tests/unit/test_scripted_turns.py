"""A script whose turns wait for mail gives the same result in any timing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from teamd.models import Ask, Reply
from teamd.models.scripted import Scripted

SENT = "sent to bob"
ANSWER = '<teammate-message teammate_id="bob">Here it is.</teammate-message>'
TURNS: list[dict[str, Any]] = [
    {"use": [["send_message", {"to": "bob", "content": "?"}]]},
    {"unless": 'teammate_id="bob"', "expect": SENT, "say": "I wait."},
    {"expect": "Here it is", "say": "Thanks."},
]


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def result(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "tool_result", "tool_use_id": "x", "content": content, "is_error": False}


def said(text: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def ask(folder: Path, turns: list[dict[str, Any]], *messages: dict[str, Any]) -> Reply:
    file = folder / "script.json"
    file.write_text(json.dumps({"turns": {"alice": turns}}))
    system = "You are 'alice', role: coder."
    asked = Ask(model="m", system=system, tools=[], messages=list(messages), max_tokens=9)
    return asyncio.run(Scripted(file).reply(asked))


def test_a_teammate_without_an_answer_waits_and_continues_with_the_mail(tmp_path: Path) -> None:
    begun = [user("Ask bob."), said(), user(SENT)]
    assert ask(tmp_path, TURNS, *begun).text == "I wait."
    assert ask(tmp_path, TURNS, *begun, said("I wait."), user(ANSWER)).text == "Thanks."


def test_a_teammate_that_has_the_answer_already_does_not_wait_for_it(tmp_path: Path) -> None:
    """Otherwise a fast answer would end a turn that waits for it, and no mail would wake it."""
    late = {"role": "user", "content": [result(SENT), *user(ANSWER)["content"]]}
    begun = [user("Ask bob."), said(), late]
    assert ask(tmp_path, TURNS, *begun).text == "Thanks."
    assert ask(tmp_path, TURNS, *begun, said("Thanks."), user("And?")).text == "Nothing to do."


def test_mail_counts_however_long_ago_it_arrived(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [
        {"say": "First."},
        {"unless": "Here it is", "say": "I wait."},
        {"say": "Last."},
    ]
    assert ask(tmp_path, turns, user(ANSWER), said("First."), user("Go on.")).text == "Last."
