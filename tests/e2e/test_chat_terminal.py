"""The chat at a terminal: typed input, output, and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.harness import Project
from tests.e2e.terminal import ALT_ENTER, CTRL_C, CTRL_D, Terminal, opened
from tests.strict.asked import Asked
from tests.strict.faults import Stall
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until


@pytest.fixture
def led(project: Project) -> Project:
    """A team whose lead answers depending on its mail."""
    project.start()

    def lead(asked: Asked) -> Answer:
        if 'teammate_id="alice"' in asked.last_text:
            return say("Alice is done.")
        if asked.last_results:
            return say("Alice is at it.")
        if "Have it done" in asked.last_text:
            return use(("spawn_teammate", {"name": "alice", "role": "coder", "prompt": "Do it."}))
        return say("Yes?")

    project.stage.act("lead", lead)
    project.stage.play("alice", use(("send_message", {"to": "lead", "content": "over"})), say("."))
    return project


@pytest.fixture
def terminal(led: Project) -> Iterator[Terminal]:
    made = Terminal(led)
    made.sees("\n>")
    yield made
    made.close()


@pytest.mark.slow
def test_unprompted_text_from_the_lead_appears_above_the_typed_line(
    terminal: Terminal,
) -> None:
    """If half a line were flushed, the prompt would be drawn over it."""
    terminal.type(b"Have it done\r")
    terminal.sees("Alice is at it.")
    terminal.sees("alice → lead: over")
    terminal.sees("Alice is done.")
    terminal.type(CTRL_D)
    assert terminal.process.wait(20) == 0


def test_ctrl_c_ends_the_wait_for_a_silent_reply(led: Project, terminal: Terminal) -> None:
    stall = Stall()
    led.server.faults.when(lambda asked: asked.name == "lead", stall)
    terminal.type(b"Hello?\r")
    assert stall.reached.wait(20)
    terminal.type(CTRL_C)
    terminal.sees("interrupted")
    terminal.asks_after("interrupted")
    stall.released.set()
    terminal.type(CTRL_D)
    assert terminal.process.wait(20) == 0


def test_ctrl_c_at_the_line_clears_it_and_says_how_to_leave(terminal: Terminal) -> None:
    terminal.type(b"half a thought" + CTRL_C)
    terminal.sees("Ctrl-D or /quit leaves")
    terminal.type(b"/quit\r")
    assert terminal.process.wait(20) == 0


def test_a_pipe_receives_plain_lines_only(led: Project) -> None:
    """`teamctl chat | tee log`: neither prompts nor cursor movements belong there."""
    out = led.folder / "log"
    with out.open("w") as log:
        terminal = Terminal(led, stdout=log)
        terminal.type(b"Hello\r")
        wait_until(lambda: "Yes?" in out.read_text(), what="the answer")
        terminal.type(b"/quit\r")
        assert terminal.process.wait(20) == 0
        terminal.close()
    greeting, *rest = out.read_text().splitlines()
    assert greeting.startswith("You talk to lead")
    assert rest == ["Yes?"]


def test_alt_enter_starts_another_line_of_the_same_message(
    led: Project, terminal: Terminal
) -> None:
    terminal.type(b"first" + ALT_ENTER + b"second\r")
    terminal.sees("Yes?")
    assert "first\nsecond" in led.asked("lead", least=1)[0].asked.last_text
    terminal.type(b"/quit\r")
    assert terminal.process.wait(20) == 0


def test_commands_are_completed_and_answer_a_request(led: Project, terminal: Terminal) -> None:
    led.stage.play("bob", use(("submit_plan", {"plan": "Dig a hole."})), say("I wait."))
    led.do("teamctl", "spawn", "bob", "coder", "Plan it.", "--plan", "--wait")
    terminal.type(b"/req\t\r")
    terminal.sees("Dig a hole.")
    terminal.type(b"/usag\t\r")
    terminal.sees("COST")
    terminal.type(b"/transcript bo\t\r")
    terminal.sees("submit_plan: Dig a hole.")
    terminal.type(b"/aprove\r")
    terminal.sees("no command '/aprove'; did you mean /approve?")
    terminal.type(b"/quit\r")
    assert terminal.process.wait(20) == 0


@pytest.mark.slow
def test_current_work_is_shown_below_the_typed_line_which_is_kept_and_sent(led: Project) -> None:
    """In the middle of a turn, in a narrow window too."""
    command = "until [ -e go ]; do sleep 0.1; done"
    led.stage.play("lead", use(("bash", {"command": command})), say("**Done.**"), say("Yes?"))
    with opened(led, "teamctl chat", (40, 16)) as window:
        window.sees("\n>")
        window.type("Go on")
        window.press("Enter")
        window.sees("lead bash until [ -e go ]; do sleep")
        window.type("and tell bob")
        window.sees("> and tell bob")
        window.press("Enter")
        window.sees("· lead reads this after its step")
        window.type("half a thought")
        (led.folder / "go").touch()
        wait_until(lambda: "\nDone." in window.shown or "Yes?" in window.shown, what="a reply")
        window.sees("> half a thought")
        window.sees("idle: lead")
        cost = re.compile(r"· \d+s, >?\$0\.\d+\s")
        wait_until(lambda: cost.search(window.shown), what="the cost of the turn")
        window.resize(80, 24)
        window.press("C-c")
        window.misses("half a thought")
        window.sees("Ctrl-D or /quit leaves")
        window.press("C-d")
    texts = [asked.asked.heard for asked in led.asked("lead")]
    assert "and tell bob" in texts[-1]
    again = Terminal(led)
    again.sees("The end of the last conversation:")
    again.close()
