"""The identity of a process: its pid and start time, because pids are reused."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from teamd.errors import StoreError

STAT_FLAGS = 9  # fields of /proc/PID/stat after the name, see proc(5)
STAT_START_TIME = 22  # in clock ticks since boot
_EXITING = 0x4  # PF_EXITING of the kernel's sched.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A process of this boot.

    Attributes:
        pid: the process id.
        started: when it started. On Linux in clock ticks since boot, which do not depend on the
            time of day; elsewhere in seconds since the epoch.
    """

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Return the identity of a live process; `None` if it has ended or is a zombie."""
        started = _start_time(pid)
        return None if started is None else cls(pid=pid, started=started)

    @classmethod
    def own(cls) -> Identity:
        """Return the identity of the calling process, from a cache."""
        return _own(os.getpid(), os.getppid())

    @property
    def alive(self) -> bool:
        """Whether this process, and not a later one with the same pid, still runs."""
        return _start_time(self.pid) == self.started

    @property
    def ending(self) -> bool:
        """Whether the process was killed and the kernel is still removing it.

        Closing an inotify queue can take 100 ms, and the process keeps its locks until then.
        """
        fields = _stat(self.pid) if sys.platform == "linux" and self.alive else None
        return fields is not None and bool(int(fields[STAT_FLAGS - 3]) & _EXITING)

    @property
    def at_work(self) -> bool:
        """Whether the process runs and was not killed."""
        return not self.ending and self.alive  # in this order: it may end in between

    @property
    def began(self) -> float:
        """When the process started, in seconds since the epoch."""
        if sys.platform != "linux":
            return self.started
        import psutil  # noqa: PLC0415 -- 11 ms, and the agent needs none of it

        return psutil.boot_time() + self.started / os.sysconf("SC_CLK_TCK")

    def usage(self) -> tuple[float | None, int | None]:
        """Return CPU seconds and resident bytes; `None` for each if the process has ended."""
        import psutil  # noqa: PLC0415 -- 11 ms, and the agent needs none of it

        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            times, memory = process.cpu_times(), process.memory_info().rss
            if self.alive:
                return times.user + times.system, memory
        return None, None

    def memory(self) -> int | None:
        """Return the proportional set size in bytes; `None` if unknown.

        Only a process that may trace this one can read it; for a teammate, these are the teammate
        itself and root.
        """
        with suppress(OSError, ValueError):
            found = _memory_of(str(self.pid))
            return found if self.alive else None
        return None

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this process; return whether it still existed."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        except (AttributeError, OSError, OverflowError):  # macOS, old kernel, impossible pid
            return self.alive and _kill(self.pid, number)
        try:
            # From here on the descriptor refers to one process, so check only now that it is this
            # one.
            if not self.alive:
                return False
            _send(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


@lru_cache(maxsize=1)
def _own(pid: int, _parent: int) -> Identity:
    """Return the identity of this process; a forked process misses the cache."""
    me = Identity.of(pid)
    if me is None:
        raise StoreError("teamd needs /proc, and it is missing; `mount -t proc proc /proc` adds it")
    return me


def own_memory() -> int | None:
    """Return the memory of this process, see `Identity.memory`."""
    with suppress(OSError, ValueError):
        return _memory_of("self")
    return None


def _memory_of(pid: str) -> int:
    """Return the proportional set size in bytes, see proc_pid_smaps(5).

    Raises:
        OSError, ValueError: the kernel does not report it.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
        name, *figures = line.split()
        if name == b"Pss:":
            return 1024 * int(figures[0])
    raise ValueError(pid)


def _send(pidfd: int, number: signal.Signals) -> None:
    signal.pidfd_send_signal(pidfd, number)


def _kill(pid: int, number: signal.Signals) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _start_time(pid: int) -> float | None:
    if sys.platform != "linux":
        return _start_time_portable(pid)
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return float(fields[STAT_START_TIME - 3])


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third (the state) on; `None` if missing."""
    with suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        # The second field is the program's name in parentheses. It may contain any character, so
        # the fields are counted from the last parenthesis.
        return stat[stat.rindex(b")") + 2 :].split()
    return None


def _start_time_portable(pid: int) -> float | None:
    import psutil  # noqa: PLC0415 -- saves 11 ms on Linux

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    return None
