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


def test_a_team_with_a_damaged_roster_is_listed_with_its_trouble(tmp_path: Path) -> None:
    """Among all others, and on its own page."""
    own, other = make(tmp_path / "own", "failed"), make(tmp_path / "other")
    other.config.write_text("{")
    for page in (own, other):
        first, second = (one.to_json() for one in list_teams(page))
        assert (first["name"], first["members"], first["running"]) == ("other", 0, False)
        assert "`teamd restart` rebuilds it" in first["trouble"]
        assert (second["name"], second["trouble"]) == ("own", "")
    assert find_team(key_of(other)) == other


def test_a_damaged_request_hides_no_team_and_no_other_request(tmp_path: Path) -> None:
    own = make(tmp_path / "own", "paused")
    ask(own)
    own.request("r2").write_text("{")
    (found,) = list_teams(own)
    assert (found.requests, found.facts.statuses) == (1, {"paused": 1})


def test_a_team_whose_requests_cannot_be_read_is_listed_with_its_trouble(tmp_path: Path) -> None:
    own = make(tmp_path / "own", "idle")
    own.inbox("lead").unlink(missing_ok=True)
    own.inbox("lead").mkdir()
    (found,) = list_teams(own)
    assert found.facts.statuses == {"idle": 1}
    assert str(own.inbox("lead")) in found.trouble
