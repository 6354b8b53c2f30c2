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


@pytest.mark.parametrize(
    "settings",
    [
        "[model]\nkey_command = 'echo x'",
        "[limits]\nteam_usd = 0.01",
        "[model]\ncontext_tokens = 2000\nmax_tokens = 100",
        "[supervision]\nhibernate_seconds = 0",
        "[mail]\nmax_message_bytes = 10",
    ],
)
def test_it_comes_to_its_end_whatever_the_settings(tmp_path: Path, settings: str) -> None:
    (tmp_path / "team.toml").write_text(settings, encoding="utf-8")
    code = REHEARSED.replace("process.rehearse()", "rehearse(process._common())")
    lines = said("from teamd.agent.rehearsal import rehearse" + code, tmp_path).splitlines()
    assert lines[0] == "[] 1 []"


def test_what_keeps_it_does_so_for_a_moment_only() -> None:
    """Its name may be told already, and a teammate that never begins is worse than a slow one."""
    lost = """
import os
from pathlib import Path
from teamd.agent import child
live = child.live

def lose_the_script(common, *given, **named):
    common.settings.model.script.unlink()
    return live(common, *given, **named)

child.live = lose_the_script
"""
    code = lost + REHEARSED.replace("process.rehearse()", "rehearse(process._common())")
    with pytest.raises(subprocess.CalledProcessError):
        said("from teamd.agent.rehearsal import rehearse" + code, "/")
    assert said(lost + REHEARSED, "/").endswith("SIG_IGN SIG_DFL -1 set()\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_another_user_has_put_there_is_left_alone(tmp_path: Path) -> None:
    foreign = _PLACE / "teamd-rehearsal-999999-1-foreign"
    foreign.mkdir()
    try:
        os.chown(foreign, 65534, 65534)
        said(REHEARSED, tmp_path)
        assert foreign.exists()
    finally:
        foreign.rmdir()


@pytest.mark.parametrize(
    "trouble",
    [
        "rehearsal._MEMORY = Path('/proc/none')",
        "rehearsal.scratch_folder = None",
        "rehearsal._MEMORY = 1",
    ],
)
def test_where_it_cannot_be_a_teammate_is_only_slower(trouble: str) -> None:
    code = REHEARSED.replace("paths = ", f"from teamd.agent import rehearsal\n{trouble}\npaths = ")
    assert said(code, "/").splitlines()[-1] == "SIG_IGN SIG_DFL -1 set()"
