"""A program that has imported the commands, and forks a process for each command.

`python server.py FD LISTENER FOLDER ROOM …`: FD is a datagram socket. Each packet carries
descriptors: a socket, then the command's 0, 1, 2 and so on. The child reads its arguments and
environment from that socket and sends its pid once it looks like the command; the server sends its
exit status.

LISTENER is a named socket in the folder. A client that connects and sends `stay` gets a socket like
FD; the first packet to each is the server's pid. The server ends when all of these sockets are
closed.

A forked child differs from an installed command in two ways: modules are already loaded, and it is
this server's child. Directory, environment (also in /proc), descriptors, signals, session, standard
streams and exit are those of a started process.

If such a command starts `teamd`, that process is forked as well, see `interpreter`: it connects to
the named socket and ends when the command ends. It passes on its umask, but no limits.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import marshal
import os
import pkgutil
import select
import shutil
import signal
import socket
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn

PROGRAMS: Final = {"teamd": "teamd.__main__", "teamctl": "teamctl.main"}
COMMANDS: Final = "commands"  # a folder for a shell's PATH
SOCKET: Final = "socket"
LOCK: Final = ".lock"  # next to the folder: held by connecting clients and by a server that ends
STAY: Final = b"stay"
PATH_VARIABLE: Final = "PYTHONPATH"
PRELOADED: Final = "sitecustomize"
MOST_DESCRIPTORS: Final = 16
_PATH_BEFORE: Final = os.environ.get(PATH_VARIABLE)
_INTERPRETER: Final = Path(__file__).with_name("interpreter.py")
_PACKET: Final = 16
_ARGUMENTS: Final = (48, 49)  # the fields of /proc/PID/stat with the range of the arguments
_ENVIRONMENT: Final = (50, 51)
_FIRST_FIELD: Final = 3  # the first field after the program's name
_ALL_DESCRIPTORS: Final = 1 << 20
_OUT_OF_THE_WAY: Final = 100
# Modules that are imported lazily, but which nearly every command needs in the end.
_LATE: Final = ("concurrent.futures.thread", "encodings.utf_8_sig", "psutil")


def load() -> None:
    """Import all modules that a command may import, unless they depend on the environment."""
    for package in ("teamctl", "teamd"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for late in ("teamd.__main__", *_LATE):
        with suppress(ModuleNotFoundError):  # one of them exists only on Linux
            importlib.import_module(late)
    from teamd import tools  # noqa: PLC0415 -- this program imports at its time
    from teamd.models import claude  # noqa: PLC0415
    from teamd.sandbox import bubblewrap  # noqa: PLC0415

    tools.warm_up()
    claude.Claude.warm_up()
    bubblewrap.build_base("bwrap")  # slow: searches all of /etc
    gc.collect()
    gc.freeze()


class Server:
    """Forks commands until all its clients have disconnected.

    Args:
        control: the socket of the tests that started the server.
        listener: for other clients, and for programs that the server's commands start.
        folder: gets the interpreter of the forked commands; removed at the end.
    """

    def __init__(self, control: socket.socket, listener: socket.socket, folder: Path) -> None:
        self._listener = listener
        self._folder = folder
        self._interpreter = _write_interpreter(folder)
        self._staying: dict[int, socket.socket] = {}
        self._asking: dict[int, socket.socket] = {}
        self._bound: dict[int, int] = {}
        self._poll = select.poll()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for fd in (listener.fileno(), self._reader):
            self._poll.register(fd, select.POLLIN)
        self._let_stay(control)

    def serve(self) -> None:
        """Fork a child for each packet; return when all sockets are closed."""
        while self._staying or not self._leave():
            for fd, _ in self._poll.poll():
                self._look_at(fd)

    def _look_at(self, fd: int) -> None:
        if fd == self._reader:
            with suppress(BlockingIOError):
                os.read(self._reader, 4096)
            self._reap()
        elif fd == self._listener.fileno():
            self._accept()
        elif fd not in self._staying:
            self._kill_bound(fd)
        elif not self._take(self._staying[fd]):
            self._poll.unregister(fd)
            self._staying.pop(fd).close()

    def _accept(self) -> None:
        asking = self._listener.accept()[0]
        if asking.recv(len(STAY), socket.MSG_PEEK) == STAY:
            asking.recv(len(STAY))
            self._let_stay(asking)
            return
        with asking:
            self._take(asking, bound=True)

    def _let_stay(self, asking: socket.socket) -> None:
        self._staying[asking.fileno()] = asking
        self._poll.register(asking, select.POLLIN)
        with suppress(OSError):  # already closed; the next poll reports it
            asking.sendall(b"%d" % os.getpid())

    def _leave(self) -> bool:
        """Remove the socket, unless a client has just connected."""
        with self._folder.with_suffix(LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if select.select([self._listener], [], [], 0)[0]:
                return False
            shutil.rmtree(self._folder, ignore_errors=True)
            return True

    def _take(self, control: socket.socket, *, bound: bool = False) -> bool:
        try:
            packet, fds, _, _ = socket.recv_fds(control, _PACKET, 1 + MOST_DESCRIPTORS)
        except ConnectionResetError:  # a client closed it without reading the server's pid
            return False
        if not packet:
            return False
        asking, *given = fds
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, self._interrupted)  # as in this program
            be_command(asking, given, self._interpreter)
        for fd in given:
            os.close(fd)
        self._asking[pid] = socket.socket(fileno=asking)
        if bound:
            self._bound[asking] = pid
            self._poll.register(asking, 0)  # a hang-up is reported without any event flag
        return True

    def _kill_bound(self, asking: int) -> None:
        """Kill the command of a client that has died, unless the command has just ended."""
        pid = self._bound.pop(asking, None)
        if pid is not None:
            self._poll.unregister(asking)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._asking:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with (
                self._asking.pop(pid) as asking,
                suppress(OSError),
            ):  # the client has gone
                if self._bound.pop(asking.fileno(), None) is not None:
                    self._poll.unregister(asking)
                asking.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _write_interpreter(folder: Path) -> str:
    """Write the replacement for Python into a folder without other programs."""
    path, commands = folder / "interpreter", folder / COMMANDS
    commands.mkdir()
    for name in PROGRAMS:
        (commands / name).symlink_to(path)
    source = _INTERPRETER.read_text(encoding="utf-8")
    path.write_text(f"#!{sys.executable} -IS\n{source}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def be_command(asking: int, given: list[int], interpreter: str) -> NoReturn:
    """Become the requested command; never returns into the server."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Move them out of the way of the descriptor numbers that the command needs.
        asking, *given = (
            fcntl.fcntl(fd, fcntl.F_DUPFD, _OUT_OF_THE_WAY) for fd in (asking, *given)
        )
        with socket.socket(fileno=asking) as channel:
            wanted = marshal.loads(channel.makefile("rb").read())
            if wanted["new_session"]:
                os.setsid()
            os.chdir(wanted["cwd"])
            if "umask" in wanted:
                os.umask(wanted["umask"])
            _put_descriptors(wanted.get("numbers") or range(len(given)), given, channel.fileno())
            if wanted.get("terminal"):
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # its keys send signals
            _put_environment(wanted["argv"], wanted["env"])
            time.tzset()
            _preload()
            channel.sendall(b"%d\n" % os.getpid())
        _open_streams()
        tempfile.tempdir = None
        program, *arguments = wanted["argv"]
        sys.argv = [shutil.which(program) or program, *arguments]
        if "--foreground" not in arguments:  # a supervisor starts other programs with the real one
            sys.executable = interpreter
        code = _run(PROGRAMS[program])
    finally:
        os._exit(code)


