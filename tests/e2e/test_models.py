"""Model requests: effort, thinking, context size; and warnings about a model's retirement."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Project, opened
from tests.strict.replies import say

HAIKU = "claude-haiku-4-5"
REMEDY = "choose another one, see `teamctl help models`"
THINKING = {"type": "adaptive", "display": "summarized"}


def options(project: Project, name: str) -> tuple[Any, Any]:
    """Return the effort and the thinking in the last request of a teammate."""
    body = project.asked(name, least=1)[-1].body
    return body.get("output_config"), body.get("thinking")


def test_effort_is_set_by_the_teammate_its_role_or_the_team(project: Project) -> None:
    project.write(".team/agents/hard.md", "---\neffort: xhigh\n---\n")
    project.start()
    for name, role, given, effort in (
        ("ann", "clerk", (), "medium"),
        ("bob", "hard", (), "xhigh"),
        ("eve", "hard", ("--effort", "low"), "low"),
    ):
        project.do("teamctl", "spawn", name, role, "Go.", "--wait", *given)
        assert options(project, name) == ({"effort": effort}, THINKING)
        shown = project.do("teamctl", "show", name)
        assert f"effort     {effort}, if the model takes one\n" in shown
        shown = project.do("teamctl", "show", name, "--json")
        assert json.loads(shown)["member"]["effort"] == effort
    project.do("teamctl", "spawn", "eve", "hard", "Again.", "--wait")
    assert options(project, "eve")[0] == {"effort": "xhigh"}
    refused = project.run("teamctl", "spawn", "ann", "clerk", "Go.", "--effort", "most")
    assert refused.status == 2


def test_thinking_is_shown_in_the_transcript(project: Project) -> None:
    project.stage.play("ann", say("Done.", thinking="I look first."))
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    lines = project.do("teamctl", "transcript", "ann").splitlines()
    assert lines[-2:] == ["  thinking: I look first.", "  Done."]


@pytest.mark.parametrize(
    "terms", [{"models": (HAIKU,)}, {"models": (HAIKU,), "no_page_status": 404}]
)
def test_a_model_or_a_server_without_effort_and_thinking_gets_neither(
    tmp_path: Path, terms: dict[str, Any]
) -> None:
    with opened(tmp_path, **terms) as project:
        project.write("team.toml", f'[model]\nname = "{HAIKU}"\n')
        project.start()
        project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait", "--effort", "high")
        assert options(project, "ann") == (None, None)


def test_start_and_doctor_warn_of_a_model_that_retires(tmp_path: Path) -> None:
    soon = datetime.now(UTC) + timedelta(30)
    with opened(tmp_path, retires_at=soon.isoformat()) as project:
        sentence = f"the model claude-sonnet-5-5 retires on {soon:%Y-%m-%d}"
        started = project.run("teamd", "start")
        assert (started.status, sentence in started.stderr) == (0, True)
        project.do("teamd", "stop")
        found = json.loads(project.run("teamctl", "doctor", "--json").stdout)["findings"]
        assert {"level": "note", "what": sentence, "remedy": REMEDY} in found
