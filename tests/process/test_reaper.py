"""A reaper above each tool's program: after any kill, no process below it survives."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from teamd.tools import Toolbox
from teamd.tools.shell import Bash
from tests.children import ForkedChild, adopt_orphans, forked
from tests.e2e.harness import Project
from tests.shells import open_shell
from tests.strict.replies import say, use
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")

MARK: Final = "REAPER_TEST_FOLDER"

CHAIN = (
    "trap '' TERM; f() { [ $1 -ge 100 ] || f $(($1 + 1)) & [ $1 -lt 100 ] || touch ready; "
    "exec sleep 1000; }; f 1"
)
COMMANDS: Final = {
    "plain": "sleep 1000 & touch ready; sleep 1000",
    "setsid": "setsid sleep 1000 & touch ready; sleep 1000",
    "double fork": "(setsid sh -c 'touch ready; sleep 1000; true' &) ; sleep 1000",
    "both, twice": (
        "(setsid sh -c '(setsid sleep 1000 &) ; sleep 1000' &) ; touch ready; sleep 1000"
    ),
    "fork chain": f'setsid bash -c "{CHAIN.replace("$", chr(92) + "$")}" & sleep 1000',
    "deaf": "trap '' TERM INT HUP; touch ready; while :; do sleep 1000; done",
    "stopped": "sh -c 'setsid sleep 1000 & touch ready; kill -STOP $$' & sleep 1000",
    "stops its reaper": "setsid sleep 1000 & kill -STOP $PPID; touch ready; sleep 1000",
    "shoots at its reaper": (
        "for n in 1 2 3 10 12 13 14 15 20; do kill -$n $PPID; done; touch ready; sleep 1000"
    ),
    "never stops forking": (
        # Each process ends soon: only a few exist at any time, and 100,000 in all.
        "setsid bash -c 'n=0; while [ $((n += 1)) -lt 100000 ]; do (exec sleep 0.01) & "
        "[ $((n % 8)) != 0 ] || wait; [ $n != 20 ] || touch ready; done' & sleep 1000"
    ),
}


def marked(folder: Path) -> dict[int, str]:
    """Return all processes whose environment names the folder, except this one."""
    mark = f"{MARK}={folder}\0".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes() + b"\0":
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(process.name)] = words.decode(errors="replace")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of the commands; processes left by a failed test are killed."""
    yield tmp_path
    wait_until(lambda: not killed(tmp_path), what="the last has ended")


def killed(folder: Path) -> dict[int, str]:
    """Kill and return the marked processes; they may have forked meanwhile."""
    found = marked(folder)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def ask(folder: Path, command: str, timeout_seconds: float) -> None:
    """Act like a teammate: a single-threaded subreaper runs a command and prints its result."""
    adopt_orphans()
    shell = open_shell(folder, **{MARK: str(folder)})
    bash = Bash(shell=shell, timeout_seconds=timeout_seconds, output_bytes=2000)
    print(os.getpid(), flush=True)  # noqa: T201 -- to the test
    result = asyncio.run(Toolbox([bash]).run("bash", {"command": command}))
    print(result.text.replace("\n", "|"), flush=True)  # noqa: T201 -- to the test
    sys.stdin.read()


def supervise(folder: Path, command: str, timeout_seconds: float) -> None:
    """Act like a supervisor: a subreaper above the process of `ask`."""
    adopt_orphans()
    if os.fork() == 0:
        ask(folder, command, timeout_seconds)
    else:
        os.wait()


class Asker:
    """A process that runs a command like a teammate."""

    def __init__(self, process: ForkedChild) -> None:
        self.process = process
        self.pid = int(self._line())

    def said(self) -> str:
        """Return the model's view of the result, with `|` for line ends."""
        return self._line()

    def _line(self) -> str:
        return self.process.stdout.readline().removesuffix("\n")


@contextmanager
def asking(folder: Path, command: str, timeout_seconds: float = 60) -> Iterator[Asker]:
    with forked(partial(ask, folder, command, timeout_seconds)) as process:
        yield Asker(process)


def ready(folder: Path) -> None:
    """Wait until the command has created the file `ready`."""
    wait_until((folder / "ready").exists, what="the command is ready")
    assert marked(folder)


def nothing_left(folder: Path) -> None:
    wait_until(lambda: not marked(folder), timeout_seconds=5, what="all have ended")


# kills of the asker and its supervisor


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_process_outlives_a_killed_asker(folder: Path, command: str) -> None:
    """The killed process cannot end them, and no process above it would."""
    with asking(folder, command) as asker:
        ready(folder)
        os.kill(asker.pid, signal.SIGKILL)
        nothing_left(folder)


