"""Programs in a process namespace of their own, which bubblewrap makes.

When the first process of the namespace ends, the kernel ends all others in it, whatever session or
group they have moved to. So they need no reaper.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.programs import Program, Sink, reaper
from teamd.programs.cgroup import Cgroup
from teamd.programs.reaped import ExitInfo
from teamd.programs.seccomp import filter_to_read

# In the first process, where the socket is descriptor 9.
WAIT: Final = "echo ready >&9\nread -r _ <&9 || exit 1\n"
READY: Final = b"ready\n"
FIRST: Final = b"}\n"  # the end of bubblewrap's report, see `--info-fd` in bwrap(1)
_SECONDS: Final = 60.0  # a sandbox takes milliseconds
_LISTEN_SECONDS: Final = 0.5  # what bubblewrap began may outlive it, and say nothing more


class Gate:
    """Holds a command in a sandbox back until everything around it is ready.

    It is a socket pair. First bubblewrap reports the pid of the sandbox's first process. That
    process reports when all mounts exist, waits for `open`, and reports again at its end.

    Attributes:
        theirs: the standard input of the first process, to be closed once that has it.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.settimeout(_LISTEN_SECONDS)
        self._said = b""

    def read(self, end: bytes, runs: Callable[[], bool]) -> bytes:
        """Read up to a delimiter.

        Args:
            end: the delimiter.
            runs: returns whether bubblewrap runs.

        Raises:
            OSError: the sandbox has ended before, or takes too long.
        """
        deadline = time.monotonic() + _SECONDS
        while end not in self._said:
            went_on = runs()
            try:
                chunk = self._ours.recv(1 << 10)
            except TimeoutError:
                if went_on and time.monotonic() < deadline:
                    continue
                raise
            if not chunk:
                raise OSError(errno.EPERM, "the sandbox could not be made")
            self._said += chunk
        words, _, self._said = self._said.partition(end)
        return words + end

    def open(self) -> None:
        """Let the command begin."""
        self._ours.setblocking(False)
        with suppress(OSError):  # it has just been killed
            self._ours.send(b"\n")

    def report(self) -> bytes:
        """Return the output of the first process since `open`."""
        with suppress(OSError):
            self._said += self._ours.recv(1 << 10)
        return self._said

    def close(self) -> None:
        """Close the sockets; a command that has not begun ends."""
        self.theirs.close()
        self._ours.close()


_MEMORY_FILE: Final = "/memfd:"
_BLOCK_BYTES: Final = 512
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def descendants(first: int) -> list[int]:
    """Return a process and its descendants, without those forked meanwhile."""
    found = [first]
    for pid in found:  # grows meanwhile
        found += reaper.children(pid)
    return found


def signal_in(pid: int, namespace: str, number: signal.Signals) -> None:
    """Signal a process if it is in that namespace; its pid may have been reused."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if namespace and namespace_of(pid) == namespace:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)


def namespace_of(pid: int) -> str:
    """Return the name of a process's pid namespace; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 -- it names no file
    except OSError:
        return ""


