"""`teamctl top`: keys in lists and without a selected member; screens of any size."""

from __future__ import annotations

import json

import pytest

from teamctl.top.screens import MateScreen, TeamScreen
from teamctl.top.widgets import RowList
from teamd.approvals.approval import Approval, Verdict
from teamd.files.paths import TeamPaths
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied
from tests.unit.screen import add, approvals, ask, shown

ALL_EIGHT = ["ann", "bob", "dan", "eve", "fay", "hal", "cid", "gus"]

PAUSE = "paused by the person; `teamctl resume gus` resumes it"


def a_team_in_need(paths: TeamPaths) -> Approval:
    """Add eight members; one has failed, one is paused and one waits for the person."""
    add(paths, "ann", "bob", "dan", "eve", "fay", "hal")
    add(paths, "cid", status="failed", reason=f"the process ended: {'why, ' * 30}and the end")
    add(paths, "gus", status="paused", reason=PAUSE, paused_by="user")
    return ask(paths, "dan", "git push origin main")


def status(paths: TeamPaths, asked: Approval) -> Verdict:
    found = approvals(paths).find(asked.id)
    assert found is not None
    return found.status


@pytest.mark.parametrize(("size", "rows"), [((40, 12), 6), ((80, 12), 7), ((40, 17), 8)])
def test_a_screen_with_few_lines_shows_the_members_first_and_names_the_hidden_parts(
    paths: TeamPaths, size: tuple[int, int], rows: int
) -> None:
    asked = a_team_in_need(paths)
    with shown(paths, size=size) as screen:
        screen.sees("Tab 4 notes")
        title, *lines, keys = screen.lines
        assert title.startswith("1 waits for you · no teamd · 8 members")
        heading = next(n for n, line in enumerate(lines) if line.startswith("NAME"))
        assert "bash git push origin main" in " ".join(lines[:heading])
        names = [line.split()[0] for line in lines[heading + 1 : heading + 1 + rows]]
        assert names == ALL_EIGHT[:rows]
        assert keys.startswith("Tab 4 notes  a approve  ")
        assert keys.endswith("? keys  q quit")
        assert "cid has failed" not in screen.text  # it would be cut
        screen.press("tab", "tab")
        screen.sees("cid has failed")
        screen.misses("Tab 4 notes")
        screen.press("end")
        screen.sees("shows it")
        screen.press("tab", "a")
        screen.until(lambda: status(paths, asked) is Verdict.APPROVED, what="it is approved")
        screen.sees("0 wait for you" if size[1] == 12 else "no request waits for you")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_a_screen_of_usual_size_shows_the_notes_at_once(
    paths: TeamPaths, size: tuple[int, int]
) -> None:
    a_team_in_need(paths)
    with shown(paths, size=size) as screen:
        screen.sees("gus is paused by the person; `teamctl resume gus`")
        assert screen.lines[0] == "project · 8 members · no teamd runs"
        assert screen.lines[1] == "1 waits for you"
        assert [line.split()[0] for line in screen.lines[5:13]] == ALL_EIGHT
        assert "and the end" in screen.text


def test_a_small_screen_with_enough_room_hides_nothing(paths: TeamPaths) -> None:
    add(paths, "ann")
    add(paths, "gus", status="paused", reason=PAUSE, paused_by="user")
    with shown(paths, size=(40, 12)) as screen:
        screen.sees("gus is paused by the person")
        assert screen.lines[0] == "project · 2 members · no teamd runs"
        assert screen.lines[1] == "no request waits for you"


def test_a_screen_with_few_lines_shows_a_whole_note_if_it_fits(paths: TeamPaths) -> None:
    add(paths, *ALL_EIGHT[:-1])
    add(paths, "gus", status="paused", reason=PAUSE, paused_by="user")
    with shown(paths, size=(40, 14)) as screen:
        screen.sees("Tab 2 notes")
        last = " ".join(screen.lines[-3:-1])
        assert last == "gus is paused by the person; `teamctl resume gus` resumes it"
        assert [line.split()[0] for line in screen.lines[3:11]] == ALL_EIGHT


def test_the_ends_of_the_list_are_one_key_away(paths: TeamPaths) -> None:
    add(paths, *(f"member-{number:02}" for number in range(40)))
    with shown(paths) as screen:
        screen.sees("member-00")
        assert "member-39" not in screen.text
        screen.press("G")
        screen.sees("member-39")
        screen.press("down", "enter")
        screen.until(lambda: isinstance(screen.top.screen, MateScreen), what="somebody is shown")
        screen.sees("member-39 · tester")
        screen.press("escape", "g", "enter")
        screen.sees("member-00 · tester")


def test_a_conversation_scrolls_by_lines_and_to_its_ends(paths: TeamPaths) -> None:
    """No row of it is selected: the keys scroll."""
    add(paths, "ann")
    words = "\n".join(f"line {number:03}." for number in range(200))
    said = Replied(content=[{"type": "text", "text": words}], time=1.0)
    Transcript(paths.transcript("ann"), durable=False).append(said)
    with shown(paths) as screen:
        screen.sees("ann")
        screen.press("enter")
        screen.sees("line 199.")
        screen.press("up")
        screen.misses("line 199.")
        screen.press("g")
        screen.sees("line 000.")
        screen.press("end")
        screen.sees("line 199.")


def test_enter_on_a_request_shows_all_of_it(paths: TeamPaths) -> None:
    add(paths, "pia")
    ask(paths, "pia", "git push")
    with shown(paths) as screen:
        screen.sees("bash git push")
        screen.press("tab", "enter")
        screen.sees("because of a rule")
        assert not isinstance(screen.top.screen, MateScreen)


def test_keys_for_a_teammate_do_nothing_in_an_empty_team(paths: TeamPaths) -> None:
    paths.config.write_text(json.dumps({"team_name": "project", "members": []}))
    with shown(paths) as screen:
        screen.sees("no request waits for you")
        screen.press("s")
        screen.until(
            lambda: screen.text.count("nobody is in the team yet; n spawns") == 2,
            what="both the list and the answer to the key say so",
        )
        screen.press("x", "i", "p", "m", "down", "enter", "e", "r", "a", "1")
        assert type(screen.top.screen) is TeamScreen
        rows = screen.top.screen.query_one("#asks", RowList)
        assert (rows.key, rows.shows_whole("gone"), rows.height) == (None, False, 0)


def test_a_member_that_leaves_while_shown_is_reported_as_gone(paths: TeamPaths) -> None:
    add(paths, "ann")
    with shown(paths) as screen:
        screen.sees("ann")
        screen.press("enter")
        screen.sees("ann · tester")
        paths.config.write_text(json.dumps({"team_name": "project", "members": []}))
        screen.sees("ann has left the team")
