"""The list of the person's teams over all projects."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from teamctl.web.projects import find_team, key_of, list_teams
from teamd.approvals.approval import Approval, Kind
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from teamd.team import teams


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))


def make(folder: Path, *statuses: str) -> TeamPaths:
    paths = TeamPaths(folder / ".team")
    paths.create()
    members = [
        {"name": f"m{n}", "role": "coder", "status": status} for n, status in enumerate(statuses)
    ]
    paths.config.write_text(json.dumps({"team_name": folder.name, "members": members}))
    teams.remember(paths)
    return paths


def ask(paths: TeamPaths) -> None:
    kind, now = Kind.PERMISSION, time.time()
    asked = Approval(id="r1", type=kind, asker="m0", to="user", content="x", asked=now, sent=True)
    paths.request("r1").write_bytes(asked.encode())


def test_teams_that_need_the_person_come_first(tmp_path: Path) -> None:
    own, _, asking, failed = (
        make(tmp_path / name, status)
        for name, status in (
            ("own", "idle"), ("quiet", "idle"), ("zebra", "paused"), ("yak", "failed"),
        )
    )  # fmt: skip
    ask(asking)
    found = [one.to_json() for one in list_teams(own)]
    assert [one["project"] for one in found] == ["zebra", "yak", "own", "quiet"]
    assert [(one["requests"], one["stopped"]) for one in found[:2]] == [(1, 1), (0, 1)]
    assert found[1]["key"] == key_of(failed)


def test_a_team_that_no_teamd_has_served_is_listed_on_its_own_page(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / "own" / ".team")
    paths.create()
    assert [one.facts.paths for one in list_teams(paths)] == [paths]


def test_only_teams_of_the_list_have_an_address(tmp_path: Path) -> None:
    known = make(tmp_path / "known")
    stranger = TeamPaths(tmp_path / "stranger" / ".team")
    stranger.create()
    assert find_team(key_of(known)) == known
    assert find_team(key_of(stranger)) is None
    assert find_team("../../etc") is None


def test_a_damaged_team_does_not_hide_the_others(tmp_path: Path) -> None:
    own, other = make(tmp_path / "own"), make(tmp_path / "other")
    other.request("r1").write_text("{")
    other.config.write_text("{")
    assert own in [one.facts.paths for one in list_teams(own)]
