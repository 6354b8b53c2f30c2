"""Programs that leave no processes behind: each runs under a reaper (see `reaper`)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.programs import Program, Sink, reaper

_REAPER_SECONDS: Final = 10.0  # more than a reaper takes for settling, grace and killing
_LAST_KILL_SECONDS: Final = 1.0  # short, since it blocks the loop
_ORPHANS_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitInfo:
    """The end of a program.

    Attributes:
        background: the number of processes that still ran when the program had ended.
        left: the pids of processes that could not be ended.
        exceeded: a clause about the limit because of which it was ended; may be empty.
        taken: files that it created in protected paths, which were removed.
    """

    background: int = 0
    left: frozenset[int] = frozenset()
    exceeded: str = ""
    taken: tuple[str, ...] = ()


class Reaped(Program):
    """A program under a reaper: its descendants outlive neither it nor this process.

    All of them end with the `with` block, or when this process is killed, even together with its
    parent, and whatever process group or session they have moved to.

    A program may kill its reaper. If this process is a subreaper, it then adopts the descendants,
    and kills them at the end of the block: every child that is new and not a live `Program`.

    Args:
        daemons: whether a descendant that has left its group and its parent may live on, such as
            an agent that holds keys.

    Raises:
        OSError: the reaper could not be started. If the program could not be, `wait` raises it.
        ValueError: an argument holds a NUL.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        output: Sink,
        errors: Sink | None = None,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        pass_fds: Sequence[int] = (),
        daemons: bool = False,
    ) -> None:
        self._before = frozenset(_children())
        self._over = asyncio.Event()
        self._heard = b""
        self._told: dict[str, list[int]] = {}
        self._name = argv[0]
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        interpreter = [sys.executable, "-I", "-S", reaper.__file__]
        mode = reaper.ATTACHED if daemons else reaper.ALL
        fd = theirs.fileno()
        argv = [*interpreter, str(fd), mode, *argv]
        try:
            with theirs:
                super().__init__(
                    argv, output=output, errors=errors, cwd=cwd, env=env, pass_fds=[fd, *pass_fds]
                )
        except BaseException:
            self._line.close()
            raise
        self._loop.add_reader(self._line, self._hear)

    async def wait(self) -> int:
        """Wait for the program's own end; return its exit status, or minus the killing signal.

        Raises:
            OSError: the program could not be started.
        """
        await super().wait()
        if "failed" in self._told:
            (number,) = self._told["failed"]
            raise OSError(number, os.strerror(number), self._name)
        return self._told["status"][0] if "status" in self._told else self._status()

    async def end(self) -> ExitInfo:
        """End the program and its descendants, first with SIGTERM."""
        with suppress(OSError):  # the reaper has ended
            self._line.send(b"\0")
        self._signal(signal.SIGCONT)  # its program may have stopped it
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAPER_SECONDS):
                await self._over.wait()
        for _ in self._rounds(_ORPHANS_SECONDS):
            await asyncio.sleep(_PAUSE_SECONDS)
        background, *left = self._told.get("ended", [0, *self._orphans()])
        return ExitInfo(background=background, left=frozenset(left))

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._loop.remove_reader(self._line)
        self._line.close()

    def _kill(self) -> None:
        """Kill it without the loop, for a caller that was cancelled."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)  # for the reaper as if this process had died
        self._signal(signal.SIGCONT)  # its program may have stopped it
        deadline = time.monotonic() + _LAST_KILL_SECONDS
        while self._find_end() is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        self._hear()
        for _ in self._rounds(_LAST_KILL_SECONDS):
            time.sleep(_PAUSE_SECONDS)

    def _rounds(self, seconds: float) -> Iterator[None]:
        """Kill the descendants if the reaper has not reported its end; yield between rounds."""
        if "ended" in self._told or "failed" in self._told:
            return
        self._signal(signal.SIGKILL)
        deadline = time.monotonic() + seconds
        while (orphans := self._orphans()) and time.monotonic() < deadline:
            reaper.kill(orphans)
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            yield

    def _orphans(self) -> list[int]:
        spared = {program.pid for program in self.live}
        return [pid for pid, _ in set(_children()) - self._before if pid not in spared]

    def _signal(self, number: signal.Signals) -> None:
        if self._popen.returncode is None:  # not reaped, so the pid is its own
            self.kill_group(number)

    def _hear(self) -> None:
        """Read the reports of the reaper."""
        try:
            said = self._line.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._loop.remove_reader(self._line)
            return
        *lines, self._heard = (self._heard + said).split(b"\n")
        for line in lines:
            word, *numbers = line.decode().split()
            self._told[word] = [int(number) for number in numbers]
            self._ended.set()

    def _note_end(self) -> None:
        self._hear()
        self._over.set()
        super()._note_end()


def _children() -> list[tuple[int, int | None]]:
    """Return the children of this process, dead ones too, with their start times."""
    return [(pid, reaper.started(pid)) for pid in reaper.children(os.getpid())]
