"""Started programs: their end, and the resources that they inherit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from teamd.process_id import Identity
from teamd.programs import Captured, capture, run_to_end, start_detached
from tests.waiting import wait_until

ENDS = """
import asyncio, signal
from teamd.programs import Program
async def main():
    with Program(["sh", "-c", "exit 3"], output=print) as program:
        assert await program.wait() == 3
    with Program(["sh", "-c", "kill -9 $$"], output=print) as program:
        assert await program.wait() == -signal.SIGKILL
    with Program(["sleep", "1000"], output=print):
        pass
asyncio.run(main())
"""


def run(argv: list[str], **terms: Any) -> Captured:
    return asyncio.run(capture(argv, **terms))


def test_outputs_and_status_are_captured_and_there_is_no_input() -> None:
    argv = ["sh", "-c", "cat; head -c 300000 /dev/zero; echo error >&2; exit 3"]
    data = bytes(300_000)  # more than a pipe holds
    assert run(argv, timeout_seconds=60) == Captured(status=3, stdout=data, stderr=b"error\n")


def test_at_most_1_mib_of_output_is_captured() -> None:
    captured = run(["head", "-c", "5000000", "/dev/zero"], timeout_seconds=60)
    assert captured.stdout == bytes(1 << 20)


def test_a_program_gets_the_given_environment_and_folder(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "A": "1"}
    captured = run(["sh", "-c", "echo $A $HOME; pwd -P"], timeout_seconds=60, cwd=tmp_path, env=env)
    assert captured.stdout.decode() == f"1\n{tmp_path.resolve()}\n"


def test_a_program_inherits_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    monkeypatch.setenv("PLAIN", "1")
    script = ["sh", "-c", "echo $ANTHROPIC_API_KEY $PLAIN"]
    assert run(script, timeout_seconds=60).stdout == b"1\n"
    assert run(script, timeout_seconds=60, env=os.environ).stdout == b"sk-1 1\n"


def test_a_program_that_exceeds_its_timeout_is_killed_with_its_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    argv = ["sh", "-c", f"sleep 1000 & echo $! > {note}; wait"]
    with pytest.raises(TimeoutError, match="sh did not end within 1 s"):
        run(argv, timeout_seconds=1)
    wait_until(lambda: Identity.of(int(note.read_text())) is None)


def test_capture_does_not_wait_for_a_background_process_that_holds_the_pipe(tmp_path: Path) -> None:
    """A `key_command` may start an agent that keeps running."""
    captured = run(["sh", "-c", "sleep 1000 & echo key"], timeout_seconds=60)
    assert captured.stdout == b"key\n"


def test_capture_does_not_wait_for_an_escaped_process_that_writes_forever() -> None:
    argv = ["sh", "-c", "setsid yes & exec sleep 0.1"]
    assert run(argv, timeout_seconds=60).stdout.startswith(b"y\ny\n")


def test_a_missing_program_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        run(["no-such-program"], timeout_seconds=1)


@pytest.mark.strace
def test_the_end_of_a_program_is_noticed_without_pidfds() -> None:
    """Pidfds do not exist on macOS, and some containers forbid them."""
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pidfd_open"]
    inject = ["-e", "inject=pidfd_open:error=EPERM"]
    subprocess.run(
        [*strace, *inject, sys.executable, "-W", "error", "-c", ENDS], check=True, timeout=60
    )


def test_a_detached_program_has_its_own_session(tmp_path: Path) -> None:
    here, there = os.pipe()
    script = f"cat; pwd -P >&{there}; exec sleep 1000"
    with (
        open(here) as ready,  # noqa: PTH123 -- a descriptor
        start_detached(["bash", "-c", script], cwd=tmp_path, pass_fds=[there]) as detached,
    ):
        os.close(there)
        assert ready.readline() == f"{tmp_path.resolve()}\n"
        assert os.getsid(detached.pid) == detached.pid
        assert detached.poll() is None
        detached.kill()


@pytest.mark.parametrize("words", [b"", b"x" * 300_000])
def test_run_to_end_passes_input_and_captures_outputs(words: bytes) -> None:
    late = "sleep 0.2; cat; echo error >&2; exit 3"
    for script in ("cat; echo error >&2; exit 3", late):
        done = run_to_end(
            ["sh", "-c", script], timeout_seconds=60, env=dict(os.environ), words=words
        )
        assert done == Captured(status=3, stdout=words, stderr=b"error\n")


@pytest.mark.parametrize("group", [True, False])
def test_run_to_end_waits_for_a_program_that_closes_its_pipes(group: bool) -> None:
    argv, env = ["sh", "-c", "exec <&- >&- 2>&-; sleep 0.3; exit 3"], dict(os.environ)
    done = run_to_end(argv, timeout_seconds=60, env=env, words=bytes(300_000), kill_group=group)
    assert done == Captured(status=3, stdout=b"", stderr=b"")
    with pytest.raises(TimeoutError, match=r"sh did not end within 0.1 s"):
        run_to_end(argv, timeout_seconds=0.1, env=env, kill_group=group)


def test_run_to_end_waits_for_background_processes_that_keep_the_outputs_open() -> None:
    script = "echo out; (sleep 0.3; echo later) & exit 3"
    done = run_to_end(["sh", "-c", script], timeout_seconds=60, env=dict(os.environ))
    assert done == Captured(status=3, stdout=b"out\nlater\n", stderr=b"")
    script = "setsid sh -c 'sleep 0.5; echo later' & sleep 0.2; echo out; exit 3"
    done = run_to_end(
        ["sh", "-c", script], timeout_seconds=60, env=dict(os.environ), kill_group=True
    )
    assert done == Captured(status=3, stdout=b"out\nlater\n", stderr=b"")


@pytest.mark.parametrize("open_ones", ["", " >&- 2>&-"])
@pytest.mark.parametrize("ends", [True, False])
def test_with_kill_group_nothing_outlives_the_program(
    tmp_path: Path, ends: bool, open_ones: str
) -> None:
    """Whether or not a background process keeps the outputs open."""
    place = tmp_path / "pid"
    begin = f"sleep 1000{open_ones} & echo $! >'{place}'"
    argv, env = (
        ["/bin/sh", "-c", f"{begin}; echo said; {'exit 3' if ends else 'wait'}"],
        dict(os.environ),
    )
    if ends:
        done = run_to_end(argv, timeout_seconds=60, env=env, kill_group=True)
        assert done == Captured(status=3, stdout=b"said\n", stderr=b"")
    else:
        with pytest.raises(TimeoutError, match=r"/bin/sh did not end within 0.3 s"):
            run_to_end(argv, timeout_seconds=0.3, env=env, kill_group=True)
    sleeping = Identity.of(int(place.read_text()))
    wait_until(lambda: sleeping is None or not sleeping.alive, what="all of it has ended")


INTERRUPTED = """
import os, sys
from teamd.programs import run_to_end
script = "read line; sleep 1000 & echo $! $$ >'%s'; wait" % sys.argv[1]
argv, env = ["/bin/sh", "-c", script], dict(os.environ)
run_to_end(argv, timeout_seconds=60, env=env, words=b"begin\\n", kill_group=True)
"""


def test_an_interrupt_kills_the_process_group(tmp_path: Path) -> None:
    """Ctrl-C in a terminal does not reach the group directly, since it is a separate one."""
    place = tmp_path / "pids"
    argv = [sys.executable, "-c", INTERRUPTED, str(place)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        wait_until(lambda: place.exists() and place.read_text(), what="it runs")
        begun = [Identity.of(int(pid)) for pid in place.read_text().split()]
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in complaint
    wait_until(lambda: not any(one is not None and one.alive for one in begun), what="they end")
