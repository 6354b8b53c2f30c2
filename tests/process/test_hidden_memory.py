"""Other processes of the same user cannot read keys in the memory of teamd's processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from teamd.masking import MASK
from tests.children import said

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")

NOBODY: Final = 65534
PR_SET_DUMPABLE: Final = 4
REPOSITORY: Final = Path(__file__).parents[2]
# Becomes an ordinary user, since root may read everything, and as readable as other processes.
ORDINARY: Final = f"""
import ctypes, os, resource, signal, subprocess, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from teamd.supervisor.fork import hide_memory
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
ctypes.CDLL(None).prctl({PR_SET_DUMPABLE}, 1, 0, 0, 0)
"""
# Hides its memory, forks a process that waits, starts a program, prints their pids, and waits.
HIDES: Final = """
if sys.argv[1] == "hide":
    hide_memory()
program = subprocess.Popen(["sleep", "1000"])
child = os.fork()
if child == 0:
    signal.pause()
print(os.getpid(), child, program.pid, flush=True)
sys.stdin.read()
os.kill(child, 9)
program.kill()
"""
READS: Final = """
for name in ("environ", "mem", "fd", "maps"):
    path = f"/proc/{sys.argv[1]}/{name}"
    try:
        os.listdir(path) if name == "fd" else open(path, "rb").close()
        print(name)
    except PermissionError:
        pass
"""
CRASHES: Final = """
hide_memory()
most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
os.kill(os.getpid(), signal.SIGSEGV)
"""

# Serves a team whose ann fails with an error that only Python itself reports.
FAILS: Final = """
import os, signal, sys
from pathlib import Path
from teamd import daemon
from teamd.files.paths import TeamPaths
from teamd.supervisor.fork import ChildProgram
paths = TeamPaths(Path(sys.argv[1]) / ".team")
os.environ["ANTHROPIC_API_KEY"] = sys.argv[2]
supervisor = os.getpid()

def run(start):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # whoever stops it comes too early otherwise
    os.kill(supervisor, signal.SIGTERM)
    raise KeyboardInterrupt(sys.argv[2])

program = ChildProgram(run=run, load=lambda: None, warning=lambda: None, find_role=lambda _: None)
daemon.serve(paths, paths.settings, ready=lambda: None, prepare=lambda _: program)
"""


def python(code: str, argument: object) -> list[str]:
    return [sys.executable, "-c", ORDINARY + code, str(argument)]


def seen(pid: int) -> list[str]:
    """Return the files of a process that another process of the same user can open."""
    done = subprocess.run(python(READS, pid), capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture
def hidden(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    """Run a process that hides itself, its fork, and its program; yield their pids."""
    argv = python(HIDES, getattr(request, "param", "hide"))
    with subprocess.Popen(
        argv, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield [int(pid) for pid in process.stdout.readline().split()]


def test_other_processes_cannot_read_the_memory_of_a_hidden_process_or_its_forks(
    hidden: list[int],
) -> None:
    """Programs that it starts are ordinary: `ps`, `strace` and `gdb` work on them."""
    process, child, program = hidden
    assert seen(process) == []
    assert seen(child) == []
    assert seen(program) == ["environ", "mem", "fd", "maps"]


@pytest.mark.parametrize("hidden", ["show"], indirect=True)
def test_the_memory_of_a_process_that_is_not_hidden_can_be_read(hidden: list[int]) -> None:
    """This validates the test above, whatever this machine forbids anyway."""
    assert seen(hidden[0]) == ["environ", "mem", "fd", "maps"]


def test_a_hidden_process_writes_no_core_file(tmp_path: Path) -> None:
    """Even if its limit is raised."""
    tmp_path.chmod(0o777)
    done = subprocess.run(python(CRASHES, ""), cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert list(tmp_path.iterdir()) == []


def test_a_last_resort_message_of_python_contains_no_key(tmp_path: Path) -> None:
    """The message goes into a file of the team; the log names a folder whose name is the key."""
    folder = tmp_path / "sk-canary-1"
    folder.mkdir()
    declared = '[[teammate]]\nname = "ann"\nrole = "clerk"\nprompt = "Go."\n'
    (folder / "team.toml").write_text(declared)
    said(FAILS, folder, "sk-canary-1")
    words = (folder / ".team" / "logs" / "teamd.stderr").read_text()
    log = (folder / ".team" / "logs" / "teamd.log").read_text()
    assert words.endswith(f"KeyboardInterrupt: {MASK}\n")
    assert f"{MASK}/.team" in log
    assert "sk-canary-1" not in words + log
