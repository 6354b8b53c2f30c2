"""`teamctl top` with a working team in a terminal, and without a usable screen."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Final

import pytest

from teamd.command_line.installation import install_command
from tests.e2e.harness import Project
from tests.e2e.terminal import Multiplexer, Terminal, opened
from tests.strict.replies import say, use
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


RULES: Final = '[[permission]]\ntool = "bash"\nthen = "ask"\n'
COMMAND: Final = "touch allowed"
# Sequences that set one of the 16, 256 or all colours, but not a return to the default.
_COLOURS: Final = re.compile(rb"\x1b\[(?:\d+;)*(?:[349][0-7]|10[0-7]|[34]8;[25])[;m]")
_WITHOUT: Final = 'import sys; sys.modules["textual"] = None\n'


def ask(project: Project, name: str = "alice", command: str = COMMAND) -> str:
    """Have a teammate ask for a permission; return the id of its request."""
    before = requests(project)
    project.stage.play(name, use(("bash", {"command": command})), say("Done."))
    project.do("teamctl", "spawn", name, "coder", "Do it.")
    wait_until(lambda: requests(project) - before, what=f"{name} asks")
    (request,) = requests(project) - before
    return request


def requests(project: Project) -> set[str]:
    return {file.stem for file in project.paths.requests.glob("*.json")}


def opened_top(project: Project, term: str = "xterm-256color") -> Terminal:
    """Start top in a terminal whose output is readable."""
    project.environment["TERM"] = term
    return Terminal(project, "teamctl", "top")


def ended(terminal: Terminal) -> int | None:
    """Wait for top to end while reading its output; otherwise it would block."""
    wait_until(lambda: (terminal.raw, terminal.process.poll())[1] is not None, what="its end")
    return terminal.process.returncode


def approve(project: Project, press: Callable[[], None]) -> None:
    """Press the key until it works; keys are ignored right after a request has appeared."""

    def allowed() -> bool:
        press()
        return (project.folder / "allowed").exists()

    wait_until(allowed, what="the command runs")


@pytest.mark.tmux
def test_a_request_appears_is_answered_with_one_key_and_vanishes_when_answered_elsewhere(
    project: Project,
) -> None:
    project.write("team.toml", RULES)
    project.start()
    with opened(project, "teamctl top") as window:
        window.sees("no request waits for you")
        ask(project)
        window.sees(f"bash {COMMAND}")
        assert "1 waits for you" in window.shown
        assert "alice" in window.shown
        wait_until(lambda: "waiting" in window.shown, what="its state")
        approve(project, lambda: window.press("a"))
        window.sees("no request waits for you")
        project.wait_for("alice", "idle", turns=2)

        request = ask(project, "bob")
        window.sees(f"bash {COMMAND}")
        project.do("teamctl", "reject", request, "--reason", "no")
        window.misses(f"bash {COMMAND}")
        window.press("q")


def test_a_request_rings_the_bell_once(project: Project) -> None:
    project.write("team.toml", RULES)
    project.start()
    terminal = opened_top(project)
    terminal.sees("no request waits for you")
    assert terminal.rings == 0
    ask(project)
    terminal.sees(f"bash {COMMAND}")
    project.do("teamctl", "send", "alice", "Are you there?")  # forces another refresh
    terminal.sees("alice")
    approve(project, lambda: terminal.type(b"a"))
    terminal.sees("approved")
    terminal.type(b"q")
    assert ended(terminal) == 0
    assert terminal.rings == 1
    terminal.close()


@pytest.mark.tmux
def test_the_terminal_is_restored_when_top_is_left(project: Project) -> None:
    project.enlist("alice")
    with opened(
        project, "stty -a >before; teamctl top; echo left $?; stty -a >after; cat"
    ) as window:
        window.sees("alice")
        window.press("?")
        window.sees("The keys of this screen")
        window.press("Escape")
        window.misses("The keys of this screen")
        window.press("q")
        window.sees("left 0")
        assert "alice" not in window.shown
        wait_until((project.folder / "after").exists, what="it is compared")
        wait_until(lambda: _text(project, "after") == _text(project, "before"), what="the same")


def _text(project: Project, name: str) -> str:
    return (project.folder / name).read_text()


@pytest.mark.tmux
@pytest.mark.parametrize("keys", [("Enter", "Right"), ("Left",)], ids=["teammate", "team"])
def test_a_frozen_top_does_not_delay_delivery(project: Project, keys: tuple[str, ...]) -> None:
    """Otherwise a lock that top holds would be held as long as it is stopped."""
    project.start()
    project.do("teamctl", "spawn", "alice", "coder", "Wait.")
    project.wait_for("alice", "idle", turns=1)
    with opened(project, "exec teamctl top") as window:
        window.sees("s send")
        window.press(*keys)
        window.sees("[Mail]")
        window.sees("delivered")
        os.kill(window.process, signal.SIGSTOP)
        try:
            for text in ("one", "two", "three"):
                project.do("teamctl", "send", "alice", text, "--wait", "--timeout", "20")
        finally:
            os.kill(window.process, signal.SIGCONT)
        window.sees("three")
        window.press("q")


@pytest.mark.tmux
def test_a_person_turns_through_the_tabs_and_filters(project: Project) -> None:
    project.start()
    project.do("teamctl", "spawn", "alice", "coder", "Wait.")
    project.wait_for("alice", "idle", turns=1)
    with opened(project, "exec teamctl top") as window:
        window.sees("Enter look")
        window.press("Right")
        window.sees('no tasks; `teamctl task add "…"` makes one')
        project.do("teamctl", "task", "add", "Write the parser", "--role", "writer")
        window.sees("Write the parser")
        window.sees("task 1 waits for a writer, and there is none;")
        window.type("/a/nx")  # at once: otherwise `a` approves, and `n` and `x` open dialogs
        window.sees("nothing here contains 'a/nx'; Esc clears the filter")
        window.press("Escape")
        window.sees("Write the parser")
        for text in ("the queue is empty; `teamctl queue add NAME` adds to it", "total", "Wait."):
            window.press("Right")
            window.sees(text)
        for columns, lines in ((60, 20), (40, 12), (160, 50)):
            window.resize(columns, lines)
            wait_until(lambda lines=lines: fitted(window, lines), what=f"{columns}x{lines}")  # type: ignore[misc]
            window.sees("Wait.")
        window.press("q")


@pytest.mark.tmux
def test_the_spawn_form_fits_a_narrow_window(project: Project) -> None:
    project.start()
    with opened(project, "exec teamctl top", size=(60, 20)) as window:
        window.sees("nobody is in the team yet; n spawns a teammate")
        window.press("n")
        window.sees("Working copy  no, or as before")
        window.press("Enter")
        window.sees("Name: it is empty; type a text")
        assert "Enter: next or done   Esc: cancel" in window.shown
        window.press("Escape")
        window.misses("Working copy")
        window.press("q")


def fitted(window: Multiplexer, lines: int) -> bool:
    """Return whether the keys are on the last line, and the tabs on the third or second."""
    shown = window.shown.splitlines()
    return len(shown) == lines and "q quit" in shown[-1] and "[Mail]" in "".join(shown[1:3])


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_without_a_terminal_top_prints_the_output_of_team(project: Project, term: str) -> None:
    project.enlist("alice")
    env = {"TERM": term}
    shown = project.run("teamctl", "top", env=env)
    assert shown.status == 0
    assert shown.stdout == project.run("teamctl", "team", env=env).stdout
    terminal = opened_top(project, term="dumb")
    assert ended(terminal) == 0
    assert "alice" in terminal.shown
    assert b"\x1b[?1049h" not in terminal.raw
    terminal.close()


@pytest.mark.parametrize("settings", [{"NO_COLOR": "1"}, {}], ids=["NO_COLOR", "colours"])
def test_without_colors_words_show_names_and_states(
    project: Project, settings: dict[str, str]
) -> None:
    """The chosen row is still visible: reverse video is not a color."""
    project.enlist("alice")
    project.enlist("bob", status="failed")
    project.environment.update(settings)
    terminal = opened_top(project)
    terminal.sees("s send")
    terminal.sees("failed")
    terminal.type(b"y")
    terminal.sees("copied 1 line")
    terminal.type(b"q")
    assert ended(terminal) == 0
    assert bool(_COLOURS.search(terminal.raw)) == (not settings)
    assert re.search(rb"\x1b\[[0-9;]*\b7\b", terminal.raw)
    terminal.close()


def test_without_textual_one_line_says_how_to_get_it(project: Project) -> None:
    project.enlist("alice")
    project.write("without/sitecustomize.py", _WITHOUT)
    project.environment["PYTHONPATH"] = str(project.folder / "without")
    terminal = opened_top(project)
    assert ended(terminal) == 2
    told = " ".join(terminal.shown.split())
    assert f"top needs textual; `{install_command('top')}` installs it" in told
    assert b"\x1b[?1049h" not in terminal.raw
    terminal.close()


def test_the_first_screen_does_not_load_textual(project: Project) -> None:
    """Textual takes longer to load than a person waits for the first row."""
    code = (
        "import sys, teamctl.commands.top, teamctl.top.drawing, teamd.overview.overview\n"
        "print([name for name in ('textual', 'asyncio') if name in sys.modules])"
    )
    assert project.run(sys.executable, "-c", code).stdout.strip() == "[]"


def test_signals_end_top_and_restore_the_terminal(project: Project) -> None:
    project.enlist("alice")
    terminal = opened_top(project)
    terminal.sees("s send")
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert ended(terminal) == 0
    wait_until(lambda: b"\x1b[?1049l" in terminal.raw, what="the screen is left")
    terminal.close()
