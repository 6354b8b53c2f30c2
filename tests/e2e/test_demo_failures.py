"""`teamctl demo` notices missing steps, and always cleans up."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.e2e.hall import STORY, Hall, opened, read_until
from tests.e2e.harness import Project


@pytest.fixture
def hall(project: Project) -> Iterator[Hall]:
    with opened(project) as made:
        yield made


@pytest.mark.slow
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
def test_an_interrupted_demo_leaves_nothing_behind(
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


@pytest.mark.slow
def test_a_demo_whose_reader_goes_away_leaves_nothing_behind(hall: Hall) -> None:
    """For example `teamctl demo | head`."""
    begun = hall.begin("--fast")
    read_until(begun.stdout, "starts teamd")
    assert begun.stdout is not None
    begun.stdout.close()
    assert begun.wait(60) == 0
    hall.assert_cleared()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "changes"),
    [
        ("bob's tests pass", [("900: ", "901: "), ("Ran 3 tests in ", ""), (r"\nOK\s*$", "")]),
        ("the first check of carl's work fails", [("echo 1994", "echo 2216")]),
        ("the check passes once carl has mended it", [("-values[sign] if less", "0 if less")]),
        ("lead spawns Bob", [('name = "carl"', 'name = "Bob"')]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_demo_fails_and_names_the_missing_step(
    hall: Hall, step: str, changes: list[tuple[str, str]]
) -> None:
    """Here the script has other words; a broken tool, mailbox or process shows in the same way.

    tests/unit/test_demo_parts.py covers each step before carl's.
    """
    ended = hall.watch("--script", hall.altered(*changes))
    assert ended.status == 1
    assert ended.complaint.startswith(f"teamctl: the demo failed: this did not happen: {step}")
    assert "All of it happened" not in ended.stdout
    hall.assert_cleared()


@pytest.mark.slow
def test_the_demo_runs_the_program_to_verify_the_teams_claim(hall: Hall) -> None:
    """Bob's command prints that all tests pass without running any."""
    lie = "printf 'Ran 3 tests in 0s\\\\n\\\\nOK'"
    first = '{ command = "python3 -m unittest" }'
    text = STORY.read_text(encoding="utf-8").replace("900: ", "901: ")
    honest, _, rest = text.rpartition(first)
    story = hall.project.write("story.toml", f'{honest}{{ command = "{lie}" }}{rest}')
    hall.hide_git()  # carl's part is not needed here
    ended = hall.watch("--script", str(story))
    assert ended.status == 1
    assert "this did not happen: the program works" in ended.complaint
    assert "last line 'MCMXCIII'" in ended.complaint
