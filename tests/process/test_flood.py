"""A flood of mail is taken in order, in bounded portions and memory, without delaying others."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from tests.e2e.harness import Project
from tests.waiting import wait_until

FEW: Final = 1000
MOST_MESSAGES: Final = 100
MOST_BYTES: Final = 128 * 1024
BATCH: Final = 500
LARGE: Final = pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])
FOREIGN: Final = """
import fcntl, json, sys
path, sender, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for n in range(0, count, 500):
    with open(path, "ab", 0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = (json.dumps({"from": sender, "n": n + i, "content": "x" * 100}) for i in range(500))
        file.write(("\\n".join(lines) + "\\n").encode())
"""


def fill(paths: TeamPaths, name: str, count: int) -> None:
    """Write half of the mail with a foreign program, half with our code in batches."""
    foreign = [sys.executable, "-c", FOREIGN, str(paths.inbox(name)), "foreign", str(count // 2)]
    with subprocess.Popen(foreign) as writing:
        box = Mailbox(paths, name, durable=False)
        for start in range(0, count // 2, BATCH):
            box.put(*(mail(name, n) for n in range(start, start + BATCH)))
        assert writing.wait(100) == 0


def mail(to: str, n: int) -> Message:
    return Message(sender="lead", to=to, content="x" * 100, extra={"n": n})


def check(deliveries: Iterable[list[dict[str, Any]]], count: int) -> int:
    """Check that each message came once, in its sender's order, in bounded deliveries.

    Returns:
        The number of deliveries.
    """
    by_sender: dict[str, list[int]] = defaultdict(list)
    ids = set()
    number = 0
    for number, messages in enumerate(deliveries, start=1):  # noqa: B007 -- the last one is it
        assert len(messages) <= MOST_MESSAGES
        assert sum(len(json.dumps(message)) for message in messages) <= 2 * MOST_BYTES
        for message in messages:
            if "n" in message:
                by_sender[message["from"]].append(message["n"])
                ids.add(message["id"])
    assert by_sender == {sender: list(range(count // 2)) for sender in ("lead", "foreign")}
    assert len(ids) == count
    return number


def delivered(paths: TeamPaths, name: str) -> list[list[dict[str, Any]]]:
    lines = paths.transcript(name).read_bytes().splitlines()
    records = [json.loads(line) for line in lines]
    return [record["messages"] for record in records if record["record"] == "mail"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [4000, LARGE])
def test_a_flooded_teammate_keeps_answering_and_does_not_delay_the_others(
    project: Project, count: int
) -> None:
    """The conversation grows with the mail, but the take does not."""
    script = project.write("script.json", '{"turns": {}}')
    project.write("team.toml", f'[model]\nscript = "{script.name}"\n')
    project.start()
    for name in ("few", "bob", "ann"):
        project.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
        project.wait_for(name, "idle")
    fill(project.paths, "few", FEW)
    settle(project, "few", FEW)
    begun = time.monotonic()
    fill(project.paths, "bob", count)
    waits = []
    while Mailbox(project.paths, "bob").waiting():
        before = time.monotonic()
        project.do("teamctl", "send", "ann", "Are you there?", "--wait")
        project.do("teamctl", "team", "--json")
        waits.append(time.monotonic() - before)
    project.do("teamctl", "send", "bob", "And you?", "--wait")
    turns = settle(project, "bob", count)
    seconds = time.monotonic() - begun
    few, many = peak(project, "few"), peak(project, "bob")
    print(  # noqa: T201 -- the same
        f"{count} messages: {turns} turns in {seconds:.1f} s, peak memory {many:.0f} MiB against "
        f"{few:.0f} MiB with {FEW}; {len(waits)} letters to another meanwhile, the slowest with "
        f"a look at the team took {max(waits, default=0):.2f} s"
    )
    assert turns >= count // MOST_MESSAGES // 2
    assert waits, "the flood was over before anybody could look"
    assert many - few < 4 * count * 1024 / 1024**2 + 20, "a few times what it holds"
    assert not project.log("teamd", "crashed")


def settle(project: Project, name: str, count: int) -> int:
    """Wait until all mail is delivered and answered; return the number of turns."""
    box = Mailbox(project.paths, name)
    wait_until(lambda: not box.waiting(), timeout_seconds=600, what=f"{name} has all of it")
    wait_until(lambda: b'"ended"' in last_line(project, name), what=f"{name} has answered it")
    found = delivered(project.paths, name)
    check(found, count)
    turns = len(project.records(name, "reply")) + len(project.records(name, "summary"))
    assert 2 * turns >= len(found), "a wake brings one delivery, its first request another"
    return turns


def last_line(project: Project, name: str) -> bytes:
    return project.paths.transcript(name).read_bytes().rstrip(b"\n").rpartition(b"\n")[2]


def peak(project: Project, name: str) -> float:
    """Return the peak memory of a teammate's process, in MiB."""
    status = Path(f"/proc/{project.member(name)['pid']}/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
