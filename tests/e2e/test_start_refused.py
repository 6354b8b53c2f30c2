"""Refused starts: one sentence names the cause and the next step."""

from __future__ import annotations

import os

import pytest

from tests.e2e.harness import PROGRAMS, Project

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("command", ["start", "restart"])
def test_an_invalid_server_address_is_refused(project: Project, command: str) -> None:
    project.environment["ANTHROPIC_BASE_URL"] = "localhost:1234"
    started = project.run("teamd", command)
    assert started.status == 1
    assert started.complaint == (
        "teamd: ANTHROPIC_BASE_URL is 'localhost:1234', which is not the address of a model's "
        "server; use one such as https://api.anthropic.com"
    )


def test_a_reload_refuses_an_invalid_address_and_changes_nothing(project: Project) -> None:
    project.start()
    project.write("team.toml", '[model]\nbase_url = "http://localhost:99999"\n')
    reloaded = project.run("teamd", "reload")
    assert reloaded.status == 1
    assert "[model] base_url is 'http://localhost:99999'" in reloaded.complaint
    assert project.run("teamd", "status").status == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_machine_without_proc_is_refused(project: Project) -> None:
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
    started = project.run(*hidden, str(PROGRAMS / "teamd"), "start")
    assert started.status == 1
    why = "teamd needs /proc, and it is missing"
    assert started.complaint == f"teamd: {why}; `mount -t proc proc /proc` adds it"
    looked = project.run(*hidden, str(PROGRAMS / "teamctl"), "doctor")
    assert looked.status == 1
    assert f"FAIL  {why}\n" in looked.stdout


def test_a_low_limit_on_open_files_is_named(project: Project) -> None:
    command = ("sh", "-c", f'ulimit -n 8 && exec "{PROGRAMS}/teamd" start')
    started = project.run(*command)
    assert started.status == 1
    assert started.complaint == "teamd: too many files are open; raise `ulimit -n`"
