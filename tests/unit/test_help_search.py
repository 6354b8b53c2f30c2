"""`teamctl help WORD`: the words that people type lead to a section or to lines that answer."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from teamctl.commands.help import search
from teamctl.main import cli

# The words of a person, and a part of the answer.
ANSWERED = {
    "ollama": 'base_url = "http://localhost:11434"',
    "OpenRouter": 'base_url = "https://openrouter.ai/api"',
    "model": "teamctl spawn rita reviewer",
    "another model": "--model",
    "internet": "[tools]\nhosts = [",
    "network": "network = true",
    "push": "teamctl push",
    "git push": "`teamctl approve ID` pushes",
    "pr": "open a pull request",
    "pull request": "teamctl pr alice",
    "overnight": "team_usd_per_day",
    "night": "teamctl help recipes: Overnight",
    "sleep": "systemd-inhibit",
    "laptop": "systemd-inhibit",
    "notify": "do not exist yet",
    "notified": "teamctl wait --all",
    "told": "teamctl wait --all",
    "notifications": "teamctl help recipes: Being told",
    "undo": "teamctl discard NAME",
    "update": "uv tool install --reinstall",
    "upgrade": "pipx install --force",
    "ci": "runs-on: ubuntu-latest",
    "github": "runs-on: ubuntu-latest",
    "docker": "FROM python:",
    "container": 'sandbox = "external"',
    "image": "cannot look at images yet",
    "search": "No tool for it exists yet",
    "web search": "No tool for it exists yet",
    "mcp": "not supported yet",
    "uninstall": "uv tool uninstall teamd",
    "kill": "`teamctl shutdown NAME` ends a teammate",
}


def ask(*words: str) -> Result:
    return CliRunner().invoke(cli, ["help", *words])


@pytest.mark.parametrize("words", ANSWERED)
def test_each_word_is_answered_by_one_call(words: str) -> None:
    ended = ask(*words.split())
    assert ended.exit_code == 0
    assert ANSWERED[words] in ended.output


def test_the_heading_comes_before_lines_and_recipes_before_other_topics() -> None:
    first, *others = search("ollama")
    assert (first.topic, first.heading, first.line) == ("recipes", "Ollama", "")
    assert {match.topic for match in others} >= {"models"}
    assert all(match.line for match in others)


def test_lines_are_listed_if_no_heading_has_the_word_and_the_rest_is_counted() -> None:
    output = ask("teamctl").output
    assert len(output.splitlines()) <= 23
    assert "\nand " in output
    (line, quoted) = ask("tesseract").output.splitlines()
    assert line == "teamctl help recipes: Images"
    assert quoted.startswith("    in the sandbox")


def test_a_word_matches_from_its_beginning_only() -> None:
    assert search("oncurrent") == []
    assert [match.topic for match in search("limits concurrent")] == ["limits"]
    assert search("limits concurrent")[0].line.startswith("- Set `[model] concurrent_calls`")


def test_words_after_a_topic_are_searched_in_it() -> None:
    assert {match.topic for match in search("queue push")} == {"queue"}
    assert len({match.topic for match in search("push queue")}) > 1


def test_several_words_may_name_a_command() -> None:
    assert ask("task", "add").output.startswith("Usage: cli task add ")


@pytest.mark.parametrize(
    ("word", "then"),
    [
        ("xyzzy", "`teamctl help` lists the topics"),
        ("limts", "did you mean `teamctl help limits`?"),
        ("shutdwn", "did you mean `teamctl help shutdown`?"),
    ],
)
def test_a_search_without_results_is_refused_with_the_next_step(word: str, then: str) -> None:
    ended = ask(word)
    assert (ended.exit_code, ended.output) == (1, "")
    assert str(ended.exception) == f"nothing about {word!r} in the topics and commands; {then}"


def test_json_holds_the_section_and_all_matches() -> None:
    found = json.loads(ask("docker", "--json").output)
    assert found["name"] == "docker"
    assert found["text"].startswith("Docker and other containers\n")
    assert found["matches"][0] == {
        "topic": "recipes",
        "heading": "Docker and other containers",
        "line": "",
    }


@pytest.mark.parametrize("word", ["docker", "search", "limits"])
def test_the_topic_about_help_is_not_a_search_result(word: str) -> None:
    assert ask(word).output.startswith("# ")
