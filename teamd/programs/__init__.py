"""Starting other programs, always by exec; only this package does it.

`run_to_end` and, beside an asyncio loop, `capture` run a program to its end. `Program` runs in the
background; `Reaped` and `Sandboxed` also end its descendants. A program inherits no secrets unless
its caller passes them in `env`.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from teamd import secret_environment
from teamd.clocks import Deadline

if TYPE_CHECKING:
    import asyncio

Sink = Callable[[bytes], object]

# The beginnings of command lines, see `landlock` and `netns`.
_PYTHON: Final = (sys.executable, "-I", "-S")
CONFINED: Final = (*_PYTHON, str(Path(__file__).with_name("landlock.py")))
JOIN: Final = (*_PYTHON, str(Path(__file__).with_name("netns.py")))
_CAPTURED_BYTES: Final = 1 << 20
_CHUNK: Final = 1 << 16  # the size of a pipe
_LAST_CHUNKS: Final = 16  # read after the end; a process that has escaped may write forever
_POLL_SECONDS: Final = 0.02  # for systems without pidfds
_REAP_SECONDS: Final = 2.0  # SIGKILL ends a process at once, unless it waits for a broken disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The exit status of a program, or minus the signal that killed it, and its outputs."""

    status: int
    stdout: bytes
    stderr: bytes


def run_to_end(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: Path = Path("/"),
    words: bytes = b"",
    stdin: int | None = None,
    stdout: int | None = None,
    pass_fds: Sequence[int] = (),
    kill_group: bool = False,
) -> Captured:
    """Run a program and wait for its end, without an event loop.

    Background processes that keep its outputs open are waited for, unless they are killed.

    Args:
        argv: the program and its arguments.
        timeout_seconds: after which it is killed.
        env: the complete environment; otherwise that of this process, without secrets.
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
        env=_inherited() if env is None else env,
        cwd=cwd,
        pass_fds=pass_fds,
        process_group=0 if kill_group else None,
    )

    def kill(_: int = -1) -> None:
        """Kill the program unless it is reaped already, so that its pid is still its own."""
        if process.returncode is None:
            with suppress(ProcessLookupError):
                (os.killpg if kill_group else os.kill)(process.pid, signal.SIGKILL)

    with process:
        try:  # an interrupt may come at any moment
            deadline = Deadline.after(timeout_seconds)
            output, errors = _exchange(process, words, deadline, kill if kill_group else None)
            process.wait(max(0.0, deadline.left))
        except (TimeoutError, subprocess.TimeoutExpired):
            text = f"{argv[0]} did not end within {timeout_seconds:g} s"
            raise TimeoutError(text) from None
        finally:
            kill()
    return Captured(status=process.returncode, stdout=output, stderr=errors)


def _exchange(
    process: subprocess.Popen[bytes],
    words: bytes,
    deadline: Deadline,
    at_end: Callable[[int], None] | None,
) -> tuple[bytes, bytes]:
    """Write the input of a program and read its two outputs, until all pipes are closed.

    `Popen.communicate` would wait for background processes that are to be killed.

    Raises:
        TimeoutError: the deadline has passed.
    """
    chunks: dict[Any, list[bytes]] = {process.stdout: [], process.stderr: []}
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        for pipe in filter(None, chunks):
            selector.register(pipe, selectors.EVENT_READ, partial(_read_chunk, chunks[pipe]))
        if process.stdin is not None:
            write = partial(_write_chunk, bytearray(words))
            selector.register(process.stdin, selectors.EVENT_WRITE, write)
        if at_end and (pidfd := _open_pidfd(process.pid)) is not None:
            selector.register(opened.enter_context(FileIO(pidfd)), selectors.EVENT_READ, at_end)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline.left))
            if not ready and deadline.left <= 0:
                raise TimeoutError
            for key, _ in ready:
                if not key.data(key.fd):
                    file: Any = key.fileobj
                    selector.unregister(file)
                    file.close()
    output, errors = map(b"".join, chunks.values())
    return output, errors


def _read_chunk(chunks: list[bytes], fd: int) -> bool:
    """Read from a pipe; return whether there is more to come."""
    chunks.append(os.read(fd, _CHUNK))
    return bool(chunks[-1])


def _write_chunk(unwritten: bytearray, fd: int) -> bool:
    with suppress(BrokenPipeError):  # a program need not read its input
        del unwritten[: os.write(fd, unwritten[: select.PIPE_BUF])]
        return bool(unwritten)
    return False


async def capture(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    bound: bool = False,
) -> Captured:
    """Run a program to its end, beside an asyncio loop; its process group ends with it.

    If `bound`, it also ends when this process is killed; a daemon that it started stays.

    Returns:
        The status and the first MiB of each output.

    Raises:
        TimeoutError: it did not end in time, and was killed.
        OSError: it could not be started.
    """
    import asyncio  # noqa: PLC0415 -- see Program

    from teamd.programs.reaped import Reaped  # noqa: PLC0415 -- imports asyncio

    stdout, stderr = _Head(), _Head()
    kind = partial(Reaped, daemons=True) if bound else Program
    with kind(
        argv, output=stdout.take, errors=stderr.take, cwd=cwd, env=env, pass_fds=pass_fds
    ) as program:
        try:
            async with asyncio.timeout(timeout_seconds):
                status = await program.wait()
        except TimeoutError:
            raise TimeoutError(f"{argv[0]} did not end within {timeout_seconds:g} s") from None
        program.drain()
    return Captured(status=status, stdout=bytes(stdout.kept), stderr=bytes(stderr.kept))


def start_detached(
    argv: Sequence[str], *, cwd: Path, pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a program that outlives this process, and shares its standard error."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        argv,
        stdin=nothing,
        stdout=nothing,
        cwd=cwd,
        env=_inherited(),
        pass_fds=pass_fds,
        start_new_session=True,
    )


def feed(command: str, chunks: Iterable[bytes], *, env: Mapping[str, str]) -> None:
    """Pipe text to a pager, which is a shell command, and wait until the person has quit it.

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


