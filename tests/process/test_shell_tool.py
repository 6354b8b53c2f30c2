"""The shell tool with real processes: the model's view, and the end of all processes."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamd.masking import Mask
from teamd.process_id import Identity
from teamd.programs import Program
from teamd.tools import Result, Toolbox
from teamd.tools.shell import Bash
from tests.children import adopting_orphans
from tests.shells import open_shell
from tests.waiting import until, wait_until

OUTPUT_BYTES = 2000

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return Toolbox(
        [
            Bash(
                shell=open_shell(tmp_path, PIDS=str(tmp_path / "pids")),
                timeout_seconds=60,
                output_bytes=OUTPUT_BYTES,
            )
        ]
    )


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Pids]:
    """The pids that commands record with `echo $! >> $PIDS`."""
    found = Pids(tmp_path / "pids")
    yield found
    for one in found.seen():
        if Identity.of(one) is not None:
            os.kill(one, 9)  # only after a failed test


class Pids:
    """The pids in a file, one per line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def seen(self) -> list[int]:
        """Return all pids in complete lines."""
        if not self._path.exists():
            return []
        *lines, _ = self._path.read_text().split("\n")
        return [int(line) for line in lines]

    def alive(self) -> list[int]:
        """Return the pids of processes that still run."""
        return [pid for pid in self.seen() if Identity.of(pid) is not None]


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Adopt orphans, as a teammate's process does."""
    with adopting_orphans():
        yield


def run(box: Toolbox, command: str, **more: object) -> Result:
    return asyncio.run(box.run("bash", {"command": command, **more}))


def cancel(box: Toolbox, command: str, pids: Pids, count: int) -> float:
    """Cancel a command once it has recorded `count` pids; return the seconds until its end."""

    async def both() -> float:
        running = asyncio.create_task(box.run("bash", {"command": command}))
        await until(lambda: len(pids.seen()) >= count, what=f"{count} pids of {command}")
        start = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return time.monotonic() - start

    return asyncio.run(both())


# the model's view


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hi", "hi"),
        ("printf 'a\\nb'", "a\nb"),
        ("true", "(no output)"),
        ("exit 3", "[exit status 3]"),
        ("echo no >&2; exit 1", "no\n[exit status 1]"),
        ("kill -9 $$", "[killed by SIGKILL]"),
        ("kill -TERM $$", "[killed by SIGTERM]"),
        ("kill -40 $$", "[killed by signal 40]"),
        ("cat; echo done", "done"),
        ("-x", "bash: line 1: -x: command not found\n[exit status 127]"),
        ("(exit 141); yes | head -1", "y"),
    ],
)
def test_output_and_status_are_shown(box: Toolbox, command: str, text: str) -> None:
    assert run(box, command) == Result(text=text)


def test_both_outputs_appear_in_the_order_of_their_writes(box: Toolbox) -> None:
    text = run(box, "for i in {1..100}; do echo o$i; echo e$i >&2; done").text
    assert text.split() == [f"{where}{n}" for n in range(1, 101) for where in "oe"]


