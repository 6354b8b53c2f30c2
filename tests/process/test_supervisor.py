"""The supervisor as a service and a parent: starts, signals, and ends of teammates."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from teamd.process_id import Identity
from tests.e2e.harness import SIGHTED, Project
from tests.shells import links
from tests.waiting import wait_until

STARTS = 2


@pytest.fixture
def manager(project: Project) -> Iterator[list[bytes]]:
    """The messages to a service manager at the socket in the project's environment."""
    address = str(project.root / "n")
    told: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(address)
        reading = threading.Thread(
            target=lambda: told.extend(iter(partial(receiving.recv, 99), b""))
        )
        reading.start()
        project.environment |= {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}
        yield told
        receiving.sendto(b"", address)
        reading.join()


@SIGHTED
def test_exactly_one_of_several_simultaneous_starts_runs(project: Project) -> None:
    project.ask_no_service()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    starting = [project.begin("teamd", "start", **pipes) for _ in range(STARTS)]
    ended = [(one.communicate(timeout=60), one.returncode) for one in starting]
    assert sorted(code for _, code in ended) == [0] + [1] * (STARTS - 1)
    for (_, errors), code in ended:
        if code:
            assert f"a teamd (pid {project.supervisor}) already runs for" in errors
            assert errors.count("\n") == 1
    served = {pid for pid, line in project.survivors().items() if "--foreground" in line}
    assert project.supervisor is not None
    # The spare process for the next teammate is a child too.
    ready = {one.pid for one in psutil.Process(project.supervisor).children()}
    assert served - ready == {project.supervisor}


@pytest.mark.slow
def test_a_start_in_a_pipe_ends_even_though_its_teammates_keep_running(project: Project) -> None:
    """`ssh host teamd start` returns only after all processes have closed its standard error."""
    project.ask_no_service('[[teammate]]\nname = "ann"\nrole = "coder"\nprompt = "Go."\n')
    ended = project.run("bash", "-c", "teamd start 2>&1 | cat", timeout_seconds=30)
    assert "`teamctl team` shows the team" in ended.stdout
    pid = project.wait_for("ann", "idle")["pid"]
    for process in (pid, project.supervisor):
        kept = Path(f"/proc/{process}/fd/2").readlink()
        assert kept == project.paths.logs / "teamd.stderr"


@pytest.mark.slow
def test_the_supervisor_outlives_the_terminal_that_started_it(project: Project) -> None:
    """At the end of an ssh session the terminal disappears, and its session gets a SIGHUP."""
    project.ask_no_service()
    master, slave = os.openpty()
    script = (
        "teamd start && teamctl spawn ann coder Go. --wait && echo spawned-ann && read -r never"
    )
    session = project.begin(
        "bash",
        "-c",
        script,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    shown = b""
    while b"spawned-ann" not in shown:
        shown += os.read(master, 4096)
    pid = project.wait_for("ann", "idle")["pid"]
    os.close(master)
    assert session.wait(20) == -signal.SIGHUP
    # A Ctrl-C in the terminal does not reach its session either.
    assert os.getsid(project.supervisor) == project.supervisor
    assert project.do("teamctl", "spawn", "ann", "coder", "Still there?", "--wait")
    assert project.wait_for("ann", "idle")["pid"] == pid


@pytest.mark.slow
def test_a_service_manager_is_notified_and_sighup_reloads_the_settings(
    project: Project, manager: list[bytes]
) -> None:
    project.ask_no_service()
    serving = project.begin("teamd", "start", "--foreground")
    wait_until(lambda: manager.count(b"WATCHDOG=1") >= 3, what="signs of life")
    assert manager[0] == b"READY=1"
    assert project.supervisor == serving.pid
    project.ask_no_service('[[teammate]]\nname = "ann"\nrole = "coder"\nprompt = "Go."\n')
    serving.send_signal(signal.SIGHUP)
    project.wait_for("ann", "idle")

    project.write("team.toml", "[[teammate]\n")  # a mistake in the file does no harm
    serving.send_signal(signal.SIGHUP)
    wait_until(lambda: "is not TOML" in project.paths.log("teamd").read_text(), what="it is logged")
    assert serving.poll() is None
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(20) == 0
    wait_until(lambda: manager[-1] == b"STOPPING=1", what="the last word")
    assert set(manager[1:-1]) == {b"WATCHDOG=1"}


@pytest.mark.slow
def test_shutdown_ends_a_teammate_and_reports_whether_force_was_needed(team: Project) -> None:
    for name in ("dora", "emil", "fred", "gina"):
        team.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
    pids = {name: team.wait_for(name, "idle")["pid"] for name in ("dora", "emil", "fred", "gina")}
    agreed = "dora approved and is shut down: idle, and no mail waits\n"
    assert team.do("teamctl", "shutdown", "dora") == agreed
    assert (team.member("dora")["status"], team.member("dora")["pid"]) == ("shutdown", None)

    os.kill(pids["emil"], signal.SIGSTOP)
    late = team.run("teamctl", "shutdown", "emil", "--timeout", "0.3")
    assert (late.status, late.complaint) == (
        4,
        "emil did not answer within 0.3 s and was killed",
    )
    os.kill(pids["fred"], signal.SIGSTOP)
    forced = team.run("teamctl", "shutdown", "fred", "--force")
    assert (forced.status, forced.complaint) == (4, "fred was killed")
    assert "gina approved and is shut down" in team.do("teamctl", "shutdown", "--all")
    for name, pid in pids.items():
        assert Identity.of(pid) is None
        assert team.member(name)["status"] == "shutdown"
    assert team.do("teamctl", "shutdown", "--all") == "nobody is running\n"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are seen on Linux only")
@SIGHTED
def test_a_teammate_inherits_no_open_file_of_its_supervisor(project: Project) -> None:
    """A lock, or the writing end of another's bell, would outlive the supervisor in it."""
    project.ask_no_service()
    project.start()
    for name in ("ann", "bob"):
        project.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
    for name in ("ann", "bob"):
        project.wait_for(name, "idle")  # a call may still use its own pipes
        pid = project.wait_for_process(name)
        opened = links(pid)
        assert project.paths.supervisor not in opened.values()
        pipes = [fd for fd, target in opened.items() if target.name.startswith("pipe:")]
        fdinfo = Path(f"/proc/{pid}/fdinfo")
        facts = [(fdinfo / fd).read_text(encoding="ascii") for fd in pipes]
        flags = [int(re.findall(r"flags:\s+(\d+)", text)[0], 8) for text in facts]
        assert [one & os.O_ACCMODE for one in flags] == [os.O_RDONLY], "its own bell"


@pytest.mark.skipif(sys.platform != "linux", reason="names of processes can be set on Linux only")
def test_processes_are_told_apart_by_their_titles(project: Project) -> None:
    project.ask_no_service()
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    pids = project.supervisor, project.wait_for_process("ann")
    assert [psutil.Process(pid).name() for pid in pids] == ["teamd", "teamd: ann"]
