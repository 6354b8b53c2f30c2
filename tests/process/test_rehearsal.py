"""A process that waits to be a teammate has been one for a turn, and nothing shows of that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from teamd.process_id import Identity
from tests.children import said
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

_PLACE: Final = Path("/dev/shm")
# Rehearses twice, and prints what that did to the world; the first one loads modules.
REHEARSED: Final = """
import os, signal, sys, threading
from pathlib import Path
from teamd.agent.process import TeammateProcess
from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.supervisor.live_settings import LiveSettings

paths = TeamPaths(Path(sys.argv[1]) / ".team")
settings = LiveSettings(paths, paths.settings)
process = TeammateProcess(paths, lambda: settings.now, settings.accepted_bytes, 60, Mask())
signal.signal(signal.SIGINT, signal.SIG_IGN)
process._sdk_loaded = True
process.rehearse()
found, writes = [], os.O_WRONLY | os.O_RDWR | os.O_CREAT
changes = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"}
others = {"socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo",
          "subprocess.Popen", "os.posix_spawn", "os.fork"}

def note(event, given):
    place = str(given[0]) if given and isinstance(given[0], (str, os.PathLike)) else ""
    # Others are numbers, or in a folder that is open: the removal of its own.
    foreign = place.startswith("/") and "teamd-rehearsal-" not in place
    writes_to = event == "open" and isinstance(given[2], int) and given[2] & writes
    if foreign and (writes_to or event in changes) or event in others:
        found.append((event, *given))

sys.addaudithook(note)
modules, files = set(sys.modules), sorted(os.listdir("/proc/self/fd"))
process.rehearse()
print(found, threading.active_count(), sorted(set(sys.modules) - modules))
print(sorted(os.listdir("/proc/self/fd")) == files, os.listdir(sys.argv[1]))
print(*(signal.getsignal(one).name for one in (signal.SIGINT, signal.SIGTERM)),
      signal.set_wakeup_fd(-1), signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
ENDED: Final = """
import os, signal
from teamd.agent import child
live = child.live

def be_ended(*given, **named):
    os.kill(os.getpid(), signal.SIGTERM)
    print("goes on", flush=True)
    return live(*given, **named)

child.live = be_ended
"""
STOPPED: Final = """
import os, signal, sys
from tests.process.test_rehearsal import REHEARSED
from teamd.agent import child
child.live = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
exec(REHEARSED)
"""


def _folders() -> set[Path]:
    return set(_PLACE.glob("teamd-rehearsal-*"))


@pytest.fixture(autouse=True)
def no_other() -> Iterator[None]:
    """See that each test leaves as many as there were: other teams may rehearse meanwhile."""
    before = _folders()
    yield
    wait_until(lambda: not {one for one in _folders() - before if _is_ours(one)}, what="all gone")


def _is_ours(folder: Path) -> bool:
    pid, started = folder.name.split("-")[2:4]
    return not Identity(pid=int(pid), started=float(started)).alive


def test_it_leaves_no_trace(tmp_path: Path) -> None:
    """No file, no address, no program, no thread, no descriptor, no signal's handler."""
    lines = said(REHEARSED, tmp_path).splitlines()
    assert lines == ["[] 1 []", "True []", "SIG_IGN SIG_DFL -1 set()"]


def test_what_a_killed_one_left_goes_with_the_next(tmp_path: Path) -> None:
    before = _folders()
    argv = [sys.executable, "-c", STOPPED, str(tmp_path)]
    ended = subprocess.run(argv, check=False, cwd=Path(__file__).parents[2])
    assert ended.returncode == -signal.SIGKILL
    (left,) = _folders() - before
    mine = Identity.own()
    kept = _PLACE / f"teamd-rehearsal-{mine.pid}-{mine.started:.0f}-alive"
    kept.mkdir()
    try:
        said(REHEARSED, tmp_path)
        assert not left.exists()
        assert kept.exists(), "it is somebody's"
    finally:
        kept.rmdir()


def test_who_is_ended_meanwhile_ends_behind_it(tmp_path: Path) -> None:
    """It may have got its name by then, and is not to be missed until it is killed."""
    argv = [sys.executable, "-c", ENDED + REHEARSED, str(tmp_path)]
    ended = subprocess.run(argv, check=False, stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, b"goes on\n")


def test_where_there_is_no_place_a_teammate_is_only_slower(tmp_path: Path) -> None:
    code = f"""
import os
os.environ["TMPDIR"] = {str(tmp_path / "none")!r}
from teamd.agent import rehearsal
rehearsal._MEMORY = __import__("pathlib").Path("/proc/none")
rehearsal.gettempdir = lambda: os.environ["TMPDIR"]
from teamd.agent.process import TeammateProcess
from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.settings import Settings
from pathlib import Path
process = TeammateProcess(TeamPaths(Path({str(tmp_path)!r})), Settings, lambda: 1, 60, Mask())
process._sdk_loaded = True
process.rehearse()
print("goes on")
"""
    assert said(code) == "goes on\n"
    assert not os.listdir(tmp_path)  # noqa: PTH208
