"""Logs: whole JSON lines, private, bounded, and never the cause of a failure."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from teamd.journal import KEPT_FILES, MAX_BYTES, Journal
from teamd.masking import MASK, Mask
from teamd.team.states import ChildExit
from tests.children import said

FILLS = """
import sys
from pathlib import Path
from teamd.journal import Journal
journal = Journal(Path(sys.argv[1]), "teamd")
for n in range(200):
    journal.note("full", n=n)
    journal.error("failed", ValueError("x"))
print("went on")
"""

LIVES = """
import sys
from pathlib import Path
from teamd.agent import child
from teamd.agent.process import TeammateProcess
from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.settings import Settings
from teamd.team.heartbeat import Heartbeat
from teamd.team.states import ChildStart
teammate = TeammateProcess(TeamPaths(Path(sys.argv[1])), Settings, lambda: 0, 60, Mask("sk-12345"))
start = ChildStart(name="ann", bell=-1, slots=-1, heartbeat=Heartbeat(), hibernates=False)
print(child.live(teammate, start))
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "teamd.log"


@pytest.fixture
def journal(log: Path) -> Iterator[Journal]:
    made = Journal(log, "teamd")
    yield made
    made.close()


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_an_event_is_one_json_line_with_its_facts(journal: Journal, log: Path) -> None:
    journal.note("forked", pid=42, name="alice")
    journal.warn("100 % full\nor so", path=Path("x"), odd="\ud800")
    first, second = lines(log)
    assert first.pop("time").endswith("+00:00")
    assert first == {"level": "info", "event": "forked", "who": "teamd", "pid": 42, "name": "alice"}
    assert second["level"] == "warning"
    assert second["event"] == "100 % full\nor so"
    assert second["path"] == "x"


def test_a_failure_is_written_with_its_traceback(journal: Journal, log: Path) -> None:
    try:
        raise ValueError("the reason")  # noqa: TRY301 -- a traceback is what is wanted
    except ValueError as error:
        journal.error("crashed", error, name="bob")
    (line,) = lines(log)
    assert line["level"] == "error"
    assert "Traceback" in line["traceback"]
    assert "the reason" in line["traceback"]


def test_a_log_is_rotated_and_bounded(journal: Journal, log: Path) -> None:
    """A teammate that runs for a year must not fill the disk with its log."""
    fact = "x" * 200_000
    for n in range((KEPT_FILES + 2) * MAX_BYTES // len(fact)):
        journal.note("long", n=n, fact=fact)
    files = sorted(log.parent.iterdir())
    assert [file.name for file in files] == ["teamd.log", *(f"teamd.log.{n}" for n in (1, 2, 3))]
    assert all(file.stat().st_size <= MAX_BYTES for file in files)
    numbers = [line["n"] for file in (*files[:0:-1], files[0]) for line in lines(file)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[-1] == n


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_owner_can_read_a_log(journal: Journal, log: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        for _ in range(3):
            journal.note("long", fact="x" * (MAX_BYTES // 2))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in log.parent.iterdir()}
    assert modes == {0o600}
    assert len(list(log.parent.iterdir())) == 3


def test_a_full_disk_does_not_end_the_program_that_logs(log: Path) -> None:
    assert said(FILLS, log, file_bytes=2000) == "went on\n"
    assert log.stat().st_size == 2000


@pytest.mark.parametrize("place", ["missing/teamd.log", "folder"])
def test_a_log_path_that_cannot_be_written_does_not_end_the_program(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    journal = Journal(tmp_path / place, "teamd")
    journal.note("unheard")
    journal.error("unheard", ValueError("x"))
    journal.close()


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """The path of a log inside a team."""
    log = tmp_path / ".team" / "logs" / "a.log"
    log.parent.mkdir(parents=True)
    return log


def test_a_removed_log_folder_is_created_again(deep: Path) -> None:
    """`rm -rf .team/logs` clears the logs of a running team; later events are still logged."""
    journal = Journal(deep, "a")
    journal.note("first")
    shutil.rmtree(deep.parent)
    journal.note("second")
    journal.close()
    assert [line["event"] for line in lines(deep)] == ["second"]
    assert stat.S_IMODE(deep.parent.stat().st_mode) == 0o700


def test_a_removed_team_directory_is_not_created_again(deep: Path) -> None:
    team = deep.parent.parent
    journal = Journal(deep, "a")
    journal.note("first")
    shutil.rmtree(team)
    journal.note("second")
    journal.close()
    assert not team.exists()


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("folder", [True, False])
def test_nothing_is_written_into_a_replaced_team_directory(
    deep: Path, *, begun: bool, folder: bool
) -> None:
    """The last lines of the old team's processes stay with the old team."""
    team = deep.parent.parent
    journal = Journal(deep, "a")
    if begun:
        journal.note("first", filler="x" * MAX_BYTES)
    team.rename(team.with_name("old"))
    deep.parent.mkdir(parents=True) if folder else team.mkdir()
    journal.note("second")
    journal.close()
    assert [path for path in team.rglob("*") if path.is_file()] == []
    kept = team.with_name("old") / "logs" / "a.log"
    if begun:
        assert [line["event"] for line in lines(kept)] == ["first", "second"]
    else:
        assert not kept.exists()


def test_a_new_log_is_started_after_the_old_one_was_moved_or_removed(
    journal: Journal, log: Path
) -> None:
    """Logrotate moves the log, a person removes it; later lines must be found."""
    journal.note("first")
    log.rename(log.with_suffix(".old"))
    journal.note("second")
    assert [line["event"] for line in lines(log)] == ["second"]
    log.unlink()
    journal.note("third")
    assert [line["event"] for line in lines(log)] == ["third"]
    assert [line["event"] for line in lines(log.with_suffix(".old"))] == ["first"]


def test_two_processes_that_rotate_one_log_do_not_lose_lines(log: Path) -> None:
    """The last lines of a process may coincide with the first of its successor."""
    one, other = Journal(log, "a"), Journal(log, "b")
    filler = "x" * (MAX_BYTES // 40)
    for number in range(60):
        one.note("one", number=number, filler=filler)
        other.note("other", number=number, filler=filler)
    one.close()
    other.close()
    found = [line for path in log.parent.iterdir() for line in lines(path)]
    for event in ("one", "other"):
        assert sorted(line["number"] for line in found if line["event"] == event) == [*range(60)]
    assert all(path.stat().st_size <= MAX_BYTES for path in log.parent.iterdir())


def test_no_secret_is_logged_even_in_a_traceback(log: Path) -> None:
    """Texts from others, such as a model's server, may repeat it; a similar number stays."""
    journal = Journal(log, "a", Mask("12345678", 'quo"te-key'))
    error = ValueError("the password 12345678")
    journal.error("refused 12345678", error, tokens=12345678, said=['quo"te-key'])
    journal.close()
    (line,) = lines(log)
    assert line["event"] == f"refused {MASK}"
    assert line["traceback"].endswith(f"ValueError: the password {MASK}")
    assert (line["tokens"], line["said"]) == (12345678, [MASK])


@pytest.mark.slow
def test_a_teammate_s_log_contains_no_secret_either(tmp_path: Path) -> None:
    """Here a secret is part of a path in an error."""
    paths = TeamPaths(tmp_path / "sk-12345" / ".team")
    paths.root.parent.mkdir()
    paths.create()
    paths.lives.rmdir()
    paths.lives.touch()
    assert said(LIVES, paths.root) == f"{int(ChildExit.IO)}\n"
    written = paths.log("ann").read_text()
    assert MASK in written
    assert "sk-12345" not in written
