"""`teamctl trust`: confirming a settings file, and when it takes effect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from tests.e2e.harness import Project

MINE = '[model]\nheaders = { X-Mine = "a" }\n[limits]\ncalls_per_wake = 60\n'
LOOSENS = """\
  model.headers = {"X-Mine": "a"}  (otherwise {})
  limits.calls_per_wake = 60  (otherwise 50)
"""
NEXT = "it counts from the next `teamd reload` on, which `teamctl trust --reload` does at once\n"


def listed(project: Project) -> dict[str, str]:
    found = json.loads(project.do("teamctl", "trust", "--list", "--json"))["files"]
    return {file["path"]: file["state"] for file in found}


def confirms(project: Project, *words: str) -> dict[str, Any]:
    (found,) = json.loads(project.do("teamctl", *words, "trust", "--json"))["files"]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_settings_that_loosen_restrictions_are_printed_and_apply_from_the_next_reload(
    project: Project,
) -> None:
    file = project.write("team.toml", MINE, trusted=False)
    started = project.run("teamd", "start")
    assert (started.status, started.stderr.count("teamd: not in force until you confirm")) == (0, 1)
    assert "settings wait for trust" in project.paths.log("teamd").read_text()
    said = project.do("teamctl", "trust")
    assert said == f"{file} is confirmed; it loosens:\n{LOOSENS}{NEXT}"
    assert project.do("teamctl", "trust") == f"{file} was confirmed already; it loosens:\n{LOOSENS}"

    reloaded = project.do("teamctl", "trust", "--reload").splitlines()[3:]
    assert [line.partition(" has changed")[0] for line in reloaded] == [
        "model.headers",
        "limits.calls_per_wake",
    ]
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    assert project.asked("ann", least=1)[0].headers["x-mine"] == "a"
    assert "not in force" not in project.do("teamd", "status")
    assert json.loads(project.do("teamd", "status", "--json"))["untrusted"] == []

    project.do("teamctl", "spawn", "wim", "coder", "Go.", "--save", "--wait")
    assert file.read_text() != MINE
    assert listed(project) == {str(file): "trusted"}
    assert project.do("teamd", "reload").startswith("teammate.wim has changed: ")

    assert "is no longer trusted" in project.do("teamctl", "trust", "--revoke")
    assert "limits.calls_per_wake has changed" in project.do("teamd", "reload")
    project.do("teamctl", "spawn", "bob", "coder", "Go.", "--save", "--wait")
    assert listed(project) == {}, "what was not trusted is not by a change of ours"


def test_resume_mentions_a_raised_limit_that_waits_for_trust(project: Project) -> None:
    project.write("team.toml", "[model]\nmax_tokens = 100\n[limits]\nteammate_tokens = 200\n")
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    project.wait_for("ann", "paused")
    file = project.write(
        "team.toml",
        "[model]\nmax_tokens = 100\n[limits]\nteammate_tokens = 900000\n",
        trusted=False,
    )
    refused = project.run("teamctl", "resume", "ann")
    assert refused.status == 1
    assert refused.complaint.startswith("teamctl: ann stays paused: the next call does not fit ")
    assert refused.complaint.endswith(
        f"; not in force until you confirm {file} with `teamctl trust`: limits.teammate_tokens"
    )
    project.do("teamctl", "trust")
    assert project.run("teamctl", "resume", "ann").stderr == ""
    project.wait_for("ann", "idle", turns=1)


def test_a_failed_start_gives_its_reason_and_does_not_list_waiting_settings(
    project: Project,
) -> None:
    """A command that starts teamd implicitly, such as a spawn, passes on its last line."""
    project.write("team.toml", f'{MINE}[team]\nname = "web"\n', trusted=False)
    (project.folder / ".teams" / "web").mkdir(parents=True, mode=0o700)
    for call in (("teamd", "start"), ("teamctl", "spawn", "ann", "coder", "Go.")):
        refused = project.run(*call)
        assert refused.status == 1
        assert "give this team another one" in refused.stderr.splitlines()[-1]
        assert "not in force" not in refused.stderr


def test_trust_without_anything_to_confirm_says_so_and_succeeds(project: Project) -> None:
    file = project.folder / "team.toml"
    assert project.do("teamctl", "trust") == f"there is no {file}; nothing is to be confirmed\n"
    assert confirms(project) == {"path": str(file), "trusted": False, "loosens": []}
    assert "you trust no settings file" in project.do("teamctl", "trust", "--list")
    assert project.do("teamctl", "trust", "--revoke") == f"{file} was not trusted\n"
    project.write("team.toml", "[limits]\ncalls_per_wake = 7\n", trusted=False)
    assert project.do("teamctl", "trust") == f"{file} is confirmed; it loosens nothing\n"
    file.unlink()
    assert listed(project) == {str(file): "gone"}
    project.do("teamctl", "trust")
    assert listed(project) == {}


def test_the_file_that_init_writes_is_trusted(project: Project) -> None:
    """Even if the previous file was stricter."""
    file = project.write("team.toml", "[limits]\ncalls_per_wake = 7\n")
    file.unlink()
    project.do("teamctl", "init")
    assert listed(project) == {str(file): "trusted"}
    assert "not in force" not in project.run("teamctl", "doctor").stdout
    file.write_text(file.read_text() + "\n# mine\n")
    assert listed(project) == {str(file): "changed"}
    assert "changed" in project.do("teamctl", "trust", "--list")


def test_the_suggested_command_names_another_team_or_settings_file(project: Project) -> None:
    web = TeamPaths(project.folder / ".teams/web")
    web.create()
    own = project.write(".teams/web/team.toml", MINE, trusted=False)
    other = project.write("other.toml", MINE)
    told = project.run("teamctl", "--team", "web", "doctor").stdout
    assert f"confirm {own} with `teamctl --team web trust`: model.headers" in told
    told = project.run("teamctl", "--config", "other.toml", "doctor").stdout
    assert f"confirm {other} with `teamctl trust --config other.toml`: model.headers" in told
    assert confirms(project, "--team", "web")["path"] == str(own)
    told = project.run("teamctl", "--team", "web", "doctor").stdout
    assert "not in force" not in told
    assert confirms(project, "--config", "other.toml")["loosens"] == [
        {"key": "model.headers", "value": {"X-Mine": "a"}, "instead": {}},
        {"key": "limits.calls_per_wake", "value": 60, "instead": 50},
    ]
    assert listed(project) == {str(own): "trusted", str(other): "trusted"}
    other.unlink()
    project.do("teamctl", "--config", "other.toml", "trust", "--revoke")
    project.do("teamctl", "--team", "web", "trust", "--revoke")
    assert listed(project) == {}


def test_a_file_that_cannot_be_confirmed_is_refused_in_one_sentence(project: Project) -> None:
    project.write("team.toml", "[limits]\ncalls_per_wake = 60\n", trusted=False)
    empty = {"HOME": "", "XDG_STATE_HOME": ""}
    refused = project.run("teamctl", "trust", env=empty)
    assert refused.status == 1
    assert refused.complaint == (
        "teamctl: there is no folder to record what you trust: HOME is not set; "
        "set HOME or XDG_STATE_HOME to a folder of yours"
    )
    refused = project.run("teamctl", "trust", env={**empty, "HOME": "/proc"})
    assert refused.status == 1
    assert refused.complaint.endswith("set XDG_STATE_HOME to a folder that you may write to")
    project.write("team.toml", "[limits]\ncalls_per_wake = 0\n", trusted=False)
    refused = project.run("teamctl", "trust")
    assert refused.status == 1
    assert "limits.calls_per_wake must be a whole number" in refused.complaint
    misused = project.run("teamctl", "trust", "--list", "--revoke")
    assert misused.status == 2
    assert (
        "--list changes nothing, and the other option does; use only one of them" in misused.stderr
    )
    assert listed(project) == {}
