"""Forking a process, and the trial fork of a start: only this module forks and calls prctl(2)."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from teamd.errors import TeamError, explain_limit
from teamd.process_id import Identity
from teamd.team.states import ChildExit, ChildStart

if TYPE_CHECKING:
    from teamd.settings.roles import Role


_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_KEYCTL: Final = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING: Final = 1
_TRIAL_SECONDS: Final = 20.0  # less than a start may take, see `service`
_MOST_BYTES: Final = 4096
_RESET: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass(frozen=True, slots=True)
class CheckStart:
    """The claim that a process checks.

    Attributes:
        task: the id of the task.
        claim: the id of the claim; the process ignores later claims.
    """

    task: str
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildProgram:
    """The program of the forked processes, and facts about it that a spawn needs.

    Attributes:
        run: runs a teammate; returns the exit code.
        enter: called first in each forked process.
        load: loads the modules of the next child, unless they are loaded; called before each fork.
        warning: returns a warning for the sender of a spawn, such as that there is no key.
        find_role: returns the role of that name, if its file exists; raises a `TeamError` if the
            file is invalid.
        sandbox: describes the sandbox of a teammate, by its name and role.
        clear: repairs the workspace after teammates were killed; returns the repaired paths.
        check: checks a task; returns the exit code.
        merge: empties the merge queue; returns the exit code.
        post: talks to other hosts; returns the exit code.
        try_first_steps: takes a teammate's first steps, without side effects; raises the error that
            would keep a teammate from starting. `None` for programs without a trial.
    """

    run: Callable[[ChildStart], int]
    load: Callable[[], None]
    warning: Callable[[], str | None]
    find_role: Callable[[str], Role | None]
    sandbox: Callable[[str, str], str] = lambda _name, _role: ""
    clear: Callable[[], list[str]] = list
    check: Callable[[CheckStart], int] = lambda _: ChildExit.STOPPED
    merge: Callable[[], int] = lambda: ChildExit.STOPPED
    post: Callable[[], int] = lambda: ChildExit.STOPPED
    try_first_steps: Callable[[int], None] | None = None
    enter: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was forked here and has not been reaped yet.

    Attributes:
        bell: the descriptor on which a byte wakes it.
    """

    identity: Identity
    bell: int

    def ring(self) -> None:
        """Wake it."""
        with suppress(BlockingIOError, BrokenPipeError):  # woken already, or ended
            os.write(self.bell, b"\0")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. The process is not reaped yet, so its pid is still its own."""
        with suppress(ProcessLookupError):
            os.kill(self.identity.pid, number)

    @property
    def ended(self) -> bool:
        """Whether it has ended and waits to be reaped; always false on macOS."""
        with suppress(AttributeError, ChildProcessError):
            ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.identity.pid, ended) is not None
        return False

    def reap(self) -> int | None:
        """Return the exit code if it has ended (negative: the signal), `None` while it lives.

        Afterwards the child is gone and its bell closed.
        """
        pid, status = os.waitpid(self.identity.pid, os.WNOHANG)
        if pid == 0:
            return None
        os.close(self.bell)
        return os.waitstatus_to_exitcode(status)


def fork(run: Callable[[int], int], *, close: Iterable[int]) -> Child:
    """Fork a process that exits with the result of `run(bell)`.

    Args:
        run: gets the reading end of its bell, non-blocking.
        close: descriptors for the child to close: a lock or the writing end of another bell that
            stayed open in a child would outlive its owner.

    Raises:
        OSError: there are no processes or descriptors left.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    parent = os.getpid()
    # A signal that reached the child while it still had the parent's handlers and wake-up pipe
    # would be taken for the parent's own.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _RESET)
    try:
        pid = os.fork()
        if pid == 0:
            _live(run, reader, (*close, writer), parent, unblocked)
    except OSError:
        os.close(writer)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        os.close(reader)
    identity = Identity.of(pid) or Identity(pid=pid, started=0.0)  # it may have ended already
    return Child(identity, writer)


