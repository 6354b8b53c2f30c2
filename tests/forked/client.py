"""Run commands as forks of a process that has already imported them, instead of starting Python."""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import marshal
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from tests.forked.server import COMMANDS, LOCK, PATH_VARIABLE, PRELOADED, PROGRAMS, SOCKET, STAY

SHARED_VARIABLE: Final = "TESTS_SHARE"  # a folder; empty: each process has its own server
SERVER: Final = Path(__file__).with_name("server.py")
_ROOM: Final = 1 << 15  # for the arguments and for the environment of a command, each
_START_SECONDS: Final = 300.0  # on a machine with a load of 20
_LONGEST_NAME: Final = 100  # slightly below the limit for a socket's name
# Variables that an interpreter reads only once, before a command starts.
_INTERPRETERS: Final = (
    *("PYTHON", "COVERAGE", "LANG", "LC_", "LD_", "FAKETIME", "DONT_FAKE", "MALLOC_"),
    *("ANTHROPIC_LOG", "OPENSSL_", "PYDANTIC_", "SSL"),
)

_INHERITED: Final = ("PYTHON", "COVERAGE")


class Written(NamedTuple):
    """The exit status and output of a command."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Forked:
    """A forked command.

    Attributes:
        pid: its process already looks like the command.
    """

    pid: int
    _channel: socket.socket

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the command to end; return its exit code, or minus the signal that killed it.

        Raises:
            TimeoutError: the command did not end in time.
        """
        self._channel.settimeout(max(timeout_seconds, 0.001))
        return int(_line(self._channel))

    def close(self) -> None:
        """Forget the command without waiting for it."""
        self._channel.close()


