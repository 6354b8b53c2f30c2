"""The scripted model: each teammate's own turns, in the order of its conversation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from teamd.models import Ask, Reply, UnusableError
from teamd.models.scripted import Scripted
from tests.strict.replies import tool_calls
from tests.unit.life import MODEL, SYSTEM

TURNS = {
    "alice": [
        {"expect": "begin", "say": "I begin.", "use": [["bash", {"command": "ls"}], ["x", {}]]},
        {"expect": 'name = "a"\nb', "say": "Done."},
    ],
    "bob": [{"say": "I am bob."}],
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def result(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    block = {"type": "tool_result", "tool_use_id": "1", "content": content, "is_error": False}
    return {"role": "user", "content": [block]}


SAID = {"role": "assistant", "content": [{"type": "text", "text": "I begin."}]}


def play(
    folder: Path, *messages: dict[str, Any], turns: object = None, system: str = SYSTEM
) -> Reply:
    script = folder / "script.json"
    script.write_text(json.dumps({"turns": TURNS if turns is None else turns}))
    ask = Ask(model=MODEL, system=system, tools=[], messages=list(messages), max_tokens=10)
    return asyncio.run(Scripted(script).reply(ask))


def test_a_turn_has_text_and_calls(tmp_path: Path) -> None:
    reply = play(tmp_path, user("begin"))
    assert reply.text == "I begin."
    assert [(call["name"], call["input"]) for call in tool_calls(reply.content)] == [
        ("bash", {"command": "ls"}),
        ("x", {}),
    ]
    assert len({call["id"] for call in tool_calls(reply.content)}) == 2
    assert reply.stop_reason == "tool_use"
    assert reply.model == MODEL
    assert reply.usage.output_tokens > 0


def test_the_next_turn_follows_from_the_conversation_alone(tmp_path: Path) -> None:
    """A restarted teammate must resume at the same turn."""
    reply = play(tmp_path, user("begin"), SAID, result('the file has name = "a"\nb'))
    assert (reply.text, reply.stop_reason) == ("Done.", "end_turn")


def test_each_teammate_has_its_own_turns(tmp_path: Path) -> None:
    assert play(tmp_path, user("x"), system="You are 'bob', role: x.").text == "I am bob."


@pytest.mark.parametrize("system", ["You are 'carol', role: x.", "Somebody."])
def test_without_turns_left_a_teammate_has_nothing_to_do(tmp_path: Path, system: str) -> None:
    reply = play(tmp_path, user("x"), system=system)
    assert (reply.text, reply.stop_reason) == ("Nothing to do.", "end_turn")


def test_a_missing_expected_result_ends_the_script(tmp_path: Path) -> None:
    """A script that continues anyway would prove nothing."""
    with pytest.raises(UnusableError, match=r"expected 'name = .* and read: bash: no such file"):
        play(tmp_path, user("begin"), SAID, result("bash: no such file"))


def test_only_the_last_message_counts_for_an_expectation(tmp_path: Path) -> None:
    with pytest.raises(UnusableError):
        play(tmp_path, user('name = "a"\nb'), SAID, result("else"))


@pytest.mark.parametrize(("heard", "said"), [("begin", "I wait."), ("begin: mail", "I go on.")])
def test_a_turn_is_skipped_if_its_mail_came_first(tmp_path: Path, heard: str, said: str) -> None:
    """The time at which mail arrives varies, and the script must not depend on it."""
    turns = {"alice": [{"unless": "mail", "say": "I wait."}, {"say": "I go on."}]}
    assert play(tmp_path, user(heard), turns=turns).text == said


@pytest.mark.parametrize("content", [None, "no JSON", "[]", "{}", '{"turns": 7}', '{"turns": [7]}'])
def test_an_invalid_script_file_is_reported(tmp_path: Path, content: str | None) -> None:
    script = tmp_path / "script.json"
    if content is not None:
        script.write_text(content)
    ask = Ask(model=MODEL, system=SYSTEM, tools=[], messages=[user("x")], max_tokens=10)
    with pytest.raises(UnusableError, match="is not a script"):
        asyncio.run(Scripted(script).reply(ask))


@pytest.mark.parametrize(
    "turn", ["text", {"use": [["bash"]]}, {"use": 3}, {"expect": "("}, {"expect": 3}]
)
def test_an_invalid_turn_is_reported(tmp_path: Path, turn: object) -> None:
    """A typo in a user's script must not look like a crash."""
    with pytest.raises(UnusableError, match="a turn of 'alice' is invalid"):
        play(tmp_path, user("x"), turns={"alice": [turn]})
