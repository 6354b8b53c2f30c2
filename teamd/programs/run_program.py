"""Runs programs to their end, for callers without an event loop."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Final, Self

from teamd.clocks import Deadline
from teamd.programs import Captured

_CHUNK_BYTES: Final = 1 << 16


def run_to_end(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str],
    cwd: Path = Path("/"),
    words: bytes = b"",
    stdin: int | None = None,
    stdout: int | None = None,
    pass_fds: Sequence[int] = (),
    kill_group: bool = False,
) -> Captured:
    """Run a program and wait for its end, without an event loop.

    Background processes that keep its outputs open are waited for.

    Args:
        argv: the program and its arguments.
        timeout_seconds: after which it is killed.
        env: the complete environment.
        cwd: the working directory.
        words: standard input, unless `stdin` is given.
        stdin: a descriptor.
        stdout: a descriptor; otherwise standard output is captured.
        pass_fds: further descriptors to pass on.
        kill_group: whether its process group ends with it.

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
        process_group=0 if kill_group else None,
    )
    with process:
        try:  # an interrupt may come at any moment
            with _Exchange(process, words, kill_group=kill_group) as exchange:
                output, errors = exchange.run(Deadline.after(timeout_seconds))
        except (TimeoutError, subprocess.TimeoutExpired):
            text = f"{argv[0]} did not end within {timeout_seconds:g} s"
            raise TimeoutError(text) from None
        finally:
            _kill(process, group=kill_group)
    return Captured(status=process.returncode, stdout=output, stderr=errors)


class _Exchange:
    """Writes the input of a program and reads its outputs, until all pipes are closed.

    `Popen.communicate` would wait for background processes that are to be killed.
    """

    def __init__(self, process: subprocess.Popen[bytes], words: bytes, *, kill_group: bool) -> None:
        self._process, self._unwritten = process, memoryview(words)
        self._chunks: dict[Any, list[bytes]] = {process.stdout: [], process.stderr: []}
        self._end: FileIO | None = None  # readable once the program has ended
        if kill_group:
            with suppress(OSError, AttributeError):  # macOS has no pidfds
                self._end = FileIO(os.pidfd_open(process.pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._end is not None:
            self._end.close()

    def run(self, deadline: Deadline) -> tuple[bytes, bytes]:
        """Return the two outputs of the program.

        Raises:
            TimeoutError, subprocess.TimeoutExpired: the deadline has passed.
        """
        process, read = self._process, selectors.EVENT_READ
        with selectors.DefaultSelector() as selector:
            for pipe in filter(None, (process.stdout, process.stderr, self._end)):
                selector.register(pipe, read)
            if process.stdin is not None:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline.left))
                if not ready and deadline.left <= 0:
                    raise TimeoutError
                for key, _ in ready:
                    file: Any = key.fileobj
                    if not self._transfer(file):
                        selector.unregister(file)
                        file.close()
        process.wait(max(0.0, deadline.left))
        output, errors = map(b"".join, self._chunks.values())
        return output, errors

    def _transfer(self, file: Any) -> bool:
        """Read or write a chunk; return whether there is more to come."""
        fd: int = file.fileno()
        if file is self._process.stdin:
            with suppress(BrokenPipeError):  # a program need not read its input
                self._unwritten = self._unwritten[
                    os.write(fd, self._unwritten[: select.PIPE_BUF]) :
                ]
                return bool(self._unwritten)
        elif file is self._end:
            _kill(self._process, group=True)
        elif chunk := os.read(fd, _CHUNK_BYTES):
            self._chunks[file].append(chunk)
            return True
        return False


def _kill(process: subprocess.Popen[bytes], *, group: bool) -> None:
    """Kill a program that is not reaped yet, so that its pid is still its own."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)


def feed(command: str, chunks: Iterable[bytes], *, env: Mapping[str, str]) -> None:
    """Pipe text to a pager, which is a shell command, and wait until the person has left it.

    Raises:
        OSError: it could not be started.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
    try:
        with subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, env=env) as pager:
            assert pager.stdin is not None  # noqa: S101 -- as asked for
            with suppress(BrokenPipeError), pager.stdin:
                for chunk in chunks:
                    pager.stdin.write(chunk)
    finally:
        signal.signal(signal.SIGINT, before)
