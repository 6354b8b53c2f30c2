"""Programs that end at once, for whoever has no loop to wait in."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from teamd.clocks import Deadline
from teamd.programs import JOIN, Captured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Final

_LISTEN_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0  # an output may stay open when its program has ended


def run_briefly(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> tuple[int, str]:
    """Run a program that ends at once, and wait for it; for whoever has no loop.

    Returns:
        Its exit status, or a negative one where it did not come to its end, and its output.
    """
    return begin_briefly(argv, timeout_seconds=timeout_seconds, env=env, pass_fds=pass_fds)()


def begin_briefly(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> Callable[[], tuple[int, str]]:
    """Start a program that ends at once; return what waits for it, and returns as `run_briefly`.

    It gets `timeout_seconds` from then on.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={} if env is None else env,
            cwd="/",
            pass_fds=pass_fds,
        )
    except OSError as error:
        refused = str(error)
        return lambda: (-1, refused)

    def end() -> tuple[int, str]:
        with process:
            try:
                said, _ = process.communicate(timeout=timeout_seconds)
            except subprocess.TimeoutExpired as error:
                return -1, str(error)
            finally:
                process.kill()  # which one that has ended does not notice
        return process.returncode, said.decode(errors="replace")

    return end


def run_to_end(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: Path = Path("/"),
    env: Mapping[str, str],
    words: bytes = b"",
    stdin: int | None = None,
    stdout: int | None = None,
    pass_fds: Sequence[int] = (),
    whole: bool = False,
) -> Captured:
    """Run a program, and wait for its end; for whoever has no loop.

    Args:
        argv: the program and its arguments.
        timeout_seconds: after which it is killed.
        cwd: where it works.
        env: its complete environment.
        words: its standard input, unless `stdin` is given.
        stdin: a descriptor.
        stdout: a descriptor; otherwise what it writes is returned.
        pass_fds: descriptors that it gets besides.
        whole: whether nothing that it has started in its process group outlives it. Else what is
            left may keep its output open, and that is waited for.

    Raises:
        TimeoutError: it was killed.
        OSError: it could not be started.
    """
    with ExitStack() as stack:
        if stdin is None:
            stdin = stack.enter_context(_to_read(words))
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            process_group=0 if whole else None,
        )
        stack.enter_context(process)
        stack.callback(_kill, process, whole=whole)
        deadline = Deadline.after(timeout_seconds)
        while (left := deadline.left) > 0:
            try:
                said, complaint = process.communicate(timeout=min(left, _LOOK_SECONDS))
            except subprocess.TimeoutExpired:
                if whole and _has_ended(process):
                    _kill(process, whole=True)
            else:
                return Captured(status=process.returncode, stdout=said or b"", stderr=complaint)
        raise TimeoutError(f"{argv[0]} did not end within {timeout_seconds:g} s")


@contextmanager
def _to_read(words: bytes) -> Iterator[int]:
    """Yield a descriptor from which a program reads these words, however late it does."""
    if not words:
        yield subprocess.DEVNULL
        return
    import tempfile  # noqa: PLC0415 -- most get none

    with tempfile.TemporaryFile() as file:
        file.write(words)
        file.seek(0)
        yield file.fileno()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a program has ended; it is not reaped, and keeps its number."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


def _kill(process: subprocess.Popen[bytes], *, whole: bool) -> None:
    """Kill a program that is not reaped yet, and its process group, if it has one of its own."""
    if whole and process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def feed(command: str, chunks: Iterable[bytes], *, env: Mapping[str, str]) -> None:
    """Give a pager, a command for the shell, what it is to show; wait until it was left.

    Raises:
        OSError: it could not be started.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager's own, while it runs
    try:
        with subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, env=env) as pager:
            assert pager.stdin is not None  # noqa: S101 -- as asked for
            with suppress(BrokenPipeError), pager.stdin:
                for chunk in chunks:
                    pager.stdin.write(chunk)
    finally:
        signal.signal(signal.SIGINT, before)


def listen_in_namespace(pid: int, port: int) -> socket.socket:
    """Return a socket that listens on the loopback address of a process's network, see `netns`.

    Raises:
        OSError: it cannot be made.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_LISTEN_SECONDS)
        fd = theirs.fileno()
        argv = [*JOIN, str(pid), "0", "listen", str(port), str(fd)]
        status, said = run_briefly(argv, timeout_seconds=_LISTEN_SECONDS, pass_fds=[fd])
        if status != 0:
            raise OSError(errno.EPERM, f"no proxy in the sandbox: {said.strip()[-200:]}")
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fds[0])