class Program:
    """A program that runs beside the loop; leaving the `with` block kills its process group.

    Until then it is not reaped, so that its pid and the id of its group stay its own. It has a
    session of its own. Unlike asyncio's subprocesses it needs no thread, which the agent's process
    must not have.

    Args:
        output: gets standard output in chunks.
        errors: gets standard error; without it `output` gets both, in the order written.
        env: the complete environment; otherwise that of this process, without secrets.
        stdin: a descriptor; otherwise there is no input.

    Raises:
        OSError: it could not be started.
        ValueError: an argument holds a NUL.
    """

    # All programs of this process: `Reaped` spares them when it kills orphans.
    live: ClassVar[set[Program]] = set()

    def __init__(
        self,
        argv: Sequence[str],
        *,
        output: Sink,
        errors: Sink | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        import asyncio  # noqa: PLC0415 -- teamctl imports this module and never needs a loop

        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._popen = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors is None else subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=_inherited() if env is None else env,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self.pid: Final = self._popen.pid
        self.live.add(self)
        self._outlets = [
            _Outlet(self._loop, stream.fileno(), sink)
            for stream, sink in ((self._popen.stdout, output), (self._popen.stderr, errors))
            if stream and sink
        ]
        self._pidfd = _open_pidfd(self.pid)
        if self._pidfd is None:
            self._look()
        else:
            self._loop.add_reader(self._pidfd, self._note_end)

    async def wait(self) -> int:
        """Wait for its end, and return the exit status, or minus the killing signal.

        Background processes may keep its outputs open longer.
        """
        await self._ended.wait()
        return self._status()

    def kill_group(self, number: signal.Signals) -> None:
        """Signal its process group, which may be empty."""
        # macOS answers EPERM for a group of zombies.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def drain(self) -> None:
        """Read the rest of the outputs, without waiting for processes that keep them open."""
        for outlet in self._outlets:
            outlet.drain()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._note_end()
        for outlet in self._outlets:
            outlet.close()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP_SECONDS)
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe:
                pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self.live.discard(self)

    def _kill(self) -> None:
        self.kill_group(signal.SIGKILL)

    def _find_end(self) -> int | None:
        """Return the exit status, or minus the killing signal; `None` while it runs."""
        if self._pidfd is None or self._popen.returncode is not None:
            return self._popen.poll()
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)  # not reaped
        if end is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def _status(self) -> int:
        status = self._find_end()
        return -signal.SIGKILL if status is None else status  # None: it outlives even SIGKILL

    def _note_end(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)  # it stays readable for ever
        self._ended.set()

    def _look(self) -> None:
        if self._popen.poll() is not None:
            self._note_end()
        elif not self._ended.is_set():
            self._loop.call_later(_POLL_SECONDS, self._look)


class _Outlet:
    """The readable end of a program's pipe; passes chunks on as the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, sink: Sink) -> None:
        self._loop = loop
        self._fd = fd
        self._sink = sink
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._take)

    def _take(self) -> bool:
        try:
            chunk = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        self._sink(chunk)
        return True

    def drain(self) -> None:
        for _ in range(_LAST_CHUNKS):
            if not self._take():
                return

    def close(self) -> None:
        self._loop.remove_reader(self._fd)


def _inherited() -> dict[str, str]:
    """Return this process's environment without secrets."""
    return secret_environment.split(os.environ)[0]


def _open_pidfd(pid: int) -> int | None:
    with suppress(AttributeError, OSError):  # macOS; an old kernel; a container that forbids it
        return os.pidfd_open(pid)
    return None


class _Head:
    """The first bytes of an output."""

    def __init__(self) -> None:
        self.kept = bytearray()

    def take(self, chunk: bytes) -> None:
        self.kept += chunk[: _CAPTURED_BYTES - len(self.kept)]
