"""`teamctl transcript`: its end, several at once, as it grows, and as JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import closing
from typing import Any, Final

import pytest

from teamd.command_line.documents import with_iso_times
from teamd.journal import Journal
from teamd.messages import Message
from teamd.transcript.file import Transcript
from teamd.transcript.records import CallAnswered, CallStarted, Delivered, Opened, Record, Replied
from tests.e2e.harness import Project
from tests.e2e.terminal import CTRL_C, Terminal
from tests.waiting import wait_until

NOW: Final = time.time()
PIPES: Final[dict[str, Any]] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def said(text: str, at: float) -> Replied:
    return Replied(content=[{"type": "text", "text": text}], stop_reason="end_turn", time=NOW + at)


def write(project: Project, name: str, *records: Record) -> None:
    Transcript(project.paths.transcript(name), durable=False).append(*records)


@pytest.fixture
def two(project: Project) -> Project:
    """A team without processes, in which two members spoke by turns."""
    project.enlist("ann", "bob", "new")
    use = {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "make"}}
    write(
        project, "ann",
        Opened(name="ann", time=NOW - 7200), said("A1", -7100), said("A2", -40),
        Replied(content=[use], stop_reason="tool_use", time=NOW - 30),
        CallStarted(tool_use_id="1", time=NOW - 30),
        CallAnswered(tool_use_id="1", content="built", time=NOW - 29),
    )  # fmt: skip
    mail = Message(sender="ann", to="bob", content="Over.")
    write(project, "bob", said("B1", -50), Delivered(messages=(mail,), time=NOW - 20))
    return project


def words(project: Project, *argv: str) -> list[str]:
    """Return the known texts in the output of a call, in order."""
    texts = {"A1", "A2", "B1", "Over.", "built", "bash: make", "— a new conversation —"}
    lines = project.do("teamctl", "transcript", *argv).splitlines()
    return [one for line in lines for one in texts if line.endswith(one)]


def test_the_last_entries_or_those_since_a_time_can_be_shown(two: Project) -> None:
    assert words(two, "ann", "-n", "2") == ["A2", "bash: make", "built"]
    assert words(two, "ann", "--since", "1h") == ["A2", "bash: make", "built"]
    assert words(two, "ann", "--since", "1h", "-n", "1") == ["bash: make", "built"]
    assert words(two, "ann", "-n", "0") == []
    assert words(two, "ann", "-n", "99") == words(two, "ann")


def test_several_transcripts_are_merged_by_time(two: Project) -> None:
    whole = ["— a new conversation —", "A1", "B1", "A2", "bash: make", "built", "Over."]
    assert words(two, "ann", "bob") == whole
    assert words(two, "--all") == whole
    assert words(two, "--all", "-n", "3") == whole[-4:]


def test_json_holds_one_transcript_or_a_list_of_several(two: Project) -> None:
    one = json.loads(two.do("teamctl", "transcript", "ann", "--json"))
    assert one == with_iso_times({"name": "ann", "records": two.records("ann")})
    last = json.loads(two.do("teamctl", "transcript", "ann", "--json", "-n", "1"))
    assert last["records"] == with_iso_times(two.records("ann")[-3:])
    both = json.loads(two.do("teamctl", "transcript", "ann", "bob", "--json"))
    rows = [{"name": name, "records": two.records(name)} for name in ("ann", "bob")]
    assert both == with_iso_times({"transcripts": rows})


def test_following_as_json_prints_a_record_per_line(two: Project) -> None:
    argv = ("teamctl", "transcript", "--all", "-f", "--json", "-n", "1")
    with two.begin(*argv, **PIPES) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        write(two, "new", said("N1", 1))
        then = json.loads(following.stdout.readline())
        following.kill()
    assert (first["name"], first["record"]) == ("bob", "mail")
    assert then == with_iso_times({"name": "new", **two.records("new")[0]})


def test_following_shows_that_a_model_call_is_retried(two: Project) -> None:
    with two.begin("teamctl", "transcript", "bob", "-f", "-n", "1", **PIPES) as following:
        journal = Journal(two.paths.log("bob"), "bob")
        assert following.stdout is not None
        assert following.stdout.readline().endswith("ann → bob\n")
        assert following.stdout.readline() == "  Over.\n"
        facts = {"reason": "connection refused", "seconds": 57.1, "attempt": 7, "attempts": 10}
        journal.warn("model call failed, trying again", **facts)
        line = following.stdout.readline()
        following.kill()
    journal.close()
    assert line.endswith("bob is retrying 7/10: connection refused, next in 57.1 s\n")


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        ((), 2, "name one or more teammates, or give --all"),
        (("ann", "--since", "soon"), 2, "--since 'soon' is no time; give 10m, 2h"),
        (("new",), 1, "new has no conversation yet"),
        (("new", "new"), 1, "none of them has a conversation yet"),
        (("ann", "eve"), 1, "no teammate named 'eve'"),
    ],
)
def test_an_unknown_teammate_cannot_be_shown(
    two: Project, argv: tuple[str, ...], status: int, sentence: str
) -> None:
    refused = two.run("teamctl", "transcript", *argv)
    assert (refused.status, refused.stdout) == (status, "")
    assert sentence in refused.stderr


def test_a_terminal_shows_the_end_and_ctrl_c_leaves(two: Project) -> None:
    write(two, "new", *(said(f"N{n}.", n) for n in range(60)))
    with closing(Terminal(two, "teamctl", "transcript", "new", "-f")) as terminal:
        terminal.sees("N59.")
        assert "N9." not in terminal.shown
        assert "N10." in terminal.shown
        assert "-n shows more" in terminal.shown
        terminal.type(CTRL_C)
        assert terminal.process.wait(20) == 130


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, b"\x1b[32m"), ({"NO_COLOR": "1"}, b"\x1b[1m"), ({"TERM": "dumb"}, b"**A3**")],
    ids=["colour", "NO_COLOR", "dumb"],
)
def test_colors_are_optional(two: Project, variables: dict[str, str], expected: bytes) -> None:
    write(two, "ann", said("**A3**", 1))
    two.environment.update({"TERM": "xterm-256color", **variables})
    with closing(Terminal(two, "teamctl", "transcript", "ann")) as terminal:
        terminal.sees("A3")
        assert terminal.process.wait(20) == 0
        raw = terminal.raw
    assert expected in raw.replace(b"\x1b[32m\x1b[1m", b"\x1b[32m").replace(
        b"\x1b[32;1m", b"\x1b[32m"
    )
    assert (b"\x1b[3" in raw) is (not variables)
    assert (b"\x1b" in raw) is (variables.get("TERM") != "dumb")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="the kernel limits the command's time")
def test_a_transcript_of_a_hundred_megabytes_opens_within_a_second(project: Project) -> None:
    """A terminal shows the end, and only that part is read: in CPU time, for a busy machine."""
    project.enlist("ann")
    use = {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "ls"}}
    reply = Replied(content=[use], stop_reason="tool_use", time=NOW).encode()
    result = CallAnswered(tool_use_id="1", content="x" * 10_000, time=NOW).encode()
    with project.paths.transcript("ann").open("wb") as file:
        for _ in range(100):
            file.write((reply + result) * 100)
        file.write(said("The end.", 0).encode())
    assert project.paths.transcript("ann").stat().st_size > 100_000_000
    limited = ("prlimit", "--cpu=1", "teamctl", "transcript", "ann")
    with closing(Terminal(project, *limited)) as terminal:
        wait_until(lambda: "The end." in terminal.shown, what="it is shown")
