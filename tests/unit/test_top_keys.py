"""`teamctl top`: keys in lists, at their ends, and without a selected member."""

from __future__ import annotations

import json

from teamctl.top.screens import MateScreen, TeamScreen
from teamctl.top.widgets import RowList
from teamd.files.paths import TeamPaths
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied
from tests.unit.screen import add, ask, shown


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
    paths.config.write_text(json.dumps({"team_name": "default", "members": []}))
    with shown(paths) as screen:
        screen.sees("no request waits for you")
        screen.press("s", "x", "i", "p", "m", "down", "enter", "e", "r", "a", "1")
        assert type(screen.top.screen) is TeamScreen
        rows = screen.top.screen.query_one("#asks", RowList)
        assert (rows.key, rows.shows_whole("gone"), rows.height) == (None, False, 0)


def test_a_member_that_leaves_while_shown_is_reported_as_gone(paths: TeamPaths) -> None:
    add(paths, "ann")
    with shown(paths) as screen:
        screen.sees("ann")
        screen.press("enter")
        screen.sees("ann · tester")
        paths.config.write_text(json.dumps({"team_name": "default", "members": []}))
        screen.sees("ann has left the team")
