"""Programs that end at once, for whoever has no loop to wait in."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from teamd.programs import JOIN, Captured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Final

_LISTEN_SECONDS: Final = 10.0


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

    Raises:
        TimeoutError: it was killed.
        OSError: it could not be started.
    """
    given: dict[str, Any] = {"input": words} if stdin is None else {"stdin": stdin}
    try:
        ended = subprocess.run(
            argv,
            **given,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            timeout=timeout_seconds,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{argv[0]} did not end within {timeout_seconds:g} s") from None
    return Captured(status=ended.returncode, stdout=ended.stdout or b"", stderr=ended.stderr)


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