def take_more_than(limit: int, pids: Sequence[int]) -> bool:
    """Return whether processes use more memory than `limit`; shared memory counts once.

    Memory files count even if they are not mapped. Unattached System V shared memory and in-memory
    file systems of inner namespaces do not count.
    """
    files = _memory_files(pids)
    if sum(map(_resident_bytes, pids)) + files <= limit:
        return False
    own, shared = map(sum, zip(*map(_own_bytes, pids), strict=True))
    return own + max(0, files - shared) > limit


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process, including shared memory; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 -- ten times a second
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _own_bytes(pid: int) -> tuple[int, int]:
    """Return `Pss` and `Pss_Shmem` of proc(5): memory with its part of shared memory; that part.

    The kernel walks all pages for it, so it is called only for large processes.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return _resident_bytes(pid), 0
    kibibytes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
    return kibibytes.get(b"Pss:", 0) << 10, kibibytes.get(b"Pss_Shmem:", 0) << 10


def _memory_files(pids: Sequence[int]) -> int:
    """Return the size of open memory files, see memfd_create(2)."""
    found = {}
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):  # closed meanwhile; the others count all the same
                    if os.readlink(entry.path).startswith(_MEMORY_FILE):  # noqa: PTH115 -- many
                        facts = os.stat(entry.path)  # noqa: PTH116 -- many
                        found[facts.st_ino] = facts.st_blocks * _BLOCK_BYTES
    return sum(found.values())


_GRACE_SECONDS: Final = 2.0  # between SIGTERM and SIGKILL
_KILL_SECONDS: Final = 5.0  # after SIGKILL; longer only if a process waits for a broken disk
_LAST_KILL_SECONDS: Final = 1.0  # short, since it blocks the loop
_PAUSE_SECONDS: Final = 0.005
_LOOK_SECONDS: Final = 0.1
_REPORTED: Final = 2  # the command's exit status, and how many others still ran

# The first process of the namespace: it sets the limits, runs the command, gives background
# processes a moment to end (in `tee >(sed …)`, sed ends just after its shell), and reports to its
# former standard input. It is `sh`, since that starts in a third of the time of bash.
FIRST_PROCESS: Final = (
    """\
exec 9>&0 </dev/null
ulimit -c 0
ulimit -f "$2"
ulimit -d "$3"
ulimit -u "$4" 2>/dev/null || ulimit -p "$4"
"""
    + WAIT
    + """\
