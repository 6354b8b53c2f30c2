"""`teamctl top`: the tabs of the team, their filters, and the form that spawns a teammate."""

from __future__ import annotations

import json
from typing import Any

import pytest
from textual.events import Paste

from teamctl.top import drawing
from teamctl.top.screens import TeamScreen
from teamctl.top.sources import TABS
from teamd import control
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.merges.queue import Entries, Entry, MergeState
from teamd.messages import TEAMD, Message
from tests.unit.screen import Shown, add, shown

EMPTY = {
    "Board": 'no tasks; `teamctl task add "…"` makes one',
    "Queue": "the queue is empty; `teamctl queue add NAME` adds to it",
    "Usage": "no model was asked yet; `teamctl spawn NAME ROLE PROMPT` starts a teammate",
    "Mail": "no messages yet; `teamctl send NAME TEXT` sends one",
}


def a_team_at_work(paths: TeamPaths) -> None:
    """Add two members, two tasks, an entry of the queue and a message."""
    add(paths, "alice", "bob")
    for number, subject in (("1", "Write the parser"), ("2", "Test the parser")):
        paths.task(number).write_text(json.dumps({"subject": subject, "description": "In full."}))
    entry = Entry(id="q1", teammate="bob", commit="c" * 40, state=MergeState.CONFLICT, why="a.py")
    paths.queue.write_bytes(Entries((entry,), 1).encode())
    Mailbox(paths, "bob").put(Message(sender="alice", to="bob", content="Look\nat it."))


def open_tab(screen: Shown, name: str) -> None:
    """Turn to a tab of the team."""
    while screen.top.faces[-1].tab != name:
        screen.press("right")
    screen.sees(f"[{name}]")


@pytest.mark.parametrize("tabs", [drawing.TEAM_TABS, tuple(TABS)], ids=["team", "teammate"])
@pytest.mark.parametrize("width", range(20, 90))
def test_the_tab_bar_fits_and_names_its_keys(tabs: tuple[str, ...], width: int) -> None:
    for opened in tabs:
        bar = drawing.tab_bar(tabs, opened, width)
        assert bar.cell_len <= width
        assert f"[{opened}]" in bar.plain
        assert "← →" in bar.plain or width < 30
        assert width < 40 or all(name in bar.plain for name in tabs)
        assert width < 60 or bar.plain.endswith("change tabs")


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (160, 50), (40, 12)])
def test_each_tab_shows_its_table(paths: TeamPaths, size: tuple[int, int]) -> None:
    a_team_at_work(paths)
    rows = {
        "Board": ("SUBJECT", "Write the parser"),
        "Queue": ("STATE", "conflict"),
        "Usage": ("COST", "total"),
        "Mail": ("TEXT", "Look at it."),
    }
    with shown(paths, size=size) as screen:
        for tab, texts in rows.items():
            screen.press("right")
            screen.sees(f"[{tab}]")
            for text in texts:
                screen.sees(text)
            assert screen.lines[-1].endswith("q quit")
        screen.press("right")
        screen.sees("[Team]")
        screen.sees("NAME")


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_an_empty_tab_says_why_and_what_fills_it(paths: TeamPaths, size: tuple[int, int]) -> None:
    with shown(paths, size=size) as screen:
        screen.sees("nobody is in the team yet; n spawns a teammate")
        for tab, why in EMPTY.items():
            open_tab(screen, tab)
            screen.sees(why)


