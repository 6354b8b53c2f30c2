"""`teamctl doctor` reports problems and their remedies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.harness import Project


def levels(project: Project, *words: str) -> tuple[int, dict[str, str]]:
    done = project.run("teamctl", "doctor", "--json", *words)
    findings = json.loads(done.stdout)["findings"]
    return done.status, {found["what"]: found["level"] for found in findings}


def test_all_is_well_with_a_key_that_the_server_accepts(project: Project) -> None:
    status, found = levels(project)
    assert status == 0, found
    assert "fail" not in found.values()
    assert any("takes the key and knows claude-sonnet-5-5" in what for what in found)


def test_a_password_in_the_base_url_is_not_shown(project: Project) -> None:
    """People paste the doctor's output into bug reports."""
    url = project.environment["ANTHROPIC_BASE_URL"].replace("//", "//me:pass-word@")
    status, found = levels(project)
    project.environment["ANTHROPIC_BASE_URL"] = url
    assert levels(project) == (status, found)


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("API_KEY", "", "there is no key for the model in the environment"),
        ("API_KEY", "wrong", "refuses the key (401)"),
        ("BASE_URL", "http://127.0.0.1:9", "http://127.0.0.1:9 does not answer"),
        ("BASE_URL", "http://127.0.0.1:9/v1/", "requests would go to /v1/v1/messages"),
    ],
)
def test_a_key_or_an_address_that_does_not_work_is_a_failure(
    project: Project, variable: str, value: str, sentence: str
) -> None:
    project.environment[f"ANTHROPIC_{variable}"] = value
    status, found = levels(project)
    assert status == 1
    assert [level for what, level in found.items() if sentence in what] == ["fail"]
    project.refusals()


def test_unreadable_skill_and_role_files_are_named(project: Project) -> None:
    for file, text in (
        (".claude/skills/empty/SKILL.md", "---\nname: empty\n---\n"),
        (".claude/skills/good/SKILL.md", "---\nname: good\ndescription: All is well\n---\n"),
    ):
        (project.folder / file).parent.mkdir(parents=True, exist_ok=True)
        project.write(file, text)
    clerk = project.folder / ".claude" / "agents" / "clerk.md"
    clerk.parent.mkdir()
    clerk.write_bytes("Prüft".encode("latin-1"))
    status, found = levels(project)
    assert status == 1
    assert [Path(what.partition(": ")[0]).name for what in found if ".claude" in what] == [
        "clerk.md",
        "SKILL.md",
    ]
    assert any("it has no description; say when it is of use" in what for what in found)


def test_another_teamd_earlier_on_the_path_is_named(project: Project) -> None:
    """Debian's libteam-utils has one, for network cards."""
    other = project.root / "other"
    other.mkdir()
    program = other / "teamd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    project.environment["PATH"] = f"{other}:{project.environment['PATH']}"
    _, found = levels(project)
    assert any(str(program) in what for what in found)


def test_the_doctor_leaves_nothing_in_the_team_directory(project: Project) -> None:
    project.enlist("alice")
    before = sorted(project.paths.root.rglob("*"))
    levels(project)
    assert sorted(project.paths.root.rglob("*")) == before


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8080", "nonsense", "http://", "http://[x", "ftp://x", "file:///etc/passwd",
     "http://a b", "http://x:99999", "http://x:y", "http://\u00e4\u00f6.invalid", "http:///v1",
     "http://\u202ex", "//x", "http://127.0.0.1:9/\u2603"],
)  # fmt: skip
def test_the_doctor_survives_any_base_url(project: Project, url: str) -> None:
    project.environment["ANTHROPIC_BASE_URL"] = url
    status, found = levels(project)
    if url:  # an empty URL counts as unset, and the real service may be reachable from here
        assert status == 1
        assert "fail" in [
            level for what, level in found.items() if "address" in what or "answer" in what
        ]


def test_the_running_teamd_is_asked_about_key_and_model(project: Project) -> None:
    """It got its key at its start; the shell's key may be missing or different."""
    project.start()
    theirs = "teamd has a key in its environment, for claude-sonnet-5-5"
    status, found = levels(project)
    assert (status, found[theirs]) == (0, "ok")
    assert not any("another key" in what for what in found)
    key = project.environment.pop("ANTHROPIC_API_KEY")
    status, found = levels(project)
    assert (status, found[theirs]) == (0, "ok")
    assert any(what.startswith("there is no key here, so whether") for what in found)
    project.environment["ANTHROPIC_API_KEY"] = f"{key}-other"
    _, found = levels(project)
    assert found["teamd runs with another key than the one here"] == "note"
    project.refusals()
    project.environment["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"
    _, found = levels(project)
    assert any(what.startswith("teamd asks http://127.0.0.1:") for what in found)


def test_a_teamd_without_a_key_is_named(project: Project) -> None:
    key = project.environment.pop("ANTHROPIC_API_KEY")
    project.start()
    project.environment["ANTHROPIC_API_KEY"] = key
    status, found = levels(project)
    assert status == 1
    assert any(what.startswith("teamd has no key for the model") for what in found)
