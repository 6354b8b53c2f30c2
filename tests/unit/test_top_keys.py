"""`teamctl top`: keys in lists, at their ends, and without a selected member."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from teamctl.top.screens import MateScreen, TeamScreen
from teamctl.top.widgets import RowList
from teamd.files.paths import TeamPaths
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied
from tests.unit.screen import Shown, add, ask, shown
from tests.waiting import until


def run(paths: TeamPaths, play: Callable[[Shown], Awaitable[None]]) -> None:
    """Play a scene before a team's screen."""

    async def scene() -> None:
        async with shown(paths) as screen:
            await play(screen)

    asyncio.run(scene())


def test_the_ends_of_the_list_are_one_key_away(paths: TeamPaths) -> None:
    add(paths, *(f"member-{number:02}" for number in range(40)))

    async def play(screen: Shown) -> None:
        await screen.sees("member-00")
        assert "member-39" not in screen.text
        await screen.press("G")
        await screen.sees("member-39")
        await screen.press("down", "enter")
        await until(lambda: isinstance(screen.top.screen, MateScreen), what="somebody is shown")
        await screen.sees("member-39 · tester")
        await screen.press("escape", "g", "enter")
        await screen.sees("member-00 · tester")

    run(paths, play)


def test_a_conversation_scrolls_by_lines_and_to_its_ends(paths: TeamPaths) -> None:
    """No row of it is selected: the keys scroll."""
    add(paths, "ann")
    words = "\n".join(f"line {number:03}." for number in range(200))
    said = Replied(content=[{"type": "text", "text": words}], time=1.0)
    Transcript(paths.transcript("ann"), durable=False).append(said)

    async def play(screen: Shown) -> None:
        await screen.sees("ann")
        await screen.press("enter")
        await screen.sees("line 199.")
        await screen.press("up")
        await screen.misses("line 199.")
        await screen.press("g")
        await screen.sees("line 000.")
        await screen.press("end")
        await screen.sees("line 199.")

    run(paths, play)


def test_enter_on_a_request_shows_all_of_it(paths: TeamPaths) -> None:
    add(paths, "pia")
    ask(paths, "pia", "git push")

    async def play(screen: Shown) -> None:
        await screen.sees("bash git push")
        await screen.press("tab", "enter")
        await screen.sees("because of a rule")
        assert not isinstance(screen.top.screen, MateScreen)

    run(paths, play)


def test_keys_for_a_teammate_do_nothing_in_an_empty_team(paths: TeamPaths) -> None:
    paths.config.write_text(json.dumps({"team_name": "default", "members": []}))

    async def play(screen: Shown) -> None:
        await screen.sees("no request waits for you")
        await screen.press("s", "x", "i", "p", "m", "down", "enter", "e", "r", "a", "1")
        assert type(screen.top.screen) is TeamScreen
        rows = screen.top.screen.query_one("#asks", RowList)
        assert (rows.key, rows.shows_whole("gone"), rows.height) == (None, False, 0)

    run(paths, play)


def test_a_member_that_leaves_while_shown_is_reported_as_gone(paths: TeamPaths) -> None:
    add(paths, "ann")

    async def play(screen: Shown) -> None:
        await screen.sees("ann")
        await screen.press("enter")
        await screen.sees("ann · tester")
        paths.config.write_text(json.dumps({"team_name": "default", "members": []}))
        await screen.sees("ann has left the team")

    run(paths, play)