def test_the_empty_tabs_of_a_teammate_say_why(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.press("enter")
        for why in (
            "alice has no conversation yet; mail begins it: s sends some",
            "alice has got no mail yet; s sends some",
            "alice has no log yet",
            'no tasks for alice; `teamctl task add "…" --owner alice` makes one',
            "alice has no working copy",
        ):
            screen.sees(why)
            screen.press("right")


def test_an_open_tab_follows_its_files(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        open_tab(screen, "Board")
        screen.sees("no tasks")
        paths.task("1").write_text(json.dumps({"subject": "Write the parser"}))
        screen.sees("Write the parser")
        open_tab(screen, "Mail")
        screen.sees("no messages yet")
        Mailbox(paths, "alice").put(Message(sender="bob", to="alice", content="Hello."))
        screen.sees("Hello.")


def test_a_tab_that_cannot_be_read_says_so_and_recovers(paths: TeamPaths) -> None:
    paths.queue.write_bytes(b"{")
    with shown(paths) as screen:
        open_tab(screen, "Queue")
        screen.sees("is damaged")
        paths.queue.unlink()
        screen.sees("the queue is empty")


def test_enter_shows_all_of_a_row(paths: TeamPaths) -> None:
    a_team_at_work(paths)
    shows = {"Board": "description: In full.", "Queue": "why: a.py", "Mail": "alice to bob, waits"}
    with shown(paths) as screen:
        for tab, text in shows.items():
            open_tab(screen, tab)
            screen.sees("Enter all of it")
            assert text not in screen.text
            screen.press("enter")
            screen.sees(text)
            screen.press("escape")
            screen.sees(f"[{tab}]")
        open_tab(screen, "Usage")
        screen.sees("Enter look")
        screen.press("down", "enter")
        screen.sees("bob · tester")


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_untrusted_text_is_not_interpreted_in_a_tab(
    paths: TeamPaths, size: tuple[int, int]
) -> None:
    attack = "\x1b[2J [red]x[/red] \u202egnp.exe"
    add(paths, "alice")
    paths.task("1").write_text(json.dumps({"subject": attack, "description": attack}))
    entry = Entry(id="q1", teammate=attack, commit="c" * 40, why=attack)
    paths.queue.write_bytes(Entries((entry,), 1).encode())
    Mailbox(paths, "alice").put(Message(sender="bob", to="alice", content=attack))
    with shown(paths, size=size) as screen:
        for tab in ("Board", "Queue", "Mail"):
            open_tab(screen, tab)
            screen.sees("Enter all of it")
            for key in ("enter", "escape"):
                assert not {"\x1b", "\u202e"} & set(screen.text)
                screen.press(key)
                screen.sees("[red]x[/red]" if key == "enter" else f"[{tab}]")


def test_two_equal_messages_without_ids_are_two_rows(paths: TeamPaths) -> None:
    add(paths, "bob")
    paths.inbox("bob").write_text('{"from": "ci", "content": "again"}\n' * 2)
    with shown(paths) as screen:
        open_tab(screen, "Mail")
        screen.until(lambda: screen.text.count("again") == 2, what="both are shown")


def test_the_member_stays_chosen_while_other_tabs_are_open(paths: TeamPaths) -> None:
    """Otherwise a key would act on another teammate."""
    a_team_at_work(paths)
    with shown(paths) as screen:
        screen.sees("bob")
        screen.press("down")
        open_tab(screen, "Board")
        screen.sees("Write the parser")
        screen.press("s")
        screen.sees("choose a teammate in the tab Team first")
        open_tab(screen, drawing.TEAM)
        screen.press("s")
        screen.sees("Send to bob")


def test_each_tab_has_its_own_filter_and_escape_clears_it(paths: TeamPaths) -> None:
    a_team_at_work(paths)
    with shown(paths) as screen:
        open_tab(screen, "Board")
        screen.sees("Write the parser")
        screen.press("slash")
        screen.write("test")
        screen.misses("Write the parser")
        screen.sees("filter: test (/ changes it, Esc clears it)")
        open_tab(screen, "Mail")
        screen.sees("Look at it.")
        open_tab(screen, "Board")
        screen.sees("Test the parser")
        assert "Write the parser" not in screen.text
        screen.press("escape")
        screen.sees("Write the parser")
        screen.misses("filter:")


def test_escape_in_the_filter_field_clears_and_closes_it(paths: TeamPaths) -> None:
    add(paths, "alice", "bob")
    with shown(paths) as screen:
        screen.press("slash")
        screen.sees("type to filter; Enter keeps the filter, Esc clears it")
        screen.press("z", "z")
        screen.sees("nothing here contains 'zz'; Esc clears the filter")
        screen.press("escape")
        screen.sees("alice")
        screen.misses("type to filter")
        screen.press("enter")  # the list has the keys again
        screen.sees("alice · tester")


def test_escape_on_a_teammate_clears_the_filter_before_it_goes_back(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.press("enter", "slash")
        screen.write("word")
        screen.sees("filter: word")
        screen.press("escape")
        screen.misses("filter: word")
        screen.sees("alice · tester")
        screen.press("escape")
        screen.until(lambda: isinstance(screen.top.screen, TeamScreen), what="the team is shown")


def test_shift_tab_goes_the_other_way(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.sees("no teamd runs for")
        screen.press("tab")
        assert screen.top.focused is screen.top.screen.query_one("#notes")
        screen.press("shift+tab")
        assert screen.top.focused is screen.top.screen.query_one("#list")


def test_the_last_key_of_the_line_says_what_q_does(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.sees("Enter look  s send  n spawn  / filter  ? keys  q quit")
        screen.press("enter")
        screen.sees("? keys  q back")


def request(paths: TeamPaths, screen: Shown) -> control.ControlRequest:
    """Wait for the request to teamd, take it and return it."""
    box = Mailbox(paths, TEAMD)
    screen.until(lambda: bool(box.peek()), what="a request is made")
    batch = box.take()
    box.done(batch)
    return control.ControlRequest.decode(batch.messages[0])


def spawn(screen: Shown, **facts: str) -> None:
    """Fill in the form, in the order of its fields; a field that is not given stays empty."""
    screen.press("n")
    screen.sees("Spawn a teammate")
    for field in ("name", "role", "prompt", "model", "plan", "copy"):
        screen.write(facts.get(field, ""))


@pytest.mark.usefixtures("supervising")
@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, {"model": None, "plan": None, "worktree": None}),
        (
            {"model": "claude-haiku", "plan": "yes", "copy": "N"},
            {"model": "claude-haiku", "plan": True, "worktree": False},
        ),
    ],
    ids=["defaults", "given"],
)
def test_the_form_spawns_with_what_is_typed(
    paths: TeamPaths, given: dict[str, str], asked: dict[str, Any]
) -> None:
    with shown(paths) as screen:
        spawn(screen, name="carl", role="writer", prompt="Write it.", **given)
        made = request(paths, screen)
        control.reply(paths, made.id, control.ControlReply(text="carl (writer) is at work"))
        screen.sees("carl (writer) is at work")
    assert made.command == "spawn"
    known = {"name": "carl", "role": "writer", "prompt": "Write it.", **asked}
    assert {key: made.arguments[key] for key in known} == known


@pytest.mark.usefixtures("supervising")
@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 14)])
def test_the_form_shows_defaults_and_fits(paths: TeamPaths, size: tuple[int, int]) -> None:
    (paths.home / "team.toml").write_text('[team]\nworktree = true\n[model]\nname = "claude-x"\n')
    with shown(paths, size=size) as screen:
        screen.press("n")
        for text in (
            "such as alice",
            "such as tester",
            "its first task",
            "claude-x, or",
            "no, or as before",
            "yes, or as before",
            "Enter: next or done   Esc: cancel",
        ):
            screen.sees(text)  # fmt: skip