@pytest.mark.parametrize("name", ["plain", "both, twice", "stops its reaper"])
def test_no_process_outlives_an_asker_killed_together_with_its_supervisor(
    folder: Path, name: str
) -> None:
    """The orphans go to init, which ends none of them."""
    with forked(partial(supervise, folder, COMMANDS[name], 60)) as process:
        asker = Asker(process)
        ready(folder)
        os.kill(process.pid, signal.SIGSTOP)  # so that it does not see the other's end
        os.kill(asker.pid, signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
        nothing_left(folder)


@pytest.mark.parametrize("polite", [True, False])
def test_an_asker_may_be_killed_while_its_command_is_being_ended(
    folder: Path, polite: bool
) -> None:
    """Commands that ignore SIGTERM get two seconds before SIGKILL; after the kill they get none."""
    deaf = "trap 'touch asked' TERM; touch ready; while :; do sleep 0.01; done"
    command = f"({deaf}) & until [ -e ready ]; do sleep 0.01; done" if polite else deaf
    with asking(folder, command, 60 if polite else 0.5) as asker:
        wait_until((folder / "asked").exists, what="it is asked to end")
        begun = time.monotonic()
        os.kill(asker.pid, signal.SIGKILL)
        nothing_left(folder)
        assert time.monotonic() - begun < 1.5


def test_all_processes_end_when_a_stopped_asker_is_killed(folder: Path) -> None:
    with asking(folder, COMMANDS["setsid"]) as asker:
        ready(folder)
        os.kill(asker.pid, signal.SIGSTOP)
        os.kill(asker.pid, signal.SIGKILL)
        nothing_left(folder)


# a command that attacks its reaper


@pytest.mark.parametrize(
    "command",
    [
        "setsid sleep 1000 & kill -9 $PPID; sleep 1000",
        "(setsid sh -c 'setsid sleep 1000 & trap \"\" TERM; sleep 1000; true' &) ; kill -9 $PPID",
        "sh -c 'setsid sleep 1000 & kill -STOP $$' & kill -9 $PPID; sleep 1000",
    ],
)
def test_a_command_that_kills_its_reaper_ends_with_it(folder: Path, command: str) -> None:
    """The processes below the reaper go to the asker, which ends them."""
    with asking(folder, command) as asker:
        assert asker.said() == "[killed by SIGKILL]"
        assert marked(folder) == {}


@pytest.mark.slow
def test_a_command_that_stops_its_reaper_still_has_its_time_limit(folder: Path) -> None:
    with asking(folder, "kill -STOP $PPID; setsid sleep 1000 & sleep 1000", 1) as asker:
        begun = time.monotonic()
        assert asker.said().startswith("[ended after 1 s, its time limit")
        # The reaper continues, and need not be killed after 10 s.
        assert time.monotonic() - begun < 8
        assert marked(folder) == {}


# properties that the reaper must not change


def test_a_command_does_not_notice_its_reaper(folder: Path) -> None:
    """Environment, descriptors, signals and streams are the same as without a reaper."""
    command = "cat /proc/$$/environ >environ; ls /proc/self/fd >fds; "
    signals = "grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2 >signals; "
    session = '[ "$(ps -o sid= $$ | tr -d " ")" = $$ ] && echo leader'
    with asking(folder, command + signals + session) as asker:
        assert asker.said() == "leader"
    entries = (folder / "environ").read_bytes().decode().split("\0")
    without_terminal = ("EDITOR=", "PAGER=", "GIT_PAGER=", "GIT_TERMINAL_PROMPT=", "GIT_CONFIG_")
    own = [f"HOME={folder}/home", f"TMPDIR={folder}/tmp", ""]
    assert [entry for entry in entries if not entry.startswith(without_terminal)] == [
        f"PATH={os.environ['PATH']}", f"{MARK}={folder}", *own,
    ]  # fmt: skip
    # 3: the folder that `ls` lists
    assert (folder / "fds").read_text().split() == ["0", "1", "2", "3"]
    blocked, ignored = (int(line, 16) for line in (folder / "signals").read_text().split())
    assert blocked == 0
    # Except for two signals that glibc reserves, and those that the caller of the tests ignores.
    assert ignored & ~(0b11 << 31) & ~_ignored_here() == 0


def _ignored_here() -> int:
    """Return the signals that the parent shell has made this process ignore."""
    numbers = (n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN)
    restored = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them only for itself
    return sum(1 << (n - 1) for n in numbers if n not in restored)


@pytest.mark.parametrize(
    ("how", "text"), [("exit 3", "[exit status 3]"), ("kill -ABRT $$", "[killed by SIGABRT]")]
)
def test_the_exit_of_a_command_is_reported_unchanged(folder: Path, how: str, text: str) -> None:
    with asking(folder, f"sleep 1000 & {how}") as asker:
        assert asker.said() == f"{text}|[1 background process was ended with the command]"
        assert marked(folder) == {}


def test_orphans_are_reaped_while_a_command_runs(folder: Path) -> None:
    """Otherwise a command of hours would fill the process table with zombies."""
    children = '"$(cat /proc/$PPID/task/$PPID/children)"'
    command = (
        "for i in {1..50}; do (true &); done; "
        f'until [ {children} = "$$ " ]; do sleep 0.01; done; echo none'
    )
    with asking(folder, command, 20) as asker:
        assert asker.said() == "none"


# the complete program


@pytest.mark.slow
def test_no_process_outlives_teamd_and_its_teammates_killed_at_once(project: Project) -> None:
    """As when the kernel runs out of memory, or a person types `killall -9`."""
    names = ("ann", "bob", "cy")
    project.start()
    for name in names:
        command = f"setsid sleep 1000 & touch {name}; sleep 1000"
        project.stage.play(name, use(("bash", {"command": command})), say("I go on."))
        project.do("teamctl", "spawn", name, "clerk", f"Task of {name}.")
    for name in names:
        wait_until((project.folder / name).exists, what=f"{name} runs its command")
        project.wait_for(name, "working")
    wait_until(
        lambda: list(project.survivors().values()).count("sleep 1000") == 2 * len(names),
        what="all commands run",
    )
    together = [project.supervisor, *(project.member(name)["pid"] for name in names)]
    for pid in together:
        os.kill(pid, signal.SIGSTOP)  # so that none sees another's end
    for pid in together:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not project.survivors(), timeout_seconds=2, what="all have ended")
    project.start()
    for name in names:
        project.wait_for(name, "idle", turns=2)
        (result,) = project.asked(name, least=1)[-1].asked.last_results
        assert result.is_error
        assert "Whether it had any effect is not known" in result.text