def _put_descriptors(numbers: Sequence[int], given: Sequence[int], kept: int) -> None:
    """Move the given descriptors to these numbers and close all others except `kept`."""
    for number, fd in zip(numbers, given, strict=True):
        os.dup2(fd, number)
    for low, high in pairwise([-1, *sorted((*numbers, kept)), _ALL_DESCRIPTORS]):
        if low + 1 < high:  # closerange treats an empty range from 0 as everything
            os.closerange(low + 1, high)


def _put_environment(argv: list[str], env: dict[str, str]) -> None:
    """Set the environment and the command line, in /proc as well."""
    os.environ.clear()  # the C library no longer points into that memory
    pairs = [f"{key}={value}" for key, value in env.items()]
    for place, words in ((_ARGUMENTS, argv), (_ENVIRONMENT, pairs)):
        begin, end = map(_stat, place)
        block = b"".join(os.fsencode(word) + b"\0" for word in words)
        room = end - begin
        ctypes.memmove(begin, block[: room - 1].ljust(room, b"\0"), room)
    os.environ.update(env)


def _preload() -> None:
    """Import the modules that an interpreter with this environment imports at startup."""
    folder = os.environ.get(PATH_VARIABLE)
    if folder is not None and folder != _PATH_BEFORE:
        sys.path.insert(0, folder)
        sys.modules.pop(PRELOADED, None)
        importlib.import_module(PRELOADED)


def _stat(field: int) -> int:
    after_name = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    return int(after_name[field - _FIRST_FIELD])


def _open_streams() -> None:
    """Reopen the standard streams: same environment as the server's, but other files."""
    stdin, stdout, stderr = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.__stdin__ = _stream(stdin, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(stdout, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(stderr, "w", line_buffering=True)  # type: ignore[misc]


def _stream(old: object, mode: str, *, line_buffering: bool = False) -> io.TextIOWrapper:
    assert isinstance(old, io.TextIOWrapper)
    raw = open(old.fileno(), f"{mode}b", closefd=False)  # noqa: SIM115 -- for good
    return io.TextIOWrapper(
        raw,
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=line_buffering or raw.isatty(),
    )


def _run(module: str) -> int:
    """Run a program's `main` and end as an interpreter does; returns the exit code."""
    code: object = 0
    try:
        sys.modules[module].main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 -- the edge of the process
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120  # Python's exit code if flushing fails
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    load()
    first, named = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
    Server(first, named, Path(sys.argv[3])).serve()