def test_a_command_runs_in_the_workspace_with_only_its_own_environment(
    box: Toolbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    lines = run(box, "pwd -P; env").text.split("\n")
    assert lines[0] == str(tmp_path.resolve())
    of_shells = {"HOME", "PWD", "SHLVL", "TMPDIR", "_"}
    of_git = {"EDITOR", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "PAGER", "GIT_CONFIG_COUNT"}
    of_git |= {f"GIT_CONFIG_{what}_{at}" for what in ("KEY", "VALUE") for at in (0, 1)}
    assert {line.split("=")[0] for line in lines[1:]} <= {"PATH", "PIDS"} | of_shells | of_git


NO_EDITOR = "there is no editor here: give the text as an option, such as `git commit -m TEXT`"
HISTORY = (
    "git init -q -b main; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "
    "GIT_COMMITTER_EMAIL=a@b; for i in 1 2; do git commit -q --allow-empty -m $i; done; "
    "git config core.editor 'touch opened #'; git config sequence.editor 'touch opened #'; "
)


@pytest.mark.parametrize("command", ["commit --allow-empty", "rebase -i HEAD~1", "tag -a v1"])
def test_an_editor_that_git_opens_fails_at_once_with_a_hint(box: Toolbox, command: str) -> None:
    result = run(box, f"{HISTORY} git {command} && echo done; git status --porcelain -b")
    assert NO_EDITOR in result.text.split("\n")[0]
    assert "done" not in result.text
    assert result.text.endswith("## main"), "no rebase is under way"


@pytest.mark.parametrize(
    "command",
    [
        "GIT_EDITOR=true git rebase -i HEAD~1",
        "GIT_SEQUENCE_EDITOR=: git rebase -i HEAD~1",
        "git -c core.editor=true rebase -i HEAD~1",
        "EDITOR=true git commit --amend --allow-empty",
    ],
)
def test_a_command_that_names_its_own_editor_gets_it(
    box: Toolbox, command: str, tmp_path: Path
) -> None:
    result = run(box, f"{HISTORY} {command}")
    assert NO_EDITOR not in result.text
    assert not result.is_error
    assert not (tmp_path / "opened").exists()


def test_sigpipe_ends_a_writer(box: Toolbox) -> None:
    """Python ignores SIGPIPE, and a child would inherit that."""
    assert run(box, "yes | head -1 >/dev/null; echo ${PIPESTATUS[0]}").text == "141"


def test_invalid_text_is_replaced(box: Toolbox) -> None:
    text = run(box, r"printf 'a\0b\xff\xed\xa0\x80c\xc3'").text
    assert text == "a\ufffdb\ufffd\ufffd\ufffd\ufffdc\ufffd"
    assert run(box, "head -c 100000 /dev/urandom").text.encode()


@pytest.mark.parametrize("command", ["a\0b", "\ud800"])
def test_a_command_with_nuls_or_lone_surrogates_is_refused(box: Toolbox, command: str) -> None:
    assert run(box, command) == Result(
        text="a command cannot hold NULs or lone surrogates", is_error=True
    )


def test_a_command_that_is_too_long_is_refused(box: Toolbox) -> None:
    result = run(box, "#" * 4_000_000)
    assert result.is_error
    assert result.text.startswith("the command is too long (4000000 characters); put it into")


def test_a_missing_workspace_is_reported(box: Toolbox, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    result = run(box, "true")
    assert result.is_error
    why = "bash could not be started in the workspace: No such file or directory"
    assert result.text == why


@pytest.mark.parametrize("timeout", [0, -1, 10**400])
def test_a_time_limit_must_be_a_sensible_number(box: Toolbox, timeout: int) -> None:
    assert "bad input for bash: timeout" in run(box, "true", timeout=timeout).text


@pytest.mark.slow
def test_endless_output_is_truncated(box: Toolbox) -> None:
    result = run(box, "echo first; yes", timeout=1)
    assert result.is_error
    head, cut, tail = re.split(r"\n\[… (\d+) bytes cut …\]\n", result.text)
    tail, _, note = tail.rpartition("\n")
    assert head.startswith("first\ny\n")
    assert len((head + tail).encode()) <= OUTPUT_BYTES
    assert int(cut) > 1_000_000
    assert note.startswith("[ended after 1 s, its time limit; ")


# the end of a command


@pytest.mark.slow
def test_a_time_limit_ends_the_whole_group(box: Toolbox, pids: Pids) -> None:
    command = (
        "sleep 1000 & echo $! >> $PIDS; (sleep 1000 & echo $! >> $PIDS; wait) & echo so far; wait"
    )
    result = run(box, command, timeout=1)
    assert result.is_error
    assert result.text.startswith("so far\n[ended after 1 s, its time limit; ")
    assert len(pids.seen()) == 2
    assert not pids.alive()


@pytest.mark.slow
def test_a_command_may_clean_up_but_not_continue(box: Toolbox, pids: Pids) -> None:
    polite = "trap 'echo cleaned up; exit' TERM; echo $$ >> $PIDS; while :; do sleep 0.1; done"
    assert "cleaned up\n[ended after" in run(box, polite, timeout=1).text
    deaf = "trap '' TERM; echo $$ >> $PIDS; while :; do sleep 0.1; done"
    assert run(box, deaf, timeout=1).is_error
    stopped = "echo $$ >> $PIDS; kill -STOP $$"
    assert run(box, stopped, timeout=1).is_error
    assert len(pids.seen()) == 3
    assert not pids.alive()


@pytest.mark.parametrize("count", [1, 2])
def test_background_processes_are_ended_and_reported(box: Toolbox, pids: Pids, count: int) -> None:
    """Such a process holds the pipe open, so that waiting for the end of output would hang."""
    result = run(box, "sleep 1000 & echo $! >> $PIDS; " * count + "echo done")
    told = "1 background process was" if count == 1 else "2 background processes were"
    assert result == Result(text=f"done\n[{told} ended with the command]")
    assert len(pids.seen()) == count
    assert not pids.alive()


def test_a_background_process_that_ends_at_once_is_waited_for(box: Toolbox) -> None:
    """A command does not wait for its `>(…)`, but that output counts."""
    assert run(box, "echo hi | tee >(sleep 0.05; sed s/h/H/)").text == "hi\nHi"


def test_cancelling_ends_a_command_at_once(box: Toolbox, pids: Pids) -> None:
    """A teammate that is asked to stop has its own deadline."""
    deaf = "trap '' TERM; echo $$ >> $PIDS; sleep 1000 & echo $! >> $PIDS; while :; do wait; done"
    assert cancel(box, deaf, pids, 2) < 1.5
    assert not pids.alive()


ESCAPED = "setsid bash -c 'echo $$ >> $PIDS; exec sleep 1000'"
SETTLED = "until [ -s $PIDS ]; do sleep 0.01; done; "


@linux
@pytest.mark.parametrize(
    "command", [f"{ESCAPED} & ", f"({ESCAPED} &) ; ", f"set -m; {ESCAPED} & disown; "]
)
def test_a_process_that_escaped_the_group_is_ended_too(
    box: Toolbox, pids: Pids, subreaper: None, command: str
) -> None:
    result = run(box, command + SETTLED + "echo done")
    assert result == Result(text="done\n[1 background process was ended with the command]")
    (pid,) = pids.seen()
    with pytest.raises(ProcessLookupError):  # not even a zombie
        os.kill(pid, 0)


@linux
def test_an_escaped_process_that_holds_the_pipe_does_not_block_the_tool(
    box: Toolbox, pids: Pids
) -> None:
    """Even if its reaper is gone, and this process does not adopt orphans."""
    text = run(box, f"{ESCAPED} & {SETTLED} echo done; kill -9 $PPID").text
    assert text == "done\n[killed by SIGKILL]"
    (pid,) = pids.alive()
    os.kill(pid, 9)
    wait_until(lambda: not pids.alive())


@linux
def test_other_programs_and_their_orphans_are_spared(
    box: Toolbox, pids: Pids, tmp_path: Path, subreaper: None
) -> None:
    """Background jobs run beside the command; their orphans become children of this process."""
    job = [
        *("bash", "-c", '(sleep 1000 & echo $! >> "$0"); echo $$ >> "$0"; exec sleep 1000'),
        str(tmp_path / "pids"),
    ]

    async def both() -> None:
        command = "until [ -e go ]; do sleep 0.01; done"
        running = asyncio.create_task(box.run("bash", {"command": command}))
        await until(lambda: Program.live, what="the command's start")
        with Program(job, output=bytes):  # so that the job starts after the command
            await until(lambda: len(pids.seen()) == 2, what="the job and its orphan")
            (tmp_path / "go").touch()
            assert (await running).text == "(no output)"
            assert len(pids.alive()) == 2

    asyncio.run(both())
    wait_until(lambda: not pids.alive(), what="the job's end")


# costs for this process


def test_a_command_starts_no_thread_and_leaves_no_descriptor_open(box: Toolbox) -> None:
    """A process that forks must have no threads, and a teammate runs thousands of commands."""

    async def several() -> int:
        most = 0
        running = [
            asyncio.create_task(box.run("bash", {"command": "sleep 0.1; sleep 9 &"}))
            for _ in range(3)
        ]
        while not all(one.done() for one in running):
            most = max(most, threading.active_count())
            await asyncio.sleep(0.01)
        return most

    descriptors = list(Path("/dev/fd").iterdir())
    threads = threading.active_count()
    assert asyncio.run(several()) == threads
    assert len(list(Path("/dev/fd").iterdir())) == len(descriptors)
    assert not Program.live


@pytest.mark.slow
def test_secrets_are_masked_before_the_middle_is_cut(tmp_path: Path) -> None:
    """Masking would not find half of a key at the cut, and the two halves make a key."""
    key = "sk-0123456789abcdef"
    for limit in range(20, 60, 6):
        bash = Bash(
            shell=open_shell(tmp_path),
            timeout_seconds=60,
            output_bytes=limit,
            mask=Mask(key),
        )
        text = run(Toolbox([bash]), f"echo {key * 20}; printf %s {key}").text
        assert "sk-" not in text
        assert "0123" not in text
