"""Starts that are refused in one sentence, which names the cause and the next step."""

from __future__ import annotations

import pytest

from tests.e2e.harness import Project

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("command", ["start", "restart"])
def test_an_address_that_no_request_can_go_to_is_refused(project: Project, command: str) -> None:
    project.environment["ANTHROPIC_BASE_URL"] = "localhost:1234"
    started = project.run("teamd", command)
    assert started.status == 1
    assert started.complaint == (
        "teamd: ANTHROPIC_BASE_URL is 'localhost:1234', which is not the address of a model's "
        "server; use one such as https://api.anthropic.com"
    )


def test_a_reload_refuses_such_an_address_and_changes_nothing(project: Project) -> None:
    project.start()
    project.write("team.toml", '[model]\nbase_url = "http://localhost:99999"\n')
    reloaded = project.run("teamd", "reload")
    assert reloaded.status == 1
    assert "[model] base_url is 'http://localhost:99999'" in reloaded.complaint
    assert project.run("teamd", "status").status == 0
