"""`team --watch` on screens of every size: problems first, and members without room are counted."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from teamctl.commands.team import Screen, changes, total
from teamd.files.paths import TeamPaths
from teamd.overview.overview import Overview, OverviewReader
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status


def crowd(paths: TeamPaths, **statuses: Status) -> Overview:
    """Return a team of members with these statuses."""
    for name, status in statuses.items():
        member = Member(name=name, agent_id=f"{name}@project", role="coder", status=status)
        member = Member.decode({**member.encode(), "reason": "why"}, team="project")
        Roster(paths).update(lambda team, member=member: team.with_member(member))  # type: ignore[misc]
    return OverviewReader(paths).read()


def many(paths: TeamPaths, number: int) -> Overview:
    statuses = {f"idle{k}": Status.IDLE for k in range(number)}
    return crowd(paths, **statuses, paul=Status.PAUSED, fay=Status.FAILED)


def draw(seen: Overview, width: int, height: int) -> list[str]:
    """Return the lines of a screen of that size."""
    out = io.StringIO()
    Console(width=width, height=height, file=out).print(Screen(seen), end="")
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60), (60, 8), (30, 6)])
def test_the_output_is_never_larger_than_the_screen(
    paths: TeamPaths, width: int, height: int
) -> None:
    shown = draw(many(paths, 30), width, height)
    assert len(shown) < height  # the cursor has a line of its own
    assert max(map(len, shown)) <= width


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60)])
def test_failed_and_paused_members_come_first_and_the_rest_is_counted(
    paths: TeamPaths, width: int, height: int
) -> None:
    shown = draw(many(paths, 70), width, height)
    top = next(place for place, line in enumerate(shown) if line.startswith("NAME")) + 1
    assert shown[top].startswith("fay ")
    assert shown[top + 1].startswith("paul ")
    rows = [line for line in shown[top:] if line.startswith(("fay ", "paul ", "idle"))]
    assert f"+{72 - len(rows)} more" in shown
    assert any(line.startswith("72 members: 1 failed, 1 paused, 70 idl") for line in shown)


def test_totals_give_the_number_of_each_status(paths: TeamPaths) -> None:
    seen = crowd(paths, ann=Status.WORKING, bob=Status.PAUSED)  # and no teamd runs
    assert total(seen) == "2 members: 1 stopped, 1 paused; 0 in inboxes, $0.00"


def test_a_plain_terminal_gets_a_line_for_each_change(paths: TeamPaths) -> None:
    before = crowd(paths, ann=Status.WORKING)
    now = crowd(paths, ann=Status.PAUSED, bob=Status.IDLE)
    told = list(changes(before, now))
    assert [line.split(maxsplit=1)[1] for line in told[:2]] == ["ann paused", "bob idle"]
    assert told[2:] == ["ann is paused: why; `teamctl resume ann` resumes it"]
    assert list(changes(now, now)) == []
