"""`teamctl demo` shows no more than happened, and leaves nothing however it ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.hall import STORY, Hall, opened, read_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness import Project

FAULTY: Final = '1000: "M", 500: "D", 100: "C", 50: "L", 10: "X", 5: "V", 1: "I"}'
RIGHT: Final = (
    '1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 10: "X", '
    '5: "V", 4: "IV", 1: "I"}'
)


@pytest.fixture
def hall(project: Project) -> Iterator[Hall]:
    with opened(project) as made:
        yield made


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "starts teamd"),
        (signal.SIGINT, "writes roman.py"),
        (signal.SIGTERM, "sees FAILED"),
        (signal.SIGHUP, "spawns bob"),
    ],
    ids=str,
)
def test_who_breaks_it_off_finds_nothing_left(
    hall: Hall, number: signal.Signals, moment: str
) -> None:
    begun = hall.begin()
    read_until(begun.stdout, moment)
    begun.send_signal(number)
    stdout, stderr = begun.communicate(timeout=60)
    assert begun.returncode == 128 + number
    assert stderr == (
        f"teamctl: the demo was ended by {number.name}; teamd has ended, and its folder is gone\n"
    )
    assert "All of it happened" not in stdout
    hall.assert_cleared()


def test_a_reader_that_goes_away_leaves_nothing_either(hall: Hall) -> None:
    """As `teamctl demo | head` does."""
    begun = hall.begin("--fast")
    read_until(begun.stdout, "starts teamd")
    assert begun.stdout is not None
    begun.stdout.close()
    assert begun.wait(60) == 0
    hall.assert_cleared()


@pytest.mark.parametrize(
    ("step", "changes"),
    [
        ("bob writes test_roman.py", [('path = "test_roman.py"', 'path = "test_b.py"')]),
        ("alice writes roman.py", [('path = "roman.py", content', 'path = "b.py", content')]),
        ("alice's mail reaches bob", [('to = "bob"', 'to = "lead"')]),
        ("bob's tests find a bug", [(FAULTY, RIGHT)]),
        ("bob's mail reaches alice", [('to = "alice"', 'to = "lead"')]),
        ("alice changes roman.py", [("old_text = '''", "old_text = '''no")]),
        ("alice's second mail reaches bob", [(' 4: "IV",', "")]),
        ("bob's tests pass", [("900: ", "901: "), ("Ran 3 tests in ", ""), (r"\nOK\s*$", "")]),
        ("bob's report reaches lead", [('to = "lead"', 'to = "alice"')]),
        ("the first check of carl's work fails", [("echo 1994", "echo 2216")]),
        ("the check passes once carl has mended it", [("-values[sign] if less", "0 if less")]),
        ("the check passes once carl has mended it", [('expect = "&gt; 2216"', 'expect = "2217"')]),
        ("lead spawns Bob", [('name = "carl"', 'name = "Bob"')]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_fails_and_names_the_step_that_did_not_happen(
    hall: Hall, step: str, changes: list[tuple[str, str]]
) -> None:
    """Here the script says something else; a broken tool, mailbox or process shows the same way."""
    ended = hall.watch("--script", hall.altered(*changes))
    assert ended.status == 1
    assert ended.complaint.startswith(f"teamctl: the demo failed: this did not happen: {step}")
    assert "All of it happened" not in ended.stdout
    hall.assert_cleared()


def test_it_believes_no_team_that_its_program_works(hall: Hall) -> None:
    """Bob says that all tests pass, and has only written so."""
    lie = "printf 'Ran 3 tests in 0s\\\\n\\\\nOK'"
    first = '{ command = "python3 -m unittest" }'
    text = STORY.read_text(encoding="utf-8").replace("900: ", "901: ")
    honest, _, rest = text.rpartition(first)
    story = hall.project.write("story.toml", f'{honest}{{ command = "{lie}" }}{rest}')
    ended = hall.watch("--script", str(story))
    assert ended.status == 1
    assert "this did not happen: the program works" in ended.complaint
    assert "last line 'MCMXCIII'" in ended.complaint