def _live(
    run: Callable[[int], int],
    bell: int,
    close: Iterable[int],
    parent: int,
    mask: set[int] | set[signal.Signals],
) -> NoReturn:
    code: int = ChildExit.CRASHED
    try:
        signal.set_wakeup_fd(-1)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # until it can handle an interrupt
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for fd in close:
            os.close(fd)
        os.setsid()  # a Ctrl-C in the supervisor's terminal is for the supervisor
        # Not SIGTERM: a stopped process would not handle it, and would live on with its children.
        _die_with_parent(signal.SIGKILL, parent)
        become_subreaper()
        code = run(bell)
    except BaseException:  # noqa: BLE001 -- nothing may return into the parent's code
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def hide_memory() -> None:
    """Forbid other processes of this user to read this one's memory, environment and descriptors.

    It also disables core files. Forked processes inherit both settings. Programs that are started
    inherit only the limit on core files, which they may raise.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    _prctl(_PR_SET_DUMPABLE, 0)
    _leave_keyring()


def _leave_keyring() -> None:
    """Join a new session keyring, so that commands do not reach the person's keys.

    See keyrings(7) and keyctl(2), which libc has no function for.
    """
    number = _KEYCTL.get(os.uname().machine) if sys.platform == "linux" else None
    if number is not None:
        _libc().syscall(number, _JOIN_SESSION_KEYRING, None)


def lift_descriptor_limit() -> tuple[int, int]:
    """Allow as many open files as possible: each teammate takes two. Return the limits before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems reject an infinite limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def become_subreaper() -> None:
    """Adopt descendants whose parents end, so that a double fork cannot escape. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_title(title: str) -> None:
    """Show a title, at most 15 bytes of it, as this process's name in top(1) and `ps -e`.

    The command line stays: a supervisor and its processes are recognized by it. Linux only.
    """
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_NAME, os.fsencode(title), 0, 0, 0)


def _die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have a signal sent to this process when the parent ends, or has ended already.

    Outside Linux, end of file on the bell's pipe reports the same.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


class CannotBegin(TeamError):
    """An error of this machine that keeps every teammate from starting."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no teammate can begin here: {why}; `teamctl doctor` checks the machine")


def try_fork(steps: Callable[[int], None], forks: Callable[..., Child]) -> None:
    """Fork a process that tries a teammate's first steps, and wait for its end.

    Args:
        steps: gets the reading end of a bell, as a teammate does.
        forks: forks the process, as `fork` does.

    Raises:
        TeamError: no process could be forked, or the steps failed; says why.
    """
    reader, writer = os.pipe()
    with open(reader, "rb") as report:  # noqa: PTH123 -- a descriptor
        try:
            child = forks(lambda bell: _take_steps(steps, bell, writer), close=(reader,))
        except OSError as error:
            raise explain_failed_start(error) from error
        finally:
            os.close(writer)
        said = report.read().decode(errors="replace")
    _, status = os.waitpid(child.identity.pid, 0)
    os.close(child.bell)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        raise CannotBegin(f"its first steps took more than {_TRIAL_SECONDS:g} s")
    if said:
        raise TeamError(said)
    if code:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise CannotBegin(f"its process {how}")


def explain_failed_start(error: Exception) -> TeamError:
    """Return a `TeamError` for an error that keeps teammates from starting."""
    if isinstance(error, TeamError):
        return error
    if (limit := explain_limit(error)) is not None:
        return TeamError(f"no teammate can begin here: {limit}")
    said = " ".join(str(error).split())
    return CannotBegin(f"{type(error).__name__}: {said}" if said else type(error).__name__)


def _take_steps(steps: Callable[[int], None], bell: int, report: int) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process
    signal.setitimer(signal.ITIMER_REAL, _TRIAL_SECONDS)
    try:
        steps(bell)
    except Exception as error:  # noqa: BLE001 -- the child's edge: the parent raises it again
        os.write(report, str(explain_failed_start(error)).encode(errors="replace")[:_MOST_BYTES])
        return ChildExit.CRASHED
    return ChildExit.STOPPED
