"""What stands above a program: ends all that it leaves, and all of it when its asker dies.

A program of its own, started as `python -I -S reaper.py FD MODE PROGRAM ARGUMENT…`. It imports
nothing of ours and little of Python's, as every command waits for its start. FD is one end of a
socket pair whose other end only the asker holds:

- it tells `failed ERRNO` (the program could not be started) or `status N` (it has ended by itself:
  exit status, or minus the killing signal), and at the end `ended COUNT PID…`: how many ran on in
  the background, and who could not be ended; then it exits as the program did;
- a byte from the asker is the wish to end all now, politely at first;
- end of file means that the asker has died, however it died: all is killed.

MODE is `--`, or `--attached`: what has left the program's group and its parent may stay then.
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

_SETTLE_SECONDS: Final = 0.2  # `tee >(sed …)` ends just after its shell, and means to be read
_GRACE_SECONDS: Final = 2.0  # between SIGTERM and SIGKILL
_KILL_SECONDS: Final = 5.0  # after SIGKILL; what is still there then waits for a dead disk
_PAUSE_SECONDS: Final = 0.005
_LONG_PAUSE_SECONDS: Final = 1.0
_CANNOT_EXECUTE: Final = 127  # as a shell has it; the asker is told more


class Reaper:
    """A program, and the end of all under it.

    This process adopts whatever escapes the program's process group (on Linux; elsewhere the
    group is all that is ended), so that everything to be ended descends from it.
    """

    def __init__(self, asker: int, argv: list[str]) -> None:
        self._asker = asker
        self._asker_alive = True
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Signals wait until `_let_go`: the program may send its parent some at once.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._program = _spawn(argv, mask)
        _let_go()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._status: int | None = None  # once it has ended
        self._poll = select.poll()
        self._poll.register(asker, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def run(self) -> int:
        """Wait for the program's end or its asker's wish, end what is left, tell, and say how."""
        while not self._has_ended() and not self._wait(None):
            pass
        if self._status is not None:
            self.tell(f"status {self._status}")
            for _ in self._rounds(_SETTLE_SECONDS):
                pass
        found = self._alive()
        if found and self._asker_alive:
            self._ask()
        self._kill()
        left = " ".join(map(str, self._alive()))
        self.tell(f"ended {len(found - {self._program})} {left}")
        return -signal.SIGKILL if self._status is None else self._status

    def tell(self, line: str) -> None:
        """Tell the asker, if it is still there to be told."""
        with suppress(OSError):
            os.write(self._asker, f"{line}\n".encode())

    def _has_ended(self) -> bool:
        """Look for the program's end, and reap what it has orphaned."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            self._reap()
            return self._status is not None
        peek = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while (end := os.waitid(os.P_ALL, 0, peek)) is not None:
            if end.si_pid == self._program:  # stays unreaped, so that its group's number is its own
                exited = end.si_code == os.CLD_EXITED
                self._status = end.si_status if exited else -end.si_status
                return True
            os.waitpid(end.si_pid, 0)
        return False

    def _reap(self) -> bool:
        """Reap everybody who has ended; whether anybody is left."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == self._program:
                    self._status = os.waitstatus_to_exitcode(ended[1])
            return True
        return False

    def _wait(self, seconds: float | None) -> bool:
        """Wait for something to happen; whether it was the asker's word or end."""
        ready = {fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)}
        if self._wake in ready:
            os.read(self._wake, 1 << 16)
        if self._asker not in ready:
            return False
        said = b""
        with suppress(OSError):  # it died without having read all it was told
            said = os.read(self._asker, 1 << 10)
        if not said:
            self._asker_alive = False
            self._poll.unregister(self._asker)
        return True

    def _ask(self) -> None:
        """Send SIGTERM to everybody once and wait a little for it to be obeyed."""
        _signal(-self._program, signal.SIGTERM)
        told: set[int] = set()
        for _ in self._rounds(_GRACE_SECONDS):
            for pid in set(children(os.getpid())) - told:
                told.add(pid)
                if _group(pid) != self._program:
                    _signal(pid, signal.SIGTERM)

    def _rounds(self, seconds: float) -> Iterator[None]:
        """Take turns with whoever still runs, for so long and while the asker lives."""
        deadline = time.monotonic() + seconds
        while self._asker_alive and self._alive() and time.monotonic() < deadline:
            yield
            self._wait(_PAUSE_SECONDS)

    def _kill(self) -> None:
        """Send SIGKILL until nobody is left, and reap; without an asker for as long as it takes."""
        deadline = time.monotonic() + _KILL_SECONDS
        _signal(-self._program, signal.SIGKILL)  # not reaped yet, so it is still its group
        while True:
            kill(children(os.getpid()))
            if not self._reap():
                return
            if (late := time.monotonic() > deadline) and self._asker_alive:
                return
            self._wait(_LONG_PAUSE_SECONDS if late else _PAUSE_SECONDS)

    def _alive(self) -> set[int]:
        """Who still runs: the program's group, and whoever else is this process's child."""
        if sys.platform != "linux":  # a group's number is negative, as kill(2) has it
            return {-self._program} if _signal(-self._program, 0) else set()
        mine = children(os.getpid())
        found = list(mine)
        for pid in found:  # grows meanwhile
            found += children(pid)
        running = {pid: group for pid in found if (group := _group(pid)) is not None}
        return {pid for pid, group in running.items() if group == self._program or pid in mine}


