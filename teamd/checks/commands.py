"""Runs the commands of a check in a shell, with limits on time and output."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from teamd.board.task import Attempt
from teamd.masking import Mask, MaskedOutput
from teamd.programs import Sink
from teamd.programs.reaped import ExitInfo
from teamd.sandbox.shells import NoSandbox, Shell

# As timeout(1) and bash have them.
OVERDUE: Final = 124
NOT_STARTED: Final = 126
KILLED: Final = 128 + signal.SIGKILL
_KILLED: Final = frozenset({KILLED, 128 + signal.SIGTERM})
_OUTPUT_BYTES: Final = 4000


class CheckKilled(Exception):
    """A command of the check was killed from outside, which says nothing about the task."""


@dataclass(slots=True)
class Tail:
    """Keeps the end of an output."""

    mask: Mask = field(default_factory=Mask)
    _kept: bytearray = field(default_factory=bytearray)

    def take(self, chunk: bytes) -> None:
        self._kept += chunk[-_OUTPUT_BYTES:]
        del self._kept[:-_OUTPUT_BYTES]

    def text(self) -> str:
        """Return the kept output without an incomplete first line."""
        kept = bytes(self._kept)
        if len(kept) == _OUTPUT_BYTES and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]
        return kept.decode(errors="replace").strip("\n")


async def run_commands(
    shell: Shell, commands: Iterable[str], *, seconds: float, output: Tail
) -> Attempt:
    """Run commands one after the other, up to the first that fails.

    Args:
        shell: starts them.
        commands: for bash; at least one.
        seconds: the time limit for all of them.
        output: gets their output.

    Raises:
        CheckKilled: a command was killed from outside.
    """
    begun, clock = time.time(), time.monotonic()
    status, why, command = 0, "", ""
    for command in commands:
        left = seconds - (time.monotonic() - clock)
        status, why = await run_command(shell, command, seconds=left, output=output)
        if status == OVERDUE and why:
            why = f"it took longer than {seconds:g} s, and was ended"
        if status or why:
            break
    took = round(time.monotonic() - clock, 3)
    return Attempt(time=begun, seconds=took, status=status, command=command, why=why)


async def run_command(
    shell: Shell, command: str, *, seconds: float, output: Tail
) -> tuple[int, str]:
    """Run a command; return its exit status, and a sentence if it was ended or not started.

    Raises:
        CheckKilled: it was killed from outside.
    """
    try:
        with MaskedOutput(output.mask, output.take) as masked:
            status, ended = await _run(shell, command, seconds, masked.take)
    except NoSandbox as error:
        return NOT_STARTED, str(error)
    except ValueError as error:
        return NOT_STARTED, f"it could not be started: {error}"
    except OSError as error:  # it may have been killed during the start
        raise CheckKilled(str(error)) from error
    if ended.exceeded:
        return KILLED, f"all of it was ended: {ended.exceeded}"
    if status is None:
        return OVERDUE, f"it took longer than {seconds:g} s, and was ended"
    if status < 0 or status in _KILLED:
        raise CheckKilled
    return status, ""


async def _run(
    shell: Shell, command: str, seconds: float, output: Sink
) -> tuple[int | None, ExitInfo]:
    status = None
    with shell.start(command, output) as program:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                status = await program.wait()
        ended = await program.end()
        program.drain()
    return status, ended
