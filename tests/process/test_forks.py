"""The process that is ready before anybody wants it: it is as good as one that is forked then."""

from __future__ import annotations

import os
import select
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from teamd.files.paths import TeamPaths
from teamd.process_id import Identity
from teamd.states import ChildExit
from teamd.supervisor.fork import Child, ChildProgram, ChildStart
from teamd.supervisor.forks import Forked, Forks
from teamd.supervisor.live_settings import LiveSettings
from tests.children import adopting_orphans, child, said
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.settings import Settings
    from tests.e2e.harness import Project

# Prints what a rehearsal does to the world: files written, addresses, programs, threads, modules.
REHEARSED = """
import os, sys, threading
from teamd.models import claude
from teamd.models.rehearsal import rehearse
claude.warm_up()
found, writes = [], os.O_WRONLY | os.O_RDWR | os.O_CREAT

def note(event, given):
    if event == "open" and isinstance(given[2], int) and given[2] & writes:
        found.append((event, *given))
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo",
                 "subprocess.Popen", "os.posix_spawn", "os.fork", "os.remove", "os.rename"):
        found.append((event, *given))

sys.addaudithook(note)
before = set(sys.modules)
rehearse()
print(found, threading.active_count(), sorted(set(sys.modules) - before))
"""
# A supervisor that is killed while one is ready; prints the pid of that first.
KILLED = """
import os, signal, sys, time
from pathlib import Path
from teamd.files.paths import TeamPaths
from teamd.supervisor.fork import ChildProgram
from teamd.supervisor.forks import Forks
from teamd.supervisor.live_settings import LiveSettings

paths = TeamPaths(Path(sys.argv[1]) / ".team")
program = ChildProgram(run=lambda start: 0, load=lambda: None, warning=lambda: None,
                       find_role=lambda _: None, rehearse=lambda: None)
forks = Forks(program, LiveSettings(paths, paths.settings), list)
forks.want()
while not forks.pids():
    forks.do_due()
print(*forks.pids(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Scene:
    """Forks whose processes tell their name, and wait for the end of their bell."""

    def __init__(self, paths: TeamPaths) -> None:
        self.said, self._says = os.pipe()
        self.settings = LiveSettings(paths, paths.settings)
        self.loaded_for: Settings | None = None
        program = ChildProgram(
            run=self._run,
            load=self._load,
            warning=lambda: None,
            find_role=lambda _: None,
            rehearse=lambda: self._say("rehearsed"),
        )
        self.forks = Forks(program, self.settings, lambda: [self.said])
        self.forked: list[Forked] = []

    def have_one_ready(self) -> int:
        """Wait for a process that is ready; return its pid."""
        self.forks.want()

        def is_ready() -> bool:
            self.forks.do_due()
            return bool(self.forks.pids())

        wait_until(is_ready, what="one is ready")
        (pid,) = self.forks.pids()
        assert self.hear() == "rehearsed"
        return pid

    def fork(self, name: str, *, hibernates: bool = False) -> Forked:
        """Fork a teammate."""
        self.forked.append(self.forks.fork(name, None, hibernates=hibernates))
        return self.forked[-1]

    def hear(self) -> str:
        """Return the next thing that a process says; two may say theirs at once."""
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.said, 1)
        return line.decode().removesuffix("\n")

    def end(self) -> None:
        """End all processes."""
        self.forks.end()
        for one in self.forked:
            one.child.signal(signal.SIGKILL)
            os.close(one.slots)
            wait_until(partial(_has_ended, one.child), what="it has ended")
        wait_until(self.none_is_ready)
        os.close(self.said)
        os.close(self._says)

    def none_is_ready(self) -> bool:
        """Return whether none is ready any more, and none ends."""
        self.forks.reap()
        return not self.forks.pids()

    def _load(self) -> None:
        self.loaded_for = self.settings.now

    def _run(self, start: ChildStart) -> int:
        self._say(f"{start.name} {start.heartbeat.resting} {start.hibernates}")
        os.write(start.slots, b"ask")
        start.heartbeat.rest()
        while select.select([start.bell], [], [])[0] and os.read(start.bell, 100):
            self._say(f"{start.name} is rung")
        return ChildExit.STOPPED

    def _say(self, text: str) -> None:
        os.write(self._says, f"{text}\n".encode())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    made = Scene(paths)
    yield made
    made.end()


def test_what_the_settings_want_is_loaded_before_it_is_forked(scene: Scene) -> None:
    """It would not mask the secrets of settings that were read again since the last fork."""
    scene.settings.apply(scene.settings.read())
    scene.have_one_ready()
    assert scene.loaded_for is scene.settings.now


def test_who_is_spawned_is_the_process_that_was_ready(scene: Scene) -> None:
    """It hears its bell, is heard by its heartbeat, and asks over its channel for slots."""
    pid = scene.have_one_ready()
    ann = scene.fork("ann")
    assert ann.child.identity == Identity.of(pid)
    assert not scene.forks.pids()
    assert scene.hear() == "ann False False"
    wait_until(lambda: ann.heartbeat.resting)
    select.select([ann.slots], [], [], 20)
    assert os.read(ann.slots, 100) == b"ask"
    ann.child.ring()
    assert scene.hear() == "ann is rung"


def test_the_next_one_is_another_process_and_is_ready_again_later(scene: Scene) -> None:
    """Whoever starts a whole team does not wait for any that nobody has asked for yet."""
    first = scene.have_one_ready()
    scene.fork("ann")
    scene.fork("bob")
    assert {scene.hear(), scene.hear()} == {"ann False False", "bob False False"}
    assert not scene.forks.pids()
    assert 0 < scene.forks.next_due_seconds <= 0.5
    second = scene.have_one_ready()
    pids = {first, second, *(one.child.identity.pid for one in scene.forked)}
    assert len(pids) == len(scene.forked) + 1


def test_one_that_has_other_settings_is_nobody_ever(scene: Scene) -> None:
    pid = scene.have_one_ready()
    scene.settings.apply(scene.settings.read())
    ann = scene.fork("ann")
    assert ann.child.identity.pid != pid
    assert scene.hear() == "ann False False"
    wait_until(scene.none_is_ready)


def test_one_that_hibernates_is_always_forked(scene: Scene) -> None:
    """What was rehearsed is memory of its own, of which it is to have as little as can be."""
    pid = scene.have_one_ready()
    assert scene.fork("ann", hibernates=True).child.identity.pid != pid
    assert scene.hear() == "ann False True"
    assert scene.forks.pids() == {pid}


def test_one_that_was_killed_is_missed_by_nobody(scene: Scene) -> None:
    pid = scene.have_one_ready()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert scene.fork("ann").child.identity.pid != pid
    assert scene.hear() == "ann False False"
    scene.forks.reap()
    assert not scene.forks.pids()
    assert scene.have_one_ready() != pid


def test_none_is_ready_where_nothing_is_rehearsed(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / ".team")
    program = ChildProgram(
        run=lambda _: 0, load=lambda: None, warning=lambda: None, find_role=lambda _: None
    )
    forks = Forks(program, LiveSettings(paths, paths.settings), list)
    forks.want()
    assert forks.next_due_seconds == float("inf")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends once it looks at its bell")
def test_it_dies_with_its_supervisor(tmp_path: Path) -> None:
    TeamPaths(tmp_path / ".team").create()
    with child(KILLED, tmp_path) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert supervisor.wait(20) == -signal.SIGKILL
    wait_until(lambda: Identity.of(pid) is None, what="it has ended")


@pytest.mark.slow
def test_a_rehearsal_leaves_no_trace() -> None:
    """It is nobody yet: no server hears of it, no file, and no thread that a fork would lose."""
    assert said(REHEARSED).splitlines() == ["[] 1 []"]


@pytest.mark.slow
def test_a_team_has_one_ready_that_becomes_the_next_teammate(project: Project) -> None:
    """And it is gone when the team is stopped, as are all."""
    project.start()
    supervisor = project.supervisor
    wait_until(lambda: bool(_children(supervisor)), what="one is ready")
    (ready,) = _children(supervisor)
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    assert project.member("ann")["pid"] == ready
    wait_until(lambda: len(_children(supervisor)) > 1, what="another is ready")
    (ready,) = _children(supervisor) - {ready}
    project.run("teamctl", "shutdown", "ann", "--force")
    project.do("teamctl", "spawn", "bob", "clerk", "Go.", "--wait")
    assert project.member("bob")["pid"] == ready, "no orphan that ann has left"
    left = {one for pid in _children(supervisor) if (one := Identity.of(pid))}
    project.do("teamd", "stop")
    assert not any(one.alive for one in left)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_a_stop_waits_for_the_one_that_is_ready(project: Project) -> None:
    """It would be there when the team is said to have stopped; who adopts it would find it."""
    with adopting_orphans():
        supervisor = project.start()
        wait_until(lambda: bool(_children(supervisor)), what="one is ready")
        (ready,) = _children(supervisor)
        project.do("teamd", "stop")
        with pytest.raises(ChildProcessError):
            os.waitid(os.P_PID, ready, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def test_none_is_ready_any_more_once_all_end(scene: Scene) -> None:
    """A teammate that starts once more while a team stops would have one made again."""
    pid = scene.have_one_ready()
    scene.forks.end()
    scene.forks.want()
    assert scene.forks.next_due_seconds == float("inf")
    assert scene.fork("ann").child.identity.pid != pid, "that one is about to end"
    assert scene.hear() == "ann False False"


def _has_ended(child: Child) -> bool:
    return child.reap() is not None


def _children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
