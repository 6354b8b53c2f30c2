"""Commands that tests fork look to others exactly like commands that a person starts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from tests.children import child
from tests.e2e.harness import SIGHTED, Project
from tests.forked.client import SERVER, Begun, Forked, Server, server
from tests.shells import links
from tests.waiting import wait_until

CALLS = {
    "no such command": ("teamctl", "sned", "ann", "x"),
    "version": ("teamd", "--version"),
    "reading": ("teamctl", "spawn", "ann", "clerk", "-", "--no-start"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_forked_command_prints_and_exits_like_a_started_one(
    project: Project, call: tuple[str, ...]
) -> None:
    cwd, env = project.folder, project.environment
    real = subprocess.run(
        call, cwd=cwd, env=env, input="Gö.", text=True, capture_output=True, check=False
    )
    assert server().takes(call, env)
    forked = server().run(call, cwd=cwd, env=env, stdin="Gö.", timeout_seconds=60)
    assert forked == (real.returncode, real.stdout, real.stderr)


@pytest.fixture
def follower(project: Project) -> Iterator[Forked]:
    """A command that keeps running, in its own folder and environment."""
    project.environment["GREETING"] = "hullo"
    project.paths.create()
    project.paths.log("teamd").touch()
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        command = server().fork(
            ("teamctl", "logs", "teamd", "--follow"),
            (nothing, nothing, nothing),
            cwd=project.folder,
            env=project.environment,
            new_session=True,
        )
    finally:
        os.close(nothing)
    with closing(command):
        log = project.paths.log("teamd")
        wait_until(lambda: log in links(command.pid).values(), what="it follows")
        yield command


def test_a_forked_command_inherits_only_its_own_resources(
    project: Project, follower: Forked
) -> None:
    """The search for processes that a test leaves behind relies on the environment."""
    there = Path(f"/proc/{follower.pid}")
    environment = (there / "environ").read_bytes().rstrip(b"\0").split(b"\0")
    wanted = {f"{key}={value}".encode() for key, value in project.environment.items()}
    assert sorted(environment) == sorted(wanted)
    assert project.survivors() == {follower.pid: "teamctl logs teamd --follow"}
    assert (there / "cwd").readlink() == project.folder
    assert os.getsid(follower.pid) == os.getpgid(follower.pid) == follower.pid
    assert not [path for path in links(follower.pid).values() if path.name.startswith("socket")]
    os.kill(follower.pid, 9)
    assert follower.wait(20) == -9
    assert project.survivors() == {}


@pytest.mark.parametrize("forked", [True, False])
def test_a_running_forked_command_has_the_interface_of_popen(
    project: Project, *, forked: bool
) -> None:
    project.enlist("ann")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

    def begin(*argv: str) -> subprocess.Popen[str]:
        cwd, env = project.folder, project.environment
        if forked:
            return Begun(argv, pipes, cwd=cwd, env=env)
        return subprocess.Popen(argv, cwd=cwd, env=env, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    with begin("teamctl", "send", "ann", "-") as sending:
        assert sending.poll() is None
        stdout, stderr = sending.communicate("Gö.", timeout=60)
        assert (stdout, stderr.count("\n"), sending.returncode) == ("sent to ann\n", 1, 0)
    assert json.loads(project.mail("ann"))["content"] == "Gö."
    with begin("teamctl", "inbox", "ann", "--follow") as following:
        assert following.stdout is not None
        try:
            assert following.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                following.wait(0.01)
        finally:
            following.kill()
        assert following.wait(60) == following.poll() == -9
        following.terminate()  # no other process gets the signal


@SIGHTED
def test_teammates_of_a_forked_supervisor_are_found_too(project: Project) -> None:
    supervisor = project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    ann = project.member("ann")["pid"]
    assert {supervisor, ann} <= set(project.survivors())
    os.kill(supervisor, 9)
    wait_until(lambda: not project.survivors(), what="both are gone: ann dies with her supervisor")


def test_a_command_that_needs_its_own_interpreter_is_not_forked(project: Project) -> None:
    assert not server().takes(("teamd",), project.environment | {"LD_PRELOAD": "faketime.so"})
    assert not server().takes(("teamd",), project.environment | {"PYTHONUTF8": "0"})
    assert not server().takes(("sh",), project.environment)
    assert not server().takes(("teamd",), project.environment | {"LONG": "x" * 100_000})


# It imports fewer modules than the normal servers, since that takes seconds.
SMALL = f"""
import runpy, socket, sys
from pathlib import Path
import teamd.__main__
sockets = [socket.socket(fileno=int(fd)) for fd in sys.argv[1:3]]
runpy.run_path({str(SERVER)!r})["Server"](*sockets, Path(sys.argv[3])).serve()
"""
STAYS = """
import sys
from pathlib import Path
from tests.forked.client import Server
folder = Path(sys.argv[1])
print(Server({}, folder, shared=True, program=folder.with_name("small.py")).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def small(tmp_path: Path) -> Callable[[], Server]:
    """Use the server of a folder, which is started on first use."""
    program = tmp_path / "small.py"
    program.write_text(SMALL)
    return lambda: Server({}, tmp_path / "forks", shared=True, program=program)


def test_workers_share_a_server_that_ends_with_the_last_of_them(
    tmp_path: Path, small: Callable[[], Server]
) -> None:
    """Kills of the workers that started or use it do not matter."""
    folder = tmp_path / "forks"
    with ExitStack() as stack:
        workers = [stack.enter_context(child(STAYS, folder)) for _ in range(2)]
        (pid,) = {int(one.stdout.readline()) for one in workers if one.stdout is not None}
        shared = psutil.Process(pid)
        with closing(small()) as late:
            assert late.pid == pid
            for worker in workers:
                worker.kill()
                worker.wait()
            version = ("teamd", "--version")
            done = late.run(version, stdin="", timeout_seconds=60, cwd=tmp_path, env={})
            assert done.status == 0
            assert shared.is_running()
        wait_until(lambda: _has_ended(shared), what="the server has ended")
        assert not folder.exists()


def _has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
