"""On a full disk, writes are refused with one line, and no file is half written."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.harness import Project
from tests.strict.faults import Stall
from tests.strict.replies import say
from tests.waiting import wait_until


@pytest.fixture
def still(project: Project) -> Project:
    """A team with ann and bob, and without teamd."""
    project.enlist("ann", "bob")
    return project


def test_a_short_write_leaves_no_partial_line(still: Project) -> None:
    """A limit on file sizes imitates a disk that fills up in the middle of a line."""
    still.do("teamctl", "send", "ann", "x" * 700)
    before = still.mail("ann")
    limited = 'ulimit -f 1; exec teamctl send ann "$0"'
    refused = still.run("bash", "-c", limited, "y" * 400)
    assert refused.status == 1
    assert re.search("no space left for .*/ann.jsonl; free some", refused.complaint)
    assert still.mail("ann") == before
    still.do("teamctl", "send", "ann", "z")
    assert [json.loads(line)["content"][0] for line in still.mail("ann").splitlines()] == ["x", "z"]


def test_without_room_for_a_temporary_file_the_error_is_one_line(still: Project) -> None:
    """A library looks for a temporary folder when it is imported, and finds none."""
    refused = still.run("bash", "-c", "ulimit -f 0; exec teamctl send ann hello")
    assert refused.status == 1
    assert re.search("no space left for .*/ann.jsonl; free some", refused.complaint)


@pytest.fixture
def small_disk(project: Project) -> Iterator[Path]:
    """Put the team directory on a disk of one MiB; return the path of a file that fills it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    project.paths.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(project.paths.root)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield project.paths.root / "filler"
    project.end()
    subprocess.run(["umount", str(project.paths.root)], check=True)


def _fill(filler: Path) -> None:
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.slow
def test_a_full_disk_causes_refusals_but_no_damage(small_disk: Path, project: Project) -> None:
    """Teamd and idle teammates survive, and continue once there is space."""
    pid = project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    stall = Stall()
    project.server.faults.when(lambda asked: asked.name == "wes", stall)
    project.stage.play("wes", say("more than the last block of its transcript holds " * 200))
    project.do("teamctl", "spawn", "wes", "coder", "Go.")
    assert stall.reached.wait(20)
    idle = project.wait_for("ann", "idle")["pid"]
    os.kill(pid, signal.SIGSTOP)
    early = project.begin("teamctl", "spawn", "eva", "coder", "Go.", "--wait")
    wait_until(lambda: project.mail("teamd"), what="a request comes just before the disk is full")
    _fill(small_disk)
    os.kill(pid, signal.SIGCONT)

    for call in ("teamctl send ann x", "teamctl broadcast x"):
        refused = project.run(*call.split())
        assert refused.status == 1
        assert "no space left for " in refused.complaint
    assert project.mail("ann") == ""
    stall.released.set()  # the failure of wes can neither be recorded nor reported
    wait_until(lambda: not _alive(project.member("wes")["pid"]), what="wes ends")
    roster = json.loads(project.paths.config.read_bytes())
    assert [member["name"] for member in roster["members"]] == ["ann", "wes"]

    small_disk.unlink()
    assert early.wait(20) == 0
    project.do("teamctl", "send", "ann", "There is space.")
    wait_until(lambda: len(project.asked("ann")) == 2, what="ann wakes")
    project.wait_for("wes", "idle")  # without help: a full disk is not its fault
    assert len(project.asked("wes")) >= 2
    assert project.supervisor == pid
    assert project.wait_for("ann", "idle")["pid"] == idle


def _alive(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()
