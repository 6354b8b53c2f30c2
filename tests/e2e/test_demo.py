"""`teamctl demo` shows real work, notices missing steps, and leaves no files or processes."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import pytest

import teamctl.demo
from teamd.settings.trust import TrustStore
from tests.e2e.harness import PROGRAMS, Ended, Project, opened

STORY: Final = Path(teamctl.demo.__file__).with_name("story.toml")


class Hall:
    """A project of a person who watches the demo, and the folder for its temporary files."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.temporary = project.root / "tmp"
        self.temporary.mkdir()
        project.environment["TMPDIR"] = str(self.temporary)

    def watch(self, *arguments: str, cwd: Path | None = None) -> Ended:
        """Run the demo without pauses."""
        return self.project.run("teamctl", "demo", "--fast", *arguments, cwd=cwd)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a demo whose output is read while it plays."""
        pipe = subprocess.PIPE
        return self.project.begin("teamctl", "demo", *arguments, stdout=pipe, stderr=pipe)

    def hide_git(self) -> None:
        """Set a PATH without git; the demo then ends before its copy of a repository."""
        programs = self.project.root / "programs"
        programs.mkdir()
        where = f"/usr/local/bin:/usr/bin:/bin:{PROGRAMS}"
        for name in ("bwrap", "bash", "python3", "teamctl"):
            (programs / name).symlink_to(shutil.which(name, path=where) or name)
        self.project.environment["PATH"] = str(programs)

    def altered(self, *changes: tuple[str, str]) -> str:
        """Return a copy of the story with the first occurrence of some words replaced."""
        text = STORY.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        return str(self.project.write("story.toml", text))

    def assert_cleared(self) -> None:
        """Check that no process and no folder is left."""
        assert self.project.survivors() == {}
        assert list(self.temporary.iterdir()) == []
        assert list(TrustStore(self.project.environment).confirmed()) == []


@contextmanager
def watched(project: Project) -> Iterator[Hall]:
    """Yield a hall in a project whose model server is never called."""
    yield Hall(project)
    assert not project.server.requests, "the demo has asked a model"


def read_until(stream: IO[str] | None, words: str) -> str:
    """Read lines up to the first that contains these words; return them."""
    assert stream is not None
    lines: list[str] = []
    while words not in (line := stream.readline()):
        assert line, f"it ended without {words!r}: {lines}"
        lines.append(line)
    return "".join([*lines, line])


FIRST_LINE: Final = (
    "Only the model's words are scripted; processes, mail, tools and files are real."
)
NARROW: Final = 40
HOSTILE_GIT: Final = (
    "[commit]\n\tgpgSign = true\n[core]\n\thooksPath = /nonexistent\n[user]\n\tname =\n"
)


@pytest.fixture
def hall(project: Project) -> Iterator[Hall]:
    with watched(project) as made:
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Performances:
    """Two demos that ran at the same time under adverse conditions.

    Attributes:
        hall: the project, whose teamd has ended.
        kept: the output of the demo with `--keep`, and its errors.
        statuses: the exit status of the demo with `--keep`, then of the other.
        shown: the terminal output of the other demo.
        before: when each file of the person's project was changed, and the same after it.
        told: whether a service manager got a message.
    """

    hall: Hall
    kept: str
    errors: str
    statuses: tuple[int, int]
    shown: str
    before: dict[Path, int]
    after: dict[Path, int]
    told: bool


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Performances]:
    """The person has a team, and git settings that would make the demo fail."""
    with opened(tmp_path_factory.mktemp("played")) as project, watched(project) as hall:
        home = Path(project.environment["HOME"])
        (home / ".gitconfig").write_text(HOSTILE_GIT, encoding="utf-8")
        project.paths.create()
        project.write("team.toml", "this = is no [toml", trusted=False)
        other = project.root / "other"
        other.mkdir()
        project.environment["TEAMD_DIR"] = str(other)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(project.root / "notify"))
            manager.setblocking(False)
            project.environment["NOTIFY_SOCKET"] = manager.getsockname()
            before = changes(project.folder, other)
            keeping = hall.begin("--fast", "--keep")
            status, shown = watch_in_terminal(hall)
            kept, errors = keeping.communicate(timeout=60)
            yield Performances(
                hall=hall,
                kept=kept,
                errors=errors,
                statuses=(keeping.returncode, status),
                shown=shown,
                before=before,
                after=changes(project.folder, other),
                told=bool(select.select([manager], [], [], 0)[0]),
            )


def changes(*folders: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for each in folders for path in each.rglob("*")}


def watch_in_terminal(hall: Hall) -> tuple[int, str]:
    """Run a demo in a narrow terminal; return its status and its output."""
    master, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (50, NARROW))
    begun = hall.project.begin("teamctl", "demo", "--fast", stdout=terminal)
    os.close(terminal)
    shown = b"".join(iter(lambda: read_terminal(master), b"")).decode()
    os.close(master)
    return begun.wait(60), shown


def lines_of(shown: str, who: str) -> list[str]:
    """Return the demo's lines about a name, without the times."""
    return re.findall(rf"^ *[\d.]+s {who} +(.*)$", shown, re.MULTILINE)


