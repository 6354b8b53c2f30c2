"""The supervisor as a service: started in the background, notified about, stopped by signals."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import click
from teamd_commands import command_line

from teamd import secret_environment
from teamd.errors import DeadlinePassed, ExitCode, StoreError, StrangeFile
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import safe_open
from teamd.process_id import Identity
from teamd.team import teams

READY: Final = b"ready\n"
START_SECONDS: Final = 60.0
# Each is printed so many seconds after the one before, until the supervisor is ready.
_PROGRESS: Final = (
    (0.5, "starting …"),
    (9.5, "still starting; `teamctl logs teamd` shows what it does"),
)
_STANDARD_ERROR: Final = 2
_PAUSE_SECONDS: Final = 0.01
_INSISTENCE: Final = 0.8  # of the time of a stop; then a second signal is sent
_KILL_SECONDS: Final = 5.0


def notify(state: str) -> None:
    """Send the service manager, if there is one, `READY=1`, `STOPPING=1` or `WATCHDOG=1`.

    The protocol is that of sd_notify(3): a datagram to the socket that `NOTIFY_SOCKET` names.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract namespace
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        manager.sendto(state.encode(), address)


def watchdog_seconds() -> float | None:
    """Return how often to notify the service manager: in half of the time after which it kills us.

    It is `None` if no service manager waits for that, see sd_watchdog_enabled(3).
    """
    try:
        seconds = int(os.environ["WATCHDOG_USEC"]) / 1_000_000
    except (KeyError, ValueError):
        return None
    meant = os.environ.get("WATCHDOG_PID")
    return seconds / 2 if seconds > 0 and meant in (None, str(os.getpid())) else None


def start_in_background(
    paths: TeamPaths, config: Path | None, *, meanwhile: Callable[[], object] = lambda: None
) -> int:
    """Start a supervisor that outlives this terminal; return once it serves requests.

    Args:
        paths: the team.
        config: the settings file, if the person named one.
        meanwhile: called while it starts.

    Returns:
        The exit code: 0 when it is ready, else that of the supervisor, which has printed an error
        to this process's standard error.
    """
    from teamd import programs  # noqa: PLC0415 -- only a start needs subprocess

    reader, writer = os.pipe()
    arguments = ["start", "--foreground", "--ready-fd", str(writer), "--team-dir", str(paths.root)]
    if config is not None:
        arguments += ["--config", str(config)]
    with secret_environment.handed_over(os.environ) as secrets:
        argv = _command(arguments, secrets)
        child = programs.start_detached(argv, cwd=paths.home, pass_fds=(writer, secrets))
    os.close(writer)
    try:
        meanwhile()
        readable = _wait_for_ready(reader)
    except BaseException:  # such as a Ctrl-C: a failed start leaves no process
        child.kill()
        child.wait()
        raise
    said = os.read(reader, len(READY)) if readable else b""
    os.close(reader)
    if said == READY:
        return ExitCode.DONE
    if not readable:
        child.kill()
        raise DeadlinePassed(f"teamd was not ready within {START_SECONDS:g} s and was ended")
    return child.wait() or ExitCode.REFUSED


def _wait_for_ready(reader: int) -> bool:
    """Wait until it is ready or has ended; on a terminal, print progress.

    Returns:
        Whether it was ready or ended in time.
    """
    left = START_SECONDS
    for seconds, said in _PROGRESS if sys.stderr.isatty() else ():
        if select.select([reader], [], [], seconds)[0]:
            return True
        left -= seconds
        click.echo(f"teamd: {said}", err=True)
    return bool(select.select([reader], [], [], left)[0])


def execute_again() -> NoReturn:
    """Execute the present command again in this process, with its secrets in memory only."""
    plain, _ = secret_environment.split(os.environ)
    with secret_environment.handed_over(os.environ) as secrets:
        os.set_inheritable(secrets, True)
        os.execve(sys.executable, _command(sys.argv[1:], secrets), plain)  # noqa: S606 -- itself


def leave_terminal(paths: TeamPaths) -> None:
    """Redirect standard error, to which Python prints fatal errors, from the terminal to a file.

    Otherwise the terminal, `ssh` or a pipe would wait for as long as this process lives.
    """
    try:
        file = safe_open(paths.last_words, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except (OSError, StrangeFile):  # the file is not worth a failure
        file = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(file, _STANDARD_ERROR)
    os.close(file)


def stop(paths: TeamPaths, *, timeout_seconds: float) -> bool:
    """End the supervisor and all processes under it.

    Other teams of the project live on, even one whose supervisor an agent of this team started.

    Returns:
        Whether it did not end by itself after the first signal.

    Raises:
        NoTeamd: none runs.
        StoreError: a process could not be killed.
    """
    supervisor = pidfile.check(paths)
    begun = time.monotonic()
    if not supervisor.signal(signal.SIGTERM):  # it has just ended
        return False
    if _has_ended(supervisor, begun + _INSISTENCE * timeout_seconds):
        return False
    if not supervisor.signal(signal.SIGTERM):
        return False
    if not _has_ended(supervisor, begun + timeout_seconds):
        _kill_tree(supervisor, _spared(supervisor, paths))
    return True


def _command(arguments: Sequence[str], secrets: int) -> list[str]:
    handed_over = [secret_environment.OPTION, str(secrets)]
    return [*command_line("teamd"), *arguments, *handed_over]


def _spared(root: Identity, paths: TeamPaths) -> set[int]:
    """Return the pids of other teams' supervisors; if they cannot be read, all pids under this one.

    Its teammates and their commands die with it in any case.
    """
    with suppress(StoreError):
        return teams.supervisors(paths.home) - {root.pid}
    return _pids_under(root.pid)


def _has_ended(process: Identity, deadline: float) -> bool:
    while process.alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _kill_tree(root: Identity, spare: set[int]) -> None:
    """Kill a process and its descendants, except the spared ones and their descendants."""
    under = [root, *_descendants(root, spare)]
    for process in under:
        process.signal(signal.SIGSTOP)  # a stopped process cannot fork
    under = [*_descendants(root, spare), *under]
    for process in under:
        process.signal(signal.SIGKILL)
    deadline = time.monotonic() + _KILL_SECONDS
    left = [process.pid for process in under if not _has_ended(process, deadline)]
    if left:
        raise StoreError(f"these processes cannot be killed: {left}; only a reboot can end them")


def _descendants(root: Identity, spare: set[int]) -> list[Identity]:
    under = _pids_under(root.pid)
    inner = spare & under  # this process may itself be under another supervisor
    found = map(Identity.of, under - inner.union(*map(_pids_under, inner)))
    return [process for process in found if process is not None]


def _pids_under(pid: int) -> set[int]:
    import psutil  # noqa: PLC0415 -- only a forced stop needs it

    with suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()