class Server:
    """A process that has imported the commands, with a small environment.

    Args:
        interpreters: the part of the environment that it keeps.
        folder: created here, and removed when the server ends.
        shared: whether other workers may use it.
        program: the path of the server's program.
    """

    def __init__(
        self,
        interpreters: Mapping[str, str],
        folder: Path,
        *,
        shared: bool,
        program: Path = SERVER,
    ) -> None:
        self._interpreters = dict(interpreters)
        self._folder = folder
        self._shared = shared
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        with folder.with_suffix(LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._control = self._join() or self._start()
        atexit.register(self.close)

    def _join(self) -> socket.socket | None:
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            control.connect(str(self._folder / SOCKET))
            control.sendall(STAY)
        except OSError:
            control.close()
            return None
        return control

    def _start(self) -> socket.socket:
        shutil.rmtree(self._folder, ignore_errors=True)  # left by a killed server
        self._folder.mkdir()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self._folder / SOCKET))
            listener.listen()
            given = (theirs.fileno(), listener.fileno())
            argv = [sys.executable, "-P", self._program, *given, self._folder, "x" * _ROOM]
            self._process = subprocess.Popen(
                [*map(str, argv)],
                env={**self._interpreters, "PATH": os.environ["PATH"], "ROOM": "x" * _ROOM},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=given,
            )
        return mine

    @cached_property
    def pid(self) -> int:
        return int(self._control.recv(16))

    @property
    def commands(self) -> Path:
        """A folder for PATH: its commands are forked once the server accepts requests."""
        return self._folder / COMMANDS

    def takes(self, argv: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a forked command behaves like a started one."""
        size = sum(len(key.encode()) + len(value.encode()) + 2 for key, value in env.items())
        interpreters = interpreters_part(env)
        path = interpreters.get(PATH_VARIABLE)
        own = self._interpreters
        if path is not None and Path(path, f"{PRELOADED}.py").exists():  # the child imports it
            own = own | {PATH_VARIABLE: path}
        return argv[0] in PROGRAMS and interpreters == own and size < _ROOM

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str,
        timeout_seconds: float,
        cwd: Path,
        env: Mapping[str, str],
    ) -> Written:
        """Run a command until it has ended and its output is closed.

        Raises:
            subprocess.TimeoutExpired: the command did not end in time, and was killed.
        """
        deadline = time.monotonic() + timeout_seconds
        (given, feed), (out, to_out), (err, to_err) = (os.pipe() for _ in range(3))
        feeding, stdout, stderr = _Feeding(feed, stdin.encode()), _Reading(out), _Reading(err)
        try:
            command = self.fork(argv, (given, to_out, to_err), cwd=cwd, env=env)
        finally:
            for fd in (given, to_out, to_err):
                os.close(fd)
        with closing(command):
            try:
                _talk((feeding, stdout, stderr), deadline)
                status = command.wait(deadline - time.monotonic())
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.kill(command.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([*argv], timeout_seconds) from None
        return Written(status, stdout.text, stderr.text)

    def fork(
        self,
        argv: Sequence[str],
        descriptors: Sequence[int],
        *,
        cwd: Path,
        env: Mapping[str, str],
        new_session: bool = False,
        terminal: bool = False,
    ) -> Forked:
        """Fork a command that has these descriptors as 0, 1, 2 and so on.

        With `terminal`, the first descriptor becomes the controlling terminal of a new session.
        """
        mine, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno(), *descriptors])
        wanted = {
            "argv": [*argv],
            "env": dict(env),
            "cwd": str(cwd),
            "new_session": new_session,
            "terminal": terminal,
        }
        mine.sendall(marshal.dumps(wanted))
        mine.shutdown(socket.SHUT_WR)
        mine.settimeout(_START_SECONDS)
        return Forked(int(_line(mine)), mine)

    def close(self) -> None:
        """End the server, unless other workers use it; running commands continue."""
        self._control.close()
        if self._process is not None and not self._shared:
            self._process.wait()


@cache
def server() -> Server:
    """Return this process's server, which is started on first use.

    Workers with a common folder share one server for each kind of interpreter.
    """
    interpreters = interpreters_part(os.environ, _INHERITED)
    above = os.environ.get(SHARED_VARIABLE, "")
    kind = hashlib.sha256(repr(sorted(interpreters.items())).encode()).hexdigest()[:8]
    folder = Path(above, f"forks-{kind}")
    if above and len(os.fsencode(folder / SOCKET)) < _LONGEST_NAME:
        return Server(interpreters, folder, shared=True)
    own = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Server(interpreters, Path(own, "forks"), shared=False)


def interpreters_part(
    env: Mapping[str, str], prefixes: tuple[str, ...] = _INTERPRETERS
) -> dict[str, str]:
    """Return the part of an environment that an interpreter reads only when it starts."""
    return {key: value for key, value in env.items() if key.startswith(prefixes)}


def _talk(pipes: Sequence[_Feeding | _Reading], deadline: float) -> None:
    """Write to a command and read its output at the same time, until the output ends.

    Raises:
        TimeoutError: the output did not end in time.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for pipe in pipes:
            stack.enter_context(pipe.file)
            selector.register(pipe.file, pipe.events, pipe)
        while selector.get_map():
            for pipe in _ready(selector, deadline):
                if not pipe.goes_on():
                    selector.unregister(pipe.file)
                    pipe.file.close()


def _ready(selector: selectors.BaseSelector, deadline: float) -> list[_Feeding | _Reading]:
    ready = selector.select(max(deadline - time.monotonic(), 0.0))
    if not ready:
        raise TimeoutError
    return [key.data for key, _ in ready]


class _Feeding:
    """The writing end of a command's standard input."""

    events = selectors.EVENT_WRITE

    def __init__(self, fd: int, given: bytes) -> None:
        self.file = open(fd, "wb", buffering=0)  # noqa: SIM115 -- closed by `_talk`
        self._left = given
        os.set_blocking(fd, False)

    def goes_on(self) -> bool:
        """Write the next part; return whether more is left."""
        if self._left:
            try:
                self._left = self._left[self.file.write(self._left) or 0 :]
            except BrokenPipeError:  # the reader has closed the pipe
                return False
        return bool(self._left)


class _Reading:
    """The reading end of a command's output."""

    events = selectors.EVENT_READ

    def __init__(self, fd: int) -> None:
        self.file = open(fd, "rb", buffering=0)  # noqa: SIM115 -- closed by `_talk`
        self._read = bytearray()

    def goes_on(self) -> bool:
        """Read the next part; return whether more may follow."""
        chunk = self.file.read(1 << 16)
        self._read += chunk
        return bool(chunk)

    @property
    def text(self) -> str:
        """Everything that was read, with newlines translated as in a text file."""
        return self._read.decode().replace("\r\n", "\n").replace("\r", "\n")


def _line(channel: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        part = channel.recv(1)
        assert part, f"the server of forked commands has gone: {bytes(line)!r}"
        line += part
    return bytes(line)


_FOR_EVER: Final = 1e6


class Begun(subprocess.Popen[str]):
    """A replacement for a text-mode `subprocess.Popen` that starts no program.

    Args:
        argv: the command line.
        streams: `stdin`, `stdout` and `stderr`, as for `subprocess.Popen`.
        terminal: whether it starts a session with its standard input as the terminal.
    """

    def __init__(
        self,
        argv: Sequence[str],
        streams: Mapping[str, Any],
        *,
        cwd: Path,
        env: Mapping[str, str],
        terminal: bool = False,
    ) -> None:
        self.args = argv
        self.returncode = None
        with ExitStack() as given:
            self.stdin, fd = _stream(streams.get("stdin"), 0, given)
            self.stdout, out = _stream(streams.get("stdout"), 1, given)
            self.stderr, err = _stream(streams.get("stderr"), 2, given)
            try:
                self._forked = server().fork(
                    argv, (fd, out, err), cwd=cwd, env=env, new_session=terminal, terminal=terminal
                )
            except BaseException:
                for mine in filter(None, (self.stdin, self.stdout, self.stderr)):
                    mine.close()
                raise
        self.pid = self._forked.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the command to end; return its exit status."""
        if self.returncode is None:
            try:
                self.returncode = self._forked.wait(_FOR_EVER if timeout is None else timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._forked.close()
        return self.returncode

    def communicate(
        self,
        input: str | None = None,  # noqa: A002 -- as its base has it
        timeout: float | None = None,
    ) -> tuple[Any, Any]:
        """Write to the command, read its output, and wait for it to end."""
        with ThreadPoolExecutor(2) as pool:
            read = [pool.submit(one.read) if one else None for one in (self.stdout, self.stderr)]
            try:
                if self.stdin:
                    with suppress(BrokenPipeError), self.stdin:
                        self.stdin.write(input or "")
                self.wait(timeout)
            except BaseException:
                self.kill()  # otherwise the threads would wait for ever
                raise
            said = [one and one.result() for one in read]
        return said[0], said[1]

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)


def _stream(wanted: Any, number: int, given: ExitStack) -> tuple[IO[str] | None, int]:
    """Return our end, if there is one, and the descriptor that the command gets."""
    if wanted == subprocess.PIPE:
        ends = os.pipe()
        mine, theirs = ends if number else reversed(ends)
        given.callback(os.close, theirs)
        return os.fdopen(mine, "r" if number else "w", encoding="utf-8"), theirs
    if wanted == subprocess.DEVNULL:
        nothing = os.open(os.devnull, os.O_RDWR)
        given.callback(os.close, nothing)
        return None, nothing
    if wanted is None:
        return None, number
    return None, wanted if isinstance(wanted, int) else wanted.fileno()
