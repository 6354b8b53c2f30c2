"""A machine's bad days: logs moved away, a read-only disk, no descriptors or processes left.

Running processes survive, and continue on their own afterwards.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import pytest

from teamd.errors import ExitCode
from teamd.files import locks, pidfile
from tests.children import holding
from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until

STRACE: Final = shutil.which("strace")
FORKS: Final = "clone,clone3,fork,vfork"
needs_chattr = pytest.mark.skipif(shutil.which("chattr") is None, reason="chattr is not installed")


def test_logs_that_are_moved_away_are_opened_again(project: Project) -> None:
    """Logrotate moves them without telling the program."""
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    pid = project.wait_for("ann", "idle")["pid"]
    for name in ("teamd", "ann"):
        project.paths.log(name).rename(project.paths.logs / f"{name}.log.old")
    project.do("teamctl", "shutdown", "ann")
    assert project.log("teamd", "shutting down")
    assert project.log("ann", "stops")
    project.paths.log("teamd").unlink()
    project.do("teamctl", "spawn", "ann", "coder", "Go on.", "--wait")
    assert project.log("teamd", "spawned")
    assert project.member("ann")["pid"] != pid


@contextmanager
def immutable(root: Path, *, inside: bool = True) -> Iterator[None]:
    """Make a folder unchangeable, as on a disk that was remounted read-only after a fault.

    Args:
        root: the folder.
        inside: whether to include its subfolders.
    """
    there = [str(root), *(str(path) for path in root.rglob("*") if inside)]
    changed = subprocess.run(["chattr", "+i", *there], capture_output=True, text=True, check=False)
    try:
        if changed.returncode:
            pytest.skip(f"no file can be made immutable here: {changed.stderr.splitlines()[0]}")
        yield
    finally:
        subprocess.run(["chattr", "-i", *there], capture_output=True, check=False)


@pytest.mark.slow
def test_ctrl_c_during_the_start_leaves_no_process(project: Project) -> None:
    project.paths.create()
    with locks.locked(project.paths.config_lock):  # it waits here
        starting = project.begin("teamd", "start", installed=True)
        wait_until(lambda: pidfile.supervisor(project.paths) is not None, what="it has begun")
        there = pidfile.supervisor(project.paths)
        starting.send_signal(signal.SIGINT)
        assert starting.wait(20) == 130
    assert there is not None
    assert not there.alive


@pytest.mark.slow
@needs_chattr
def test_a_read_only_team_directory_is_reported_and_survived(project: Project) -> None:
    pid = project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    idle = project.wait_for("ann", "idle")["pid"]
    with immutable(project.paths.root):
        for call in ("teamctl send ann x", "teamctl broadcast x", "teamctl spawn bob coder x"):
            refused = project.run(*call.split())
            assert refused.status == 1, call
            assert "may not be accessed (Operation not permitted); check its" in refused.complaint
        assert project.run("teamctl", "team").status == 0
        os.kill(pid, signal.SIGHUP)
        os.kill(idle, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(idle), what="ann has crashed")
    project.do("teamctl", "send", "ann", "It can be written again.", "--wait")
    project.wait_for("ann", "idle", turns=2)
    assert project.supervisor == pid
    project.do("teamctl", "spawn", "bob", "coder", "Go.", "--wait")

    project.do("teamd", "stop")
    with immutable(project.paths.root):
        refused = project.run("teamd", "start")
        assert refused.status == 1
        assert "may not be accessed (Operation not permitted); check its" in refused.complaint
    assert project.survivors() == {}


@needs_chattr
def test_an_answer_that_cannot_be_written_is_delivered_later(project: Project) -> None:
    """Otherwise the caller waits in vain, and assumes that nothing was done."""
    project.start()
    with immutable(project.paths.replies):
        spawn = project.begin("teamctl", "spawn", "ann", "coder", "Go.")
        wait_until(lambda: project.log("teamd", "answer not written"), what="it was tried")
    assert spawn.wait(20) == 0
    project.wait_for("ann", "idle")


@contextmanager
def descriptors(pid: int, spare: int) -> Iterator[None]:
    """Limit a process to so many files besides those that it has open."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir())
    free = highest + 1 - len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + spare - free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.parametrize("spare", [-5, 2])
