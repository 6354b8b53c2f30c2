"""`teamctl top` on a simulated screen: its content and its keys."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from teamctl.top.screens import MateScreen, TeamScreen
from teamd.approvals.approval import Approval, Verdict
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD
from tests.unit.screen import Shown, add, approvals, ask, shown

ATTACK = "\x1b]0;gone\x07\x1b[2J [red]x[/red] \u202egnp.exe"


def status(paths: TeamPaths, asked: Approval) -> Verdict:
    found = approvals(paths).find(asked.id)
    assert found is not None
    return found.status


def ended(screen: Shown, paths: TeamPaths, asked: Approval, verdict: Verdict) -> None:
    screen.until(lambda: status(paths, asked) is verdict, what=f"the request is {verdict}")


def test_a_request_is_shown_with_its_exact_command_and_is_approved_in_place(
    paths: TeamPaths,
) -> None:
    add(paths, "pia", "bob")
    with shown(paths) as screen:
        screen.sees("no request waits for you")
        asked = ask(paths, "pia", "git push origin main")
        screen.sees("bash git push origin main")
        assert "1 waits for you" in screen.lines[1]
        screen.press("a")
        ended(screen, paths, asked, Verdict.APPROVED)
        screen.sees("no request waits for you")


def test_the_oldest_request_comes_first_and_tab_chooses_another(paths: TeamPaths) -> None:
    add(paths, "pia", "bob")
    first, second = ask(paths, "pia", "make one"), ask(paths, "bob", "make two")
    with shown(paths) as screen:
        screen.sees("2 wait for you")
        assert "make one" in screen.lines[2]
        assert "make two" in screen.lines[3]
        screen.press("tab", "down", "a")
        ended(screen, paths, second, Verdict.APPROVED)
        assert status(paths, first) is Verdict.OPEN


def test_a_request_answered_elsewhere_disappears(paths: TeamPaths) -> None:
    add(paths, "pia")
    asked = ask(paths, "pia", "git push")
    with shown(paths) as screen:
        screen.sees("bash git push")
        approvals(paths).answer(asked.id, by="user", approve=False)
        screen.misses("bash git push")


@pytest.mark.slow
def test_a_rejection_asks_for_a_reason(paths: TeamPaths) -> None:
    add(paths, "pia")
    asked = ask(paths, "pia", "git push")
    with shown(paths) as screen:
        screen.press("r")
        screen.sees("Reason")
        assert "bash git push" in screen.text  # the rejected request is still visible
        screen.write("not on friday")
        ended(screen, paths, asked, Verdict.REJECTED)
    found = approvals(paths).find(asked.id)
    assert found is not None
    assert found.reason == "not on friday"


def test_a_cancelled_form_changes_nothing(paths: TeamPaths) -> None:
    add(paths, "pia")
    asked = ask(paths, "pia", "git push")
    with shown(paths) as screen:
        screen.press("r", "n", "o", "escape")
        screen.misses("Reason")
    assert status(paths, asked) is Verdict.OPEN


def test_a_partly_hidden_request_is_not_approved_by_one_key(
    paths: TeamPaths,
) -> None:
    """The invisible end of a command may be dangerous."""
    add(paths, "pia")
    asked = ask(paths, "pia", f"echo {'x' * 2000}; rm -rf /")
    with shown(paths) as screen:
        screen.press("a")
        screen.sees("pia asks: permission")
        assert status(paths, asked) is Verdict.OPEN
        screen.press("end")
        screen.sees("because of a rule")
        screen.press("a")
        ended(screen, paths, asked, Verdict.APPROVED)


def test_a_key_does_not_answer_a_request_that_has_just_moved(paths: TeamPaths) -> None:
    """The key was meant for the previous request."""
    add(paths, "pia", "bob")
    ask(paths, "pia", "make one")
    asked = ask(paths, "bob", "make two")
    with shown(paths, calm_seconds=1000.0) as screen:
        screen.press("a")
        screen.sees("have just changed")
    assert status(paths, asked) is Verdict.OPEN


def test_e_shows_all_of_a_request(paths: TeamPaths) -> None:
    add(paths, "pia")
    ask(paths, "pia", "git push")
    with shown(paths) as screen:
        screen.press("e")
        screen.sees("because of a rule")
        screen.press("escape")
        screen.misses("because of a rule")


def test_the_filter_is_kept(paths: TeamPaths) -> None:
    add(paths, "alice", "bob")
    with shown(paths) as screen:
        screen.press("slash")
        screen.write("BOB")
        screen.misses("alice")
        screen.press("enter")
        screen.sees("[Transcript]")
        screen.press("escape")
        screen.sees("filter: BOB")
        assert "alice" not in screen.text
        screen.press("y")
        screen.sees("copied 1 line")
        assert "filter: BOB" in screen.text  # otherwise the missing members would be unexplained


@pytest.mark.parametrize("readonly", [False, True])
def test_the_narrowest_screen_names_the_keys_for_help_and_quit(
    paths: TeamPaths, *, readonly: bool
) -> None:
    add(paths, "alice")
    with shown(paths, size=(40, 12), readonly=readonly) as screen:
        screen.sees("? keys  q quit")


def test_a_conversation_that_outgrows_the_screen_is_followed(
    paths: TeamPaths,
) -> None:
    add(paths, "alice")

    def say(*numbers: int) -> None:
        with paths.transcript("alice").open("a") as file:
            for number in numbers:
                reply = {"record": "note", "time": time.time(), "text": f"note {number}"}
                file.write(json.dumps(reply) + "\n")

    with shown(paths) as screen:
        screen.press("enter")
        screen.sees("[Transcript]")
        say(*range(50))
        screen.sees("note 49")
        say(*range(50, 99))
        screen.sees("note 98")
        screen.press("home")
        screen.sees("note 0")
        say(99)
        screen.press("end")
        screen.sees("note 99")


@pytest.mark.slow
def test_mail_is_sent_to_the_selected_teammate(paths: TeamPaths) -> None:
    add(paths, "alice", "bob")
    with shown(paths) as screen:
        screen.press("down", "s")
        screen.sees("Send to bob")
        screen.write("hello there")
        screen.sees("sent to bob")
    (message,) = Mailbox(paths, "bob").peek()
    assert message.content == "hello there"


def test_a_shutdown_is_confirmed_and_its_refusal_shown(
    paths: TeamPaths, supervising: ExitStack
) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.press("x")
        screen.sees("Shut alice down?")
        screen.press("n")
        screen.misses("Shut alice down?")
        assert screen.top.status == ""
        screen.press("x")
        screen.sees("Shut alice down?")
        supervising.close()  # it ends while the question is open
        screen.press("y")
        screen.sees("start it with `teamd start`")


@pytest.mark.parametrize("key", ["i", "p", "m", "n", "x"])
def test_actions_without_teamd_say_so(paths: TeamPaths, key: str) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.press(key)
        screen.sees("no teamd runs; start it with `teamd start`")
        assert isinstance(screen.top.screen, TeamScreen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "keys", "told"),
    [
        ("shutdown", "ipmx", "alice is shut down; `teamctl spawn alice …` starts it again"),
        ("failed", "ipm", "alice has failed; `teamctl spawn alice …` starts it again"),
        ("idle", "m", "no limit stops alice: it is idle"),
    ],
)
@pytest.mark.usefixtures("supervising")
def test_a_key_that_does_not_apply_says_why(
    paths: TeamPaths, state: str, keys: str, told: str
) -> None:
    """Before, a form was shown first and its request refused."""
    add(paths, "alice", status=state)
    with shown(paths) as screen:
        for face in (TeamScreen, MateScreen):
            for key in keys:
                screen.top.tell("")
                screen.press(key)
                screen.sees(told)
                assert isinstance(screen.top.screen, face)
            screen.press("enter")


@pytest.mark.usefixtures("supervising")
def test_limits_are_raised_by_numbers_only(paths: TeamPaths) -> None:
    add(paths, "alice", status="paused")
    with shown(paths) as screen:
        screen.press("m")
        screen.sees("Raise the limits of alice")
        screen.press("enter", "x", "enter")
        screen.sees("Tokens more: 'x' is not a number")


@pytest.mark.usefixtures("supervising")
def test_an_idle_teammate_can_be_interrupted_only_with_a_text(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.press("i")
        screen.sees("it is idle, and reads this now")


@pytest.mark.slow
def test_read_only_changes_nothing_and_says_so(paths: TeamPaths) -> None:
    add(paths, "alice")
    asked = ask(paths, "alice", "git push")
    with shown(paths, readonly=True) as screen:
        for key in "arsxipmn":
            screen.top.tell("")
            screen.press(key)
            screen.sees("this top only looks")
        screen.press("e")
        screen.sees("because of a rule")
        screen.press("a")
    assert status(paths, asked) is Verdict.OPEN


def test_each_key_in_the_help_does_something(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        for face in (TeamScreen(), MateScreen("alice")):
            for _, action, _ in screen.top.keys_of(face):
                home, _, name = action.partition("(")[0].rpartition(".")
                assert hasattr(screen.top if home else face, f"action_{name}"), action
        screen.press("question_mark")
        screen.sees("go to the requests")


@pytest.mark.slow
@pytest.mark.usefixtures("supervising")
def test_the_palette_lists_the_actions_by_name(paths: TeamPaths) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        screen.press("colon")
        screen.write("spawn a teammate")
        screen.sees("Working copy")


def test_y_copies_the_selection(paths: TeamPaths) -> None:
    add(paths, "alice")
    ask(paths, "alice", "git push  origin")
    with shown(paths) as screen:
        screen.press("y")
        assert screen.top.clipboard.startswith("alice")
        screen.press("tab", "y")
        assert screen.top.clipboard == "bash git push  origin"


def test_a_number_switches_to_another_team(paths: TeamPaths) -> None:
    other = TeamPaths(paths.home / ".teams" / "night")
    other.create()
    add(paths, "alice")
    add(other, "zoe")
    asked = ask(other, "zoe", "make night")
    with shown(paths) as screen:
        screen.sees("2:night")
        screen.press("2")
        screen.sees("zoe")
        assert "alice" not in screen.text
        screen.sees("make night")
        screen.press("a")
        ended(screen, other, asked, Verdict.APPROVED)
        screen.press("1")
        screen.sees("alice")
        screen.press("9")
        screen.sees("there is no team 9; there are 2")


def test_a_message_is_cleared_when_the_person_opens_another_tab_or_teammate(
    paths: TeamPaths,
) -> None:
    add(paths, "alice")
    with shown(paths) as screen:
        for open_other, back in (("right", "left"), ("enter", "q")):
            screen.press("7")
            screen.sees("there is no team 7; there are 1")
            screen.press(open_other)
            screen.misses("there is no team 7")
            screen.press("y")
            screen.sees("copied")
            screen.press(back)
            screen.misses("copied")


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_viewing_changes_no_file(paths: TeamPaths) -> None:
    add(paths, "alice")
    ask(paths, "alice", "git push")
    Mailbox(paths, "alice").put(*Mailbox(paths, LEAD).peek())
    paths.transcript("alice").write_text('{"record": "note", "time": 1.0, "text": "hm"}\n')
    before = files_in(paths.home)
    with shown(paths) as screen:
        for tab in ("Team", "Board", "Queue", "Usage", "Mail"):
            screen.sees(f"[{tab}]")
            screen.press("right")
        screen.sees("[Team]")
        screen.press("enter")
        for tab in ("Transcript", "Mail", "Log", "Tasks", "Diff"):
            screen.sees(f"[{tab}]")
            screen.press("right")
        screen.press("left")
        screen.sees("no working copy")
    assert files_in(paths.home) == before


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (200, 60)])
def test_untrusted_text_is_not_interpreted(paths: TeamPaths, size: tuple[int, int]) -> None:
    add(paths, "alice", role=ATTACK, status="paused", reason=ATTACK)
    ask(paths, "alice", ATTACK)
    inbox = '{"from": "x", "content": "\\u001b[2J \\u202e [b]bold[/b]"}\n'
    paths.inbox("alice").write_text(inbox)
    with shown(paths, size=size) as screen:
        screen.sees("\\x1b")
        assert "\x1b" not in screen.text
        assert "\u202e" not in screen.text
        screen.press("enter", "right")
        screen.sees("[b]bold[/b]")
        assert "\x1b" not in screen.text
        assert "\u202e" not in screen.text
        screen.press("e")
        screen.sees("[red]x[/red]")
        assert "\u202e" not in screen.text


def test_an_unreadable_roster_is_reported_and_the_screen_stays(paths: TeamPaths) -> None:
    add(paths, "alice")
    whole = paths.config.read_bytes()
    with shown(paths) as screen:
        paths.config.write_bytes(b"{")
        screen.sees("damaged")
        assert "alice" in screen.text
        paths.config.write_bytes(whole)
        screen.misses("damaged")
