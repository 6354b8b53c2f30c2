"""The parent of a program: ends its descendants when it ends, or when the caller dies.

This is a script, started as `python -I -S reaper.py FD MODE PROGRAM ARGUMENT…`. It imports little,
since every command waits for its start. FD is one end of a socket pair whose other end only the
caller holds:

- the reaper reports `failed ERRNO` (the program could not be started) or `status N` (its exit
  status, or minus the killing signal), and at the end `ended COUNT PID…`: the number of background
  processes, and the pids that could not be ended; then it exits as the program did;
- a byte from the caller asks to end all processes now, first with SIGTERM;
- end of file means that the caller has died: all processes are killed.

MODE is `--`, or `--attached`: processes that have left the program's group and parent may stay.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

ALL: Final = "--"
ATTACHED: Final = "--attached"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_SETTLE_SECONDS: Final = 0.2  # in `tee >(sed …)`, sed ends just after its shell
_GRACE_SECONDS: Final = 2.0  # between SIGTERM and SIGKILL
_KILL_SECONDS: Final = 5.0  # after SIGKILL; longer only if a process waits for a broken disk
_PAUSE_SECONDS: Final = 0.005
_LONG_PAUSE_SECONDS: Final = 1.0
_CANNOT_EXECUTE: Final = 127  # as in a shell


class Reaper:
    """Runs a program and ends its descendants.

    On Linux this process adopts descendants whose parents have ended, so it finds all of them. On
    other systems it ends only the program's process group.
    """

    def __init__(self, caller: int, argv: list[str]) -> None:
        self._caller = caller
        self._caller_alive = True
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Blocked until `_let_go`: the program may signal its parent at once.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._program = _spawn(argv, mask)
        _let_go()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._status: int | None = None  # once it has ended
        self._poll = select.poll()
        self._poll.register(caller, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def run(self) -> int:
        """Wait for the program's end or a byte from the caller, end the rest; return the status."""
        while not self._has_ended() and not self._wait(None):
            pass
        if self._status is not None:
            self.report(f"status {self._status}")
            for _ in self._rounds(_SETTLE_SECONDS):
                pass
        found = self._alive()
        if found and self._caller_alive:
            self._ask()
        self._kill()
        left = " ".join(map(str, self._alive()))
        self.report(f"ended {len(found - {self._program})} {left}")
        return -signal.SIGKILL if self._status is None else self._status

    def report(self, line: str) -> None:
        """Report to the caller, if it lives."""
        with suppress(OSError):
            os.write(self._caller, f"{line}\n".encode())

    def _has_ended(self) -> bool:
        """Check whether the program has ended, and reap its orphans."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            self._reap()
            return self._status is not None
        peek = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while (end := os.waitid(os.P_ALL, 0, peek)) is not None:
            if end.si_pid == self._program:  # not reaped, so that its group's id stays its own
                exited = end.si_code == os.CLD_EXITED
                self._status = end.si_status if exited else -end.si_status
                return True
            os.waitpid(end.si_pid, 0)
        return False

    def _reap(self) -> bool:
        """Reap all children that have ended; return whether any are left."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == self._program:
                    self._status = os.waitstatus_to_exitcode(ended[1])
            return True
        return False

    def _wait(self, seconds: float | None) -> bool:
        """Wait for a child's end or a byte from the caller; return whether it was the caller."""
        ready = {fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)}
        if self._wake in ready:
            os.read(self._wake, 1 << 16)
        if self._caller not in ready:
            return False
        said = b""
        with suppress(OSError):  # it died without reading all reports
            said = os.read(self._caller, 1 << 10)
        if not said:
            self._caller_alive = False
            self._poll.unregister(self._caller)
        return True

    def _ask(self) -> None:
        """Send SIGTERM to all processes once, and wait a little."""
        _signal(-self._program, signal.SIGTERM)
        told: set[int] = set()
        for _ in self._rounds(_GRACE_SECONDS):
            for pid in set(children(os.getpid())) - told:
                told.add(pid)
                if _group(pid) != self._program:
                    _signal(pid, signal.SIGTERM)

    def _rounds(self, seconds: float) -> Iterator[None]:
        """Yield until all processes have ended, at most this long and while the caller lives."""
        deadline = time.monotonic() + seconds
        while self._caller_alive and self._alive() and time.monotonic() < deadline:
            yield
            self._wait(_PAUSE_SECONDS)

    def _kill(self) -> None:
        """Send SIGKILL until no process is left; without a caller for as long as it takes."""
        deadline = time.monotonic() + _KILL_SECONDS
        _signal(-self._program, signal.SIGKILL)  # not reaped yet, so it is still its group
        while True:
            kill(children(os.getpid()))
            if not self._reap():
                return
            if (late := time.monotonic() > deadline) and self._caller_alive:
                return
            self._wait(_LONG_PAUSE_SECONDS if late else _PAUSE_SECONDS)

    def _alive(self) -> set[int]:
        """Return the running processes: the program's group, and other children of this process."""
        if sys.platform != "linux":  # a group's number is negative, as kill(2) has it
            return {-self._program} if _signal(-self._program, 0) else set()
        mine = children(os.getpid())
        found = list(mine)
        for pid in found:  # grows meanwhile
            found += children(pid)
        running = {pid: group for pid in found if (group := _group(pid)) is not None}
        return {pid for pid, group in running.items() if group == self._program or pid in mine}