@pytest.mark.installed
def test_a_coder_and_a_tester_build_a_program_and_fix_a_real_bug(hall: Hall) -> None:
    """The end shows the roster, the mail and the program's output.

    Without git it names the parts that were left out.
    """
    hall.hide_git()
    ended = hall.watch()
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0] == FIRST_LINE
    assert [line for line in lines_of(ended.stdout, "alice") if "“" not in line] == [
        "writes roman.py",
        "runs python3 roman.py 2026",
        "sees MMXXVI",
        "→ bob: roman.py works",
        "edits roman.py",
        "runs python3 roman.py 4",
        "sees IV",
        "→ bob: fixed",
    ]
    assert [line for line in lines_of(ended.stdout, "bob") if "“" not in line] == [
        "writes test_roman.py",
        "runs python3 -m unittest",
        "sees FAILED (failures=2): AssertionError: 'IIII' != 'IV'",
        "→ alice: 2 of 3 tests fail",
        "runs python3 -m unittest",
        "sees OK",
        "→ lead: roman.py passes",
    ]
    assert lines_of(ended.stdout, "lead").count("← bob: roman.py passes") == 1

    assert lines_of(ended.stdout, "carl") == []
    left_out = "A working copy with a check and a merge was left out: git is not installed."
    assert f"\n{left_out}\n" in ended.stdout

    end = ended.stdout[ended.stdout.index("$ teamctl team") :]
    spawned = dict(re.findall(r"spawns (\w+), \w+ \(pid (\d+)\)", ended.stdout))
    rows = [line.split() for line in end.splitlines() if re.match(r"(bob|alice) +\w+ +idle ", line)]
    assert [row[:2] for row in rows] == [["bob", "tester"], ["alice", "coder"]]
    assert all(spawned[row[0]] in row for row in rows)
    assert "bob — roman.py passes\n  All 3 tests pass." in end
    assert "$ python3 roman.py 1994\nMCMXCIV\n" in end
    assert "$ python3 -m unittest\nOK\n" in end
    assert re.search(r"\nAll of it happened, in \d+\.\d s; .* its folder is gone\.\n", end)
    assert end.splitlines()[-1].startswith("Next, in your folder: `teamctl doctor` ")
    hall.assert_cleared()


@pytest.mark.slow
def test_a_third_teammate_works_in_a_copy_that_is_merged_once_its_check_passes(
    played: Performances,
) -> None:
    """The person's own git settings would have made it fail."""
    assert (played.statuses[0], played.errors) == (0, "")
    assert [line for line in lines_of(played.kept, "carl") if "“" not in line] == [
        "claims task 1",
        "reads roman.py",
        "edits roman.py",
        "says that task 1 is completed",
        "edits roman.py",
        "says that task 1 is completed",
    ]
    assert lines_of(played.kept, "teamd") == [
        "checks a clean clone of carl's commit: failed with exit status 1",
        "checks a clean clone of carl's commit: passed",
    ]
    *_, committed, added, spawned, merged = lines_of(played.kept, "lead")
    assert committed == "commits roman.py and its tests to main"
    assert added == "adds task 1, “Read Roman numerals, too”, with a check"
    assert re.fullmatch(r"spawns carl, coder, in a working copy \(pid \d+\)", spawned)
    assert re.fullmatch(r"merges team/carl into main: [0-9a-f]{8}", merged)
    assert "\ncarl: branch team/carl of its copy\n" in played.kept
    assert "\n$ python3 roman.py MCMXCIV\n1994\n" in played.kept


@pytest.mark.slow
def test_a_person_can_follow_the_demo_and_it_takes_less_than_fifteen_seconds(hall: Hall) -> None:
    """With only PATH in the environment, and in a read-only folder."""
    home = hall.project.environment["HOME"]
    hall.project.environment = {
        key: value
        for key, value in hall.project.environment.items()
        if not key.startswith(("ANTHROPIC", "HOME"))
    }
    ended = hall.project.run("teamctl", "demo", cwd=Path("/proc"))
    assert (ended.status, ended.stderr) == (0, "")
    moments = [float(moment) for moment in re.findall(r"^ *([\d.]+)s ", ended.stdout, re.MULTILINE)]
    assert moments == sorted(moments)
    assert 5 < moments[-1] < 15
    assert list(Path(home).iterdir()) == []
    hall.assert_cleared()


@pytest.mark.slow
def test_the_demo_does_not_use_or_change_the_persons_own_team(played: Performances) -> None:
    """Even if its settings are invalid; and the demo sends no message to a service manager."""
    assert played.statuses == (0, 0), played.shown
    assert played.after == played.before
    assert not played.told


@pytest.mark.slow
def test_two_demos_at_the_same_time_do_not_interfere(played: Performances) -> None:
    assert (played.statuses, played.errors) == ((0, 0), ""), played.shown
    assert "\x1b" not in played.kept
    assert "its folder is gone.\r\n" in played.shown
    assert len(list(played.hall.temporary.iterdir())) == 1


@pytest.mark.slow
def test_keep_leaves_a_folder_to_explore(played: Performances) -> None:
    (folder,) = played.hall.temporary.iterdir()
    assert f"its folder stays: {folder}.\n" in played.kept
    project = played.hall.project
    assert project.survivors() == {}
    own = {"TEAMD_DIR": ""}
    run = project.run("teamctl", "inbox", "--json", cwd=folder, env=own)
    assert [one["from"] for one in json.loads(run.stdout)["messages"]] == ["bob"]
    shown = project.run("teamctl", "transcript", "bob", cwd=folder, env=own)
    assert "AssertionError" in shown.stdout


def read_terminal(master: int) -> bytes:
    """Read the output; empty once every process has closed the terminal."""
    with suppress(OSError):  # EIO
        return os.read(master, 4096)
    return b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "writes roman.py"),
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
        ("the first check of carl's work fails", [("echo 1994", "echo 2216")]),
        ("the check passes once carl has mended it", [("-values[sign] if less", "0 if less")]),
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