def test_teamd_without_free_descriptors_neither_dies_nor_spins(
    project: Project, spare: int
) -> None:
    pid = project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    killed = project.wait_for("ann", "idle")["pid"]
    with descriptors(pid, spare):
        used = sum(psutil.Process(pid).cpu_times()[:2])
        spawn = project.begin("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
        os.kill(killed, signal.SIGKILL)
        time.sleep(2)  # the period of the measurement
        used = sum(psutil.Process(pid).cpu_times()[:2]) - used
        assert used < 0.5, "two seconds without descriptors"
    assert project.supervisor == pid
    project.wait_for("ann", "idle")
    project.do("teamctl", "send", "ann", "Are you back?", "--wait")
    assert spawn.wait(40) in (0, 1)
    if spawn.returncode:
        project.do("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
    project.wait_for("bob", "idle")
    assert project.log("teamd", "failed") == []


@contextmanager
def no_forks(pid: int) -> Iterator[None]:
    """Stop a process from creating children, as if the machine had no processes left."""
    inject = f"inject={FORKS}:error=EAGAIN"
    argv = [str(STRACE), "-p", str(pid), "-e", f"trace={FORKS}", "-e", inject, "-o", "/dev/null"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as tracing:
        try:
            assert tracing.stderr is not None
            if "attached" not in (said := tracing.stderr.readline()):
                pytest.skip(f"no process can be traced here: {said.strip()}")
            yield
        finally:
            tracing.terminate()


@pytest.mark.slow
@pytest.mark.strace
def test_a_teammate_starts_on_its_own_once_processes_are_available(project: Project) -> None:
    pid = project.start()
    with no_forks(pid):
        spawned = project.run("teamctl", "spawn", "ann", "coder", "Go.")
        assert spawned.status == 0
        reason = "no process could be forked: Resource temporarily unavailable; starting again"
        assert reason in spawned.stderr
        assert spawned.stderr.count("\n") == 1
        assert project.member("ann")["pid"] is None
        assert reason in " ".join(project.do("teamctl", "team").split())
    project.wait_for("ann", "idle", turns=1)
    assert project.member("ann")["reason"] is None


@pytest.mark.slow
@pytest.mark.strace
def test_a_teammate_that_cannot_fork_gets_a_tool_error(project: Project) -> None:
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    pid = project.wait_for("ann", "idle")["pid"]
    project.stage.play("ann", use(("bash", {"command": "echo hi"})), say("I cannot."))
    with no_forks(pid):
        project.do("teamctl", "send", "ann", "Say hi.")
        project.wait_for("ann", "idle", turns=3)
    (result,) = project.asked("ann", least=1)[-1].asked.last_results
    assert result.is_error
    assert "bash could not be started in" in result.text
    assert "Resource temporarily unavailable" in result.text
    assert project.member("ann")["pid"] == pid


@pytest.mark.slow
@needs_chattr
def test_a_refused_spawn_has_no_effect(project: Project) -> None:
    """After a repeat, the work is done once."""
    turn = (use(("bash", {"command": "echo deployed >> deployed"})), say("Done."))
    project.stage.play("ann", say("Ready."), *turn, *turn)
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle")
    for name in ("ann", "bob"):
        spawn = ("teamctl", "spawn", name, "coder", "Deploy it.")
        with immutable(project.paths.root, inside=False):
            refused = project.run(*spawn)
            assert refused.status == 1
            assert "config.json may not be accessed" in refused.complaint
        assert not project.paths.inbox("bob").exists()
        project.do(*spawn, "--wait")
    assert (project.folder / "deployed").read_text() == "deployed\n"
    assert [m["content"] for r in project.records("bob", "mail") for m in r["messages"]] == [
        "Deploy it."
    ]


@pytest.mark.slow
@needs_chattr
def test_nothing_is_reported_as_done_before_the_roster_is_written(project: Project) -> None:
    """Otherwise a power cut could bring back a teammate that was reported as shut down."""
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle")
    with immutable(project.paths.root, inside=False):
        asked = project.begin("teamctl", "shutdown", "ann", "--force")
        wait_until(lambda: project.log("teamd", "roster not written"), what="it was tried")
        assert asked.poll() is None
    assert asked.wait(timeout=30) == ExitCode.DEADLINE, "it was killed"
    assert project.member("ann")["status"] == "shutdown"


def crash(project: Project, name: str, *, times: int) -> None:
    """Kill a teammate's process, and then its successors, so many times in all."""
    for _ in range(times):
        wait_until(lambda: project.member(name)["pid"], what="it has a process")
        pid = project.member(name)["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(partial(_is_gone, project, name, pid), what="it is missed")


def _is_gone(project: Project, name: str, pid: int) -> bool:
    return bool(project.member(name)["pid"] != pid)


@pytest.mark.slow
def test_notices_to_the_lead_survive_a_locked_inbox_and_a_kill(project: Project) -> None:
    """Otherwise a waiting and a failed teammate would wait for ever, unnoticed."""
    project.write("team.toml", "[limits]\ncalls_per_wake = 2\n[supervision]\ncrashes = 1\n")
    project.stage.act("ann", lambda _: use(("read_inbox", {})))
    project.start()
    project.do("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
    with holding(project.paths.inbox("lead")):
        project.do("teamctl", "spawn", "ann", "coder", "Go.")
        wait_until(lambda: project.records("ann", "ended"), what="ann stops at her limit")
        os.kill(project.member("ann")["pid"], signal.SIGKILL)
        crash(project, "bob", times=2)
        project.wait_for("bob", "failed")
        wait_until(lambda: project.log("teamd", "lead not told yet"), timeout_seconds=30)
    wait_until(
        lambda: "ann stopped after 2 model calls" in project.mail("lead"), timeout_seconds=50
    )
    wait_until(lambda: "bob has failed" in project.mail("lead"), timeout_seconds=50)
    told = [m["content"] for m in json.loads(project.do("teamctl", "inbox", "--json"))["messages"]]
    assert sorted(text.partition(" ")[0] for text in told) == ["ann", "bob"]


@pytest.mark.slow
def test_a_small_limit_for_mail_does_not_stop_notices_to_the_lead(project: Project) -> None:
    """Nor the supervisor, whose notice about a teammate exceeded its own limit."""
    project.write("team.toml", "[mail]\nmax_message_bytes = 200\n[supervision]\ncrashes = 1\n")
    pid = project.start()
    project.do("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
    crash(project, "bob", times=2)
    project.wait_for("bob", "failed")
    wait_until(lambda: "bob has failed" in project.mail("lead"), what="the lead is told")
    assert project.supervisor == pid