bash -c -- "$1" 9>&-
status=$?
rounds=20
set -- /proc/[0-9]*
while [ $# -gt 1 ] && [ $rounds -gt 0 ]; do
  sleep 0.01 9>&-
  rounds=$((rounds - 1))
  set -- /proc/[0-9]*
done
echo "$status $(($# - 1))" >&9
exit $status
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits on all processes of a namespace together, and on the size of each file."""

    processes: int
    memory_bytes: int
    file_bytes: int


class Sandboxed(Program):
    """A command under bubblewrap; no process in its namespace outlives it or this process.

    Args:
        argv: bubblewrap with its options; `FIRST_PROCESS` follows them.
        command: for bash.
        bounds: checked ten times a second, since limits of single processes do not bind root.
        check: called with the pid of the first process once all mounts exist; raises an exception
            to keep the command from starting.
        changed: called ten times a second; returns a protected path that was replaced, for which
            the command is ended; normally empty.
        cgroup: bounds the number of processes at once.
        clear: called once, when all processes have ended; returns the paths that it removed.

    Raises:
        OSError: bubblewrap could not be started, or could not make the sandbox.
        ValueError: an argument holds a NUL.
    """

    def __init__(
        self,
        argv: Sequence[str],
        command: str,
        *,
        output: Sink,
        bounds: Bounds,
        clear: Callable[[], Sequence[str]],
        changed: Callable[[], str] = str,
        check: Callable[[int], None] = lambda _: None,
        cgroup: Cgroup | None = None,
    ) -> None:
        self._bounds = bounds
        self._clear = clear
        self._changed = changed
        self._taken: tuple[str, ...] | None = None
        self._exceeded = ""
        self._cgroup = cgroup
        self._refused_before = cgroup.refusals if cgroup else 0
        blocks, kibibytes = bounds.file_bytes >> 9, bounds.memory_bytes >> 10
        limits = map(str, (blocks, kibibytes, bounds.processes))
        first = ["/bin/sh", "-c", FIRST_PROCESS, "sh", command, *limits]
        self._gate = Gate()
        gate = self._gate.theirs.fileno()
        try:
            with filter_to_read() as calls:
                words = [*argv, "--info-fd", f"{gate}", "--seccomp", f"{calls}", "--", *first]
                # An empty environment: bubblewrap's own could be read in the sandbox.
                super().__init__(words, output=output, stdin=gate, env={}, pass_fds=(gate, calls))
        except BaseException:
            self._gate.close()
            raise
        self._look_again = self._loop.call_later(_LOOK_SECONDS, self._look_at_bounds)
        try:
            self._prepare(check)
        except BaseException:
            self.__exit__()
            raise
        self._gate.open()

    def _prepare(self, check: Callable[[int], None]) -> None:
        """Prepare the surroundings of the first process.

        Raises:
            OSError: that failed, or the process has ended.
        """
        self._gate.theirs.close()
        first = int(json.loads(self._gate.read(FIRST, self._runs))["child-pid"])
        if self._cgroup and not self._cgroup.joined:
            self._cgroup.add(first)  # takes as long as the mounts, which are made meanwhile
        self._gate.read(READY, self._runs)
        check(first)

    async def end(self) -> ExitInfo:
        """End all processes, first with SIGTERM."""
        if not self._ended.is_set():
            self._signal_all(signal.SIGTERM)
            await self._wait_for_end(_GRACE_SECONDS)
        if not self._ended.is_set():
            self._kill_first()
            self._signal_all(signal.SIGKILL)  # the kernel would wait for a process that traces
            await self._wait_for_end(_KILL_SECONDS)
        left = frozenset() if self._ended.is_set() else frozenset({self.pid})
        report = self._reported()
        return ExitInfo(
            background=report[1] if report else 0,
            left=left,
            exceeded=self._exceeded,
            taken=() if left else self._clear_once(),
        )

    def __exit__(self, *error: object) -> None:
        self._look_again.cancel()
        super().__exit__(*error)
        self._gate.close()
        if self._popen.returncode is not None:  # otherwise it may still write
            self._clear_once()

    def _clear_once(self) -> tuple[str, ...]:
        if self._taken is None:
            self._taken = ()
            self._taken = tuple(self._clear())
        return self._taken

    def _kill(self) -> None:
        """Kill it without the loop, for a caller that was cancelled."""
        self._kill_first()
        deadline = time.monotonic() + _LAST_KILL_SECONDS
        while self._runs() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        super()._kill()

    def _kill_first(self) -> None:
        """Kill the first process of the namespace: bubblewrap ends once the kernel ended all.

        Before there is one, bubblewrap itself is killed.
        """
        found = reaper.children(self.pid) if self._runs() else []
        for pid in found or [self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        """Signal every process in the namespace but its first, which only SIGKILL ends."""
        for first in reaper.children(self.pid):
            namespace = namespace_of(first)
            for pid in descendants(first)[1:]:
                signal_in(pid, namespace, number)

    def _look_at_bounds(self) -> None:
        """Kill the namespace if it exceeds its bounds; a fork bomb cannot outrun the kernel."""
        if self._ended.is_set():
            return
        refused = self._cgroup is not None and self._cgroup.refusals > self._refused_before
        pids = [pid for first in reaper.children(self.pid) for pid in descendants(first)]
        if changed := self._changed():
            self._exceeded = f"{changed} was replaced meanwhile, and could not be protected"
        elif refused or len(pids) > self._bounds.processes:
            self._exceeded = f"it had more than {self._bounds.processes} processes"
        elif take_more_than(self._bounds.memory_bytes, pids):
            self._exceeded = f"it took more than {self._bounds.memory_bytes >> 20} MiB of memory"
        if self._exceeded:
            self._kill_first()
        self._look_again = self._loop.call_later(_LOOK_SECONDS, self._look_at_bounds)

    async def _wait_for_end(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _runs(self) -> bool:
        return self._find_end() is None

    def _reported(self) -> list[int]:
        """Return the command's exit status and the number of background processes, if reported.

        It reads the last line. A command that finds the socket can forge it, and harms only itself.
        """
        lines = self._gate.report().split(b"\n")
        words = lines[-2].split() if len(lines) > 1 else []
        sound = len(words) == _REPORTED and all(map(bytes.isdigit, words))
        return [int(word) for word in words] if sound else []