def kill(pids: Iterable[int]) -> None:
    """Kill children of this process with all that descend from them, as far as is seen by now.

    Whom this misses becomes a child of this process, for the next call, once all are reaped.
    """
    for child in pids:
        for pid in _frozen(child):
            _signal(pid, signal.SIGKILL)


def children(parent: int) -> list[int]:
    """A process's children, those that wait to be reaped too; none where there is no /proc."""
    found: list[int] = []
    with suppress(OSError):
        if not os.path.exists("/proc/thread-self/children"):
            pids = map(int, filter(str.isdecimal, os.listdir("/proc")))
            return [pid for pid in pids if (stat := _stat(pid)) and int(stat[1]) == parent]
        # Ten times as fast as a look at every process, which a program that forks and ends, forks
        # and ends, would outrun.
        for task in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot, also of one that waits to be reaped."""
    stat = _stat(pid)
    return None if stat is None else int(stat[22 - 3])


def _frozen(child: int) -> list[int]:
    """Stop a process and all that descend from it; their pids.

    Parents first: who is stopped forks no more, so that a chain of forks that grows faster than
    it can be killed is at rest when its end is reached. And who is stopped reaps no more, so that
    a pid read from a stopped parent is still that child's: no stranger is ever signalled.
    """
    found = [child]
    for pid in found:  # grows meanwhile
        _signal(pid, signal.SIGSTOP)
        found += children(pid)
    return found


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on: state, parent, group, …; see proc(5)."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        stat = file.read()
        return stat[stat.rindex(b")") + 2 :].split()  # the second may hold anything, even this
    return None  # gone


def _group(pid: int) -> int | None:
    """The group of a process that runs; `None` once it is gone, or waits to be reaped."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in (b"Z", b"X") else int(stat[2])


def _signal(pid: int, number: int) -> bool:
    """Signal a process, or by its negative number a group; whether anybody was there for it."""
    # Setuid programs are not ours to signal, and macOS answers EPERM for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def _spawn(argv: list[str], mask: set[int] | set[signal.Signals]) -> int:
    """Start the program in a session of its own, with what this process was given."""
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores them, which a child inherits
    spawn = partial(os.posix_spawnp, argv[0], argv, _environment(), setsigmask=mask)
    try:
        return spawn(setsigdef=defaults, setsid=True)
    except NotImplementedError:  # an old macOS
        return spawn(setsigdef=defaults, setpgroup=0)


def _environment() -> dict[bytes, bytes]:
    """The environment this process was started with."""
    environment = dict(os.environb)
    # Where it finds no locale, Python sets this one for itself and its children (PEP 538).
    with suppress(OSError), open("/proc/self/environ", "rb") as file:
        if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
            environment.pop(b"LC_CTYPE", None)
    return environment


def _become_reaper(*, adopts: bool) -> None:
    """Adopt what escapes, and wake up for the asker's death even when stopped."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        if adopts:
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


def _let_go() -> None:
    """Leave the streams to the program, and be deaf to what it may send its parent."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nowhere, fd)
    for number in signal.valid_signals() - {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


def _exit_as(status: int) -> NoReturn:
    """End as the program has ended."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it has left one already
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)


def main(asker: int, mode: str, argv: list[str]) -> NoReturn:
    """Run a program under this process."""
    os.set_inheritable(asker, False)
    _become_reaper(adopts=mode == ALL)
    try:
        reaper = Reaper(asker, argv)
    except OSError as error:
        os.write(asker, f"failed {error.errno}\n".encode())
        os._exit(_CANNOT_EXECUTE)
    _exit_as(reaper.run())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
