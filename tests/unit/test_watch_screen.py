"""`team --watch` on screens of every size: problems first, and what is left out is counted."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console

from teamctl.watch import Screen, _split, changes, pace, total
from teamd.files.paths import TeamPaths
from teamd.overview.overview import Overview, OverviewReader
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status


def crowd(paths: TeamPaths, **statuses: Status) -> Overview:
    """Return a team of members with these statuses."""
    for name, status in statuses.items():
        member = Member(name=name, agent_id=f"{name}@default", role="coder", status=status)
        member = Member.decode({**member.encode(), "reason": "why"}, team="default")
        Roster(paths).update(lambda team, member=member: team.with_member(member))  # type: ignore[misc]
    return OverviewReader(paths).read()


def many(paths: TeamPaths, number: int) -> Overview:
    statuses = {f"idle{k}": Status.IDLE for k in range(number)}
    return crowd(paths, **statuses, paul=Status.PAUSED, fay=Status.FAILED)


def lines(screen: Screen, seen: Overview) -> list[str]:
    """Return what the screen shows."""
    screen.console.file = out = io.StringIO()
    screen.console.print(screen.draw(seen), end="")
    return [line.rstrip() for line in out.getvalue().splitlines()]


def screen_of(width: int, height: int) -> Screen:
    return Screen(Console(width=width, height=height, file=io.StringIO()))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60), (60, 8), (30, 6)])
def test_nothing_is_longer_or_wider_than_the_screen(
    paths: TeamPaths, width: int, height: int
) -> None:
    shown = lines(screen_of(width, height), many(paths, 30))
    assert len(shown) < height  # the cursor has a line of its own
    assert max(map(len, shown)) <= width


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60)])
def test_who_failed_or_is_paused_comes_first_and_those_left_out_are_counted(
    paths: TeamPaths, width: int, height: int
) -> None:
    """The one that is cut off must not be the one that needs somebody."""
    shown = lines(screen_of(width, height), many(paths, 70))
    top = next(place for place, line in enumerate(shown) if line.startswith("NAME")) + 1
    assert shown[top].startswith("fay ")
    assert shown[top + 1].startswith("paul ")
    rows = [line for line in shown[top:] if line.startswith(("fay ", "paul ", "idle"))]
    assert f"+{72 - len(rows)} more" in shown
    assert any(line.startswith("72 members: 1 failed, 1 paused, 70 idl") for line in shown)


def test_keys_scroll_and_stop_at_both_ends(paths: TeamPaths) -> None:
    screen, seen = screen_of(80, 20), many(paths, 40)
    first = lines(screen, seen)
    screen.press(b"j")
    assert "1 above" in " ".join(lines(screen, seen))
    screen.press(b"k")
    screen.press(b"k")
    assert lines(screen, seen) == first
    screen.press(b"G")
    last = lines(screen, seen)
    assert any(line.startswith("idle39 ") for line in last)
    assert not any("more" in line for line in last)
    screen.press(b"g")
    assert lines(screen, seen) == first


def test_a_page_goes_on_where_the_last_one_ended(paths: TeamPaths) -> None:
    screen, seen = screen_of(80, 20), many(paths, 40)
    names = [line.split()[0] for line in lines(screen, seen) if line.startswith("idle")]
    screen.press(b" ")
    after = [line.split()[0] for line in lines(screen, seen) if line.startswith("idle")]
    assert int(after[0].removeprefix("idle")) == int(names[-1].removeprefix("idle")) + 1


@pytest.mark.parametrize("key", [b"q", b"Q", b"\x04"])
def test_q_ends_it(key: bytes) -> None:
    assert screen_of(80, 24).press(key)


def test_keys_that_come_at_once_are_told_apart() -> None:
    assert _split(b"jj\x1b[6~q") == [b"j", b"j", b"\x1b[6~", b"q"]


def test_totals_say_how_many_there_are_of_each(paths: TeamPaths) -> None:
    seen = crowd(paths, ann=Status.WORKING, bob=Status.PAUSED)
    assert total(seen) == "2 members: 1 paused, 1 working; 0 in inboxes, $0.00"


def test_a_plain_terminal_gets_a_line_for_what_changes(paths: TeamPaths) -> None:
    before = crowd(paths, ann=Status.WORKING)
    now = crowd(paths, ann=Status.PAUSED, bob=Status.IDLE)
    told = list(changes(before, now))
    assert [line.split(maxsplit=1)[1] for line in told[:2]] == ["ann paused", "bob idle"]
    assert told[2:] == ["ann is paused: why; `teamctl resume ann` lets it go on"]
    assert list(changes(now, now)) == []


def test_a_team_that_is_at_rest_is_looked_at_less_often(paths: TeamPaths) -> None:
    """Seconds are shown for a minute; later a look each second would show the same."""
    member = Member(name="ann", agent_id="ann@default", role="coder", status=Status.IDLE)
    rested = replace(member, since=time.time() - 500, status_since=time.time() - 400)
    Roster(paths).update(lambda team: team.with_member(rested))
    assert pace(OverviewReader(paths).read()) > 1
    young = replace(rested, status_since=time.time() - 5)
    Roster(paths).update(lambda team: team.with_member(young))
    assert pace(OverviewReader(paths).read()) == 1
