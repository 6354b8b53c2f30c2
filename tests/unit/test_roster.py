"""The roster: written whole, read with patience, refused with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from teamd.errors import StoreError, UnknownTeammate
from teamd.files.paths import TeamPaths
from teamd.process_id import Identity
from teamd.team.member import Member
from teamd.team.roster import FORMAT, Roster, Team
from teamd.team.states import Status

LESSONS = {
    "team_name": "project",
    "members": [
        {"name": "alice", "role": "coder", "status": "working"},
        {"name": "bob", "role": "tester", "status": "idle", "mood": "good"},
    ],
    "lead": "someone",
}


@pytest.fixture
def roster(paths: TeamPaths) -> Roster:
    return Roster(paths)


def member(name: str, status: Status = Status.IDLE) -> Member:
    return Member(name=name, agent_id=f"{name}@project", role="coder", status=status)


def test_a_missing_roster_reads_as_an_empty_team(roster: Roster, paths: TeamPaths) -> None:
    assert roster.read() == Team(name="project")
    assert not paths.config.exists()


def test_a_change_is_read_back(roster: Roster, paths: TeamPaths) -> None:
    full = replace(
        member("alice"), pid=42, started=7.5, since=1e9, model="m", color="red", turns=3, reason="r"
    )
    roster.update(lambda team: team.with_member(full).with_member(member("bob")))
    assert roster.read().members == (full, member("bob"))
    assert full.process == Identity(pid=42, started=7.5)
    assert member("bob").process is None
    document = json.loads(paths.config.read_text())
    assert document["format"] == FORMAT
    assert document["members"][0]["status"] == "idle"


def test_an_update_without_a_change_writes_nothing(roster: Roster, paths: TeamPaths) -> None:
    roster.update(lambda team: team.with_member(member("alice")))
    before = paths.config.stat().st_ino
    roster.update(lambda team: team.with_member(member("alice")))
    assert paths.config.stat().st_ino == before


def test_a_failed_update_changes_nothing(roster: Roster, paths: TeamPaths) -> None:
    roster.update(lambda team: team.with_member(member("alice")))
    before = paths.config.read_bytes()
    with pytest.raises(UnknownTeammate):
        roster.update(lambda team: team.with_member(team.get("bob")))
    assert paths.config.read_bytes() == before
    roster.update(lambda team: team.with_member(member("bob")))  # the lock is free again


def test_a_member_replaces_the_one_with_the_same_name() -> None:
    team = Team(members=(member("Alice"), member("bob")))
    team = team.with_member(member("ALICE", Status.WORKING)).with_member(member("carol"))
    assert [(m.name, str(m.status)) for m in team.members] == [
        ("ALICE", "working"),
        ("bob", "idle"),
        ("carol", "idle"),
    ]


def test_names_are_compared_regardless_of_case() -> None:
    team = Team(members=(member("Alice"),))
    assert team.get("aLICE").name == "Alice"
    assert team.find("alic") is None


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownTeammate) as caught:
        Team(members=(member("alice"), member("bob"))).get("bbo")
    assert str(caught.value) == "no teammate named 'bbo'; the team is: alice, bob"
    with pytest.raises(UnknownTeammate, match="the team is empty"):
        Team().get("bob")


def test_keys_of_other_programs_are_kept(roster: Roster, paths: TeamPaths) -> None:
    paths.config.write_text(json.dumps(LESSONS))
    roster.update(lambda team: team.with_member(replace(team.get("bob"), turns=1)))
    document = json.loads(paths.config.read_text())
    assert document["lead"] == "someone"
    assert [m.get("mood") for m in document["members"]] == [None, "good"]
    assert document["members"][1]["turns"] == 1


def test_a_roster_of_the_lessons_is_migrated_and_a_copy_is_kept(
    roster: Roster, paths: TeamPaths
) -> None:
    """A person may want to go back to the old program."""
    before = json.dumps(LESSONS)
    paths.config.write_text(before)
    team = roster.read()
    assert [(m.name, m.role, str(m.status), m.agent_id) for m in team.members] == [
        ("alice", "coder", "working", "alice@project"),
        ("bob", "tester", "idle", "bob@project"),
    ]
    assert paths.config.read_text() == before
    roster.update(lambda team: team.with_member(member("carol")))
    assert json.loads(paths.config.read_text())["format"] == FORMAT
    copy = paths.root / "config.format-0.json"
    assert copy.read_text() == before
    roster.update(lambda team: team.with_member(member("dave")))
    assert copy.read_text() == before


@pytest.mark.parametrize("members", ["[]", '"anew"', '[{"status": "asleep"}]', "7"])
def test_a_newer_format_is_refused_and_not_changed(
    roster: Roster, paths: TeamPaths, members: str
) -> None:
    """The file is not damaged, only newer."""
    content = f'{{"format": {FORMAT + 1}, "members": {members}}}'
    paths.config.write_text(content)
    with pytest.raises(StoreError, match=r"has format 2, this teamd knows up to 1; use a newer"):
        roster.read()
    with pytest.raises(StoreError, match="use a newer teamd"):
        roster.update(lambda team: team.with_member(member("alice")))
    assert paths.config.read_text() == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"members": 7}',
        b'{"members": null}',
        b'{"members": ["alice"]}',
        b'{"members": [{"role": "coder"}]}',
        b'{"members": [{"name": 7}]}',
        b'{"members": [{"name": "al", "color": 12}]}',
        b'{"members": [{"name": "al", "reason": 7}]}',
        b'{"members": [{"name": "al", "since": "yesterday"}]}',
        b'{"members": [{"name": "al", "model": []}]}',
        b'{"members": [{"name": "al", "agent_id": null}]}',
        b'{"members": [{"name": "../../evil"}]}',  # a name is part of paths
        b'{"members": [{"name": ""}]}',
        b'{"members": [{"name": "teamd"}]}',  # this inbox is the supervisor's
        b'{"members": [{"name": "bob"}, {"name": "BOB"}]}',
        b'{"members": [{"name": "a", "turns": "many"}]}',
        b'{"members": [{"name": "a", "input_tokens": null}]}',
        b'{"members": [{"name": "a", "role": null}]}',
        b'{"members": [{"name": "a", "status": "asleep"}]}',
        b'{"members": [{"name": "a", "pid": "7"}]}',
        b'{"members": [{"name": "a", "pid": 7, "started": "x"}]}',
        b'{"format": null}',
        b'{"format": "1"}',
    ],
)
def test_a_damaged_roster_is_reported_in_one_sentence(
    roster: Roster, paths: TeamPaths, content: bytes
) -> None:
    """Persons edit the file by hand now and then. An unreadable roster must not be overwritten."""
    paths.config.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        roster.read()
    assert str(caught.value).startswith(f"{paths.config} ")
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError):
        roster.update(lambda team: team.with_member(member("alice")))
    assert paths.config.read_bytes() == content


def test_a_member_is_a_line_that_a_person_can_read(roster: Roster, paths: TeamPaths) -> None:
    roster.update(lambda team: team.with_member(member("alice")).with_member(member("bob")))
    lines = paths.config.read_text().splitlines()
    assert len(lines) == 4
    assert [json.loads(line.rstrip(","))["name"] for line in lines[1:3]] == ["alice", "bob"]


@pytest.mark.parametrize(
    "lines",
    [
        '{"name": "alice"}\n{"name": "bob"}',
        '{"name": "alice"},\n{"name": "bob"},',
        '{"name": "alice"},\n{"name": "alice"}',
        '{"name": "alice"},\n{"name": "bob}',
        '{"name": "alice"}, 7, {"name": "bob"}',
    ],
)
def test_invalid_member_lines_are_damage(roster: Roster, paths: TeamPaths, lines: str) -> None:
    paths.config.write_text(f'{{"format": 1, "members": [\n{lines}\n]}}\n')
    with pytest.raises(StoreError, match="damaged"):
        roster.read()


def test_an_unchanged_team_is_the_same_object(roster: Roster, paths: TeamPaths) -> None:
    roster.update(lambda team: team.with_member(member("alice")).with_member(member("bob")))
    before = roster.read()
    assert roster.read() is before
    Roster(paths).update(lambda team: team.with_member(member("bob", Status.WORKING)))
    assert roster.read().get("bob").status is Status.WORKING


def test_an_address_is_not_a_name_of_a_teammate() -> None:
    """Mail and a few commands accept addresses of other hosts; all others refuse them."""
    with pytest.raises(UnknownTeammate) as caught:
        Team().get("carol@h3")
    assert str(caught.value) == (
        "no teammate named 'carol@h3'; this is for teammates of this team on this host"
    )
