"""Programs that end at once, for whoever has no loop to wait in."""

from __future__ import annotations

import errno
import os
import select
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Final, Self

from teamd.clocks import Deadline
from teamd.programs import JOIN, Captured

_LISTEN_SECONDS: Final = 10.0
_MOST_AT_ONCE: Final = 1 << 16


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
        whole: whether nothing that it has started in its process group outlives it, where the
            system tells of its end. Else what is left may keep its outputs open, and is waited for.

    Raises:
        TimeoutError: it was killed.
        OSError: it could not be started.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        pass_fds=pass_fds,
        process_group=0 if whole else None,
    )
    with process:
        try:  # an interrupt may come at any moment
            with _Exchange(process, words, whole=whole) as exchange:
                said, complaint = exchange.run(Deadline.after(timeout_seconds))
        except (TimeoutError, subprocess.TimeoutExpired):
            text = f"{argv[0]} did not end within {timeout_seconds:g} s"
            raise TimeoutError(text) from None
        finally:
            _kill(process, whole=whole)
    return Captured(status=process.returncode, stdout=said, stderr=complaint)


class _Exchange:
    """What a program is given and says, until it has ended and all is closed.

    `Popen.communicate` would wait for those whom the program has left behind, see `run_to_end`.
    """

    def __init__(self, process: subprocess.Popen[bytes], words: bytes, *, whole: bool) -> None:
        self._process, self._left = process, memoryview(words)
        self._heard: dict[Any, list[bytes]] = {process.stdout: [], process.stderr: []}
        self._end: FileIO | None = None  # readable once the program has ended
        if whole:
            with suppress(OSError, AttributeError):  # nothing tells of it, as on macOS
                self._end = FileIO(os.pidfd_open(process.pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._end is not None:
            self._end.close()

    def run(self, deadline: Deadline) -> tuple[bytes, bytes]:
        """Return what it has written to its two outputs.

        Raises:
            TimeoutError, subprocess.TimeoutExpired: the time is over.
        """
        process, read = self._process, selectors.EVENT_READ
        with selectors.DefaultSelector() as selector:
            for output in filter(None, (process.stdout, process.stderr, self._end)):
                selector.register(output, read)
            if process.stdin is not None:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline.left))
                if not ready and deadline.left <= 0:
                    raise TimeoutError
                for key, _ in ready:
                    file: Any = key.fileobj
                    if not self._go_on(file):
                        selector.unregister(file)
                        file.close()
        process.wait(max(0.0, deadline.left))
        said, complaint = map(b"".join, self._heard.values())
        return said, complaint

    def _go_on(self, file: Any) -> bool:
        """Do what a file is ready for; return whether there is more to do."""
        fd: int = file.fileno()
        if file is self._process.stdin:
            with suppress(BrokenPipeError):  # it reads no more, which is its own business
                self._left = self._left[os.write(fd, self._left[: select.PIPE_BUF]) :]
                return bool(self._left)
        elif file is self._end:
            _kill(self._process, whole=True)  # it has ended, and is not reaped yet
        elif part := os.read(fd, _MOST_AT_ONCE):
            self._heard[file].append(part)
            return True
        return False


def _kill(process: subprocess.Popen[bytes], *, whole: bool) -> None:
    """Kill a program that is not reaped yet, with its process group if that is its own."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            (os.killpg if whole else os.kill)(process.pid, signal.SIGKILL)


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