@pytest.mark.usefixtures("supervising")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["a b"], "Name: 'a b' cannot be a teammate's name"),
        ([""], "Name: it is empty"),
        (["lead"], "Name: 'lead' cannot be a teammate's name: it is reserved"),
        (["carl", " "], "Role: it is empty"),
        (["carl", "writer", ""], "Prompt: it is empty"),
        (["carl", "writer", "Go.", "", "maybe"], "Plan: 'maybe' is not an answer; type yes or no"),
        (["carl", "writer", "Go.", "", "", "x"], "Working copy: 'x' is not an answer"),
    ],
)
def test_a_wrong_field_is_named_and_keeps_the_form_open(
    paths: TeamPaths, given: list[str], told: str
) -> None:
    with shown(paths) as screen:
        screen.press("n")
        screen.sees("Spawn a teammate")
        for text in given:
            screen.write(text)
        screen.sees(told)
        screen.sees("Spawn a teammate")
    assert not Mailbox(paths, TEAMD).peek()


@pytest.mark.usefixtures("supervising")
def test_a_field_that_was_skipped_is_checked_at_the_end(paths: TeamPaths) -> None:
    with shown(paths) as screen:
        screen.press("n", "up")
        screen.sees("Spawn a teammate")
        screen.press("enter")
        screen.sees("Name: it is empty")
        screen.write("carl")
        screen.misses("Name: it is empty")


@pytest.mark.usefixtures("supervising")
def test_a_refused_spawn_can_be_corrected(paths: TeamPaths) -> None:
    """The prompt may be long."""
    with shown(paths) as screen:
        spawn(screen, name="carl", role="writer", prompt="A long prompt.")
        refusal = control.ControlReply.of_error(TeamError("carl is working already"))
        control.reply(paths, request(paths, screen).id, refusal)
        screen.sees("carl is working already")
        screen.press("n")
        screen.sees("A long prompt.")
        screen.press("escape", "n")
        screen.sees("its first task")


def test_pasted_lines_are_joined(paths: TeamPaths) -> None:
    """The form sends on Enter, so that a line end cannot be part of a text."""
    add(paths, "bob")
    with shown(paths) as screen:
        screen.press("s")
        screen.sees("Send to bob")
        screen.top.post_message(Paste("First do this,\nthen that."))
        screen.sees("First do this, then that.")
        screen.press("enter")
        screen.sees("sent to bob")
    (message,) = Mailbox(paths, "bob").peek()
    assert message.content == "First do this, then that."
