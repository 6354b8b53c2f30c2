"""Several processes change the roster while another reads it all the time."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.states import Status
from tests.children import child, forked

READS = """
import json, os, select, sys
path = sys.argv[1]
reads = torn = back = 0
seen = {}
while not select.select([sys.stdin], [], [], 0)[0]:
    with open(path, "rb") as file:
        content = file.read()
    reads += 1
    try:
        turns = {m["name"]: m["turns"] for m in json.loads(content)["members"]}
    except (ValueError, KeyError):
        torn += 1
        continue
    back += any(turns.get(name, -1) < known for name, known in seen.items())
    seen = turns
print(json.dumps([reads, torn, back]))
"""


def change(paths: TeamPaths, name: str, count: int) -> None:
    """Add a member, then change its status and its number of turns `count` times."""
    roster = Roster(paths)
    me = Member(name=name, agent_id=name, role="counts", status=Status.IDLE)
    roster.update(lambda team: team.with_member(me))
    for n in range(1, count + 1):
        status = Status.WORKING if n % 2 else Status.IDLE
        roster.update(partial(count_up, name, status))
    print("done")  # noqa: T201 -- for the test


def count_up(name: str, status: Status, team: Team) -> Team:
    mine = team.get(name)
    return team.with_member(replace(mine, turns=mine.turns + 1, status=status))


@pytest.mark.parametrize("count", [20, pytest.param(2000, marks=pytest.mark.long)])
def test_readers_never_see_a_torn_roster_and_no_change_is_lost(tmp_path: Path, count: int) -> None:
    """Written in place, half of the reads were torn and one of eight statuses was right."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    roster = Roster(paths)
    roster.update(lambda team: team)
    names = [f"member{n}" for n in range(8)]
    with child(READS, paths.config) as reader, ExitStack() as stack:
        deeds = [partial(change, paths, name, count) for name in names]
        writers = [stack.enter_context(forked(deed)) for deed in deeds]
        assert [writer.stdout.read() for writer in writers] == ["done\n"] * len(names)
        reads, torn, back = json.loads(reader.communicate("")[0])
    assert (torn, back) == (0, 0)
    assert reads > count
    members = roster.read().members
    assert {member.name: member.turns for member in members} == dict.fromkeys(names, count)
    assert {str(member.status) for member in members} == {"idle"}
    kept = {"config.json", "config.lock", ".gitignore"}
    assert {file.name for file in paths.root.iterdir() if file.is_file()} == kept