def kill(pids: Iterable[int]) -> None:
    """Kill children of this process with their descendants.

    A process that it misses becomes a child of this process, for the next call.
    """
    for child in pids:
        for pid in _frozen(child):
            _signal(pid, signal.SIGKILL)


def children(parent: int) -> list[int]:
    """Return a process's children, including those that wait to be reaped; none without /proc."""
    found: list[int] = []
    with suppress(OSError):
        if not os.path.exists("/proc/thread-self/children"):
            pids = map(int, filter(str.isdecimal, os.listdir("/proc")))
            return [pid for pid in pids if (stat := _stat(pid)) and int(stat[1]) == parent]
        # Ten times as fast as listing all processes, which a program that keeps forking outruns.
        for task in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def started(pid: int) -> int | None:
    """Return the start of a process, in clock ticks since boot, even if it waits to be reaped."""
    stat = _stat(pid)
    return None if stat is None else int(stat[22 - 3])


def _frozen(child: int) -> list[int]:
    """Stop a process and its descendants; return their pids.

    Parents come first. A stopped process does not fork, so a growing chain of forks comes to rest.
    It does not reap either, so a pid read from a stopped parent is still that of its child.
    """
    found = [child]
    for pid in found:  # grows meanwhile
        _signal(pid, signal.SIGSTOP)
        found += children(pid)
    return found


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third on: state, parent, group; see proc(5)."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        stat = file.read()
        return stat[stat.rindex(b")") + 2 :].split()  # the second field may contain brackets
    return None


def _group(pid: int) -> int | None:
    """Return the group of a running process; `None` if it has ended."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in (b"Z", b"X") else int(stat[2])


def _signal(pid: int, number: int) -> bool:
    """Signal a process, or a group by its negative id; return whether it exists."""
    # Setuid programs may not be signalled; macOS answers EPERM for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def _spawn(argv: list[str], mask: set[int] | set[signal.Signals]) -> int:
    """Start the program in a session of its own, with the environment of this process."""
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores them, and children inherit that
    spawn = partial(os.posix_spawnp, argv[0], argv, _environment(), setsigmask=mask)
    try:
        return spawn(setsigdef=defaults, setsid=True)
    except NotImplementedError:  # an old macOS
        return spawn(setsigdef=defaults, setpgroup=0)


def _environment() -> dict[bytes, bytes]:
    """Return the environment with which this process was started."""
    environment = dict(os.environb)
    # Without a locale, Python sets this variable for itself and its children (PEP 538).
    with suppress(OSError), open("/proc/self/environ", "rb") as file:
        if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
            environment.pop(b"LC_CTYPE", None)
    return environment


def _become_reaper(*, adopts: bool) -> None:
    """Adopt orphaned descendants, and continue at the caller's death even if stopped."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        if adopts:
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


def _let_go() -> None:
    """Leave the standard streams to the program, and ignore signals that it may send."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nowhere, fd)
    for number in signal.valid_signals() - {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


def _exit_as(status: int) -> NoReturn:
    """End with the exit status or the signal of the program."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written one already
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)


def main(caller: int, mode: str, argv: list[str]) -> NoReturn:
    os.set_inheritable(caller, False)
    _become_reaper(adopts=mode == ALL)
    try:
        reaper = Reaper(caller, argv)
    except OSError as error:
        os.write(caller, f"failed {error.errno}\n".encode())
        os._exit(_CANNOT_EXECUTE)
    _exit_as(reaper.run())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
