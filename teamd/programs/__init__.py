"""Other programs: the only room that starts them, by exec and never by a shell string of ours.

Each gets a session and a process group of its own.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.programs.program import Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_CAPTURED_BYTES: Final = 1 << 20

__all__ = ["Captured", "Program", "capture", "run", "start_detached"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """How a program ended: its exit status, or minus the signal that killed it, and its output."""

    status: int
    stdout: bytes
    stderr: bytes


async def capture(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    bound: bool = False,
) -> Captured:
    """Run a program to its end, and its process group with it.

    If `bound`, it ends with this process too, however that ends; a daemon that it started stays.

    Returns:
        Its status and the first MiB of each of its outputs.

    Raises:
        TimeoutError: it did not end in time, and was killed.
        OSError: it could not be started.
    """
    import asyncio  # noqa: PLC0415 -- see Program
    import tempfile  # noqa: PLC0415
    from functools import partial  # noqa: PLC0415

    from teamd.programs.reaped import Reaped  # noqa: PLC0415 -- it needs asyncio

    stdout, stderr = _Head(), _Head()
    with ExitStack() as stack:
        # A file, not a pipe: it needs nobody to feed it, and is never full.
        file = stack.enter_context(tempfile.TemporaryFile())
        file.write(stdin)
        file.seek(0)
        kind = partial(Reaped, daemons=True) if bound else Program
        program = stack.enter_context(
            kind(
                argv,
                output=stdout.take,
                errors=stderr.take,
                cwd=cwd,
                env=env,
                stdin=file.fileno(),
            )
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                status = await program.wait()
        except TimeoutError:
            raise TimeoutError(f"{argv[0]} did not end within {timeout_seconds:g} s") from None
        program.drain()
    return Captured(status=status, stdout=bytes(stdout.kept), stderr=bytes(stderr.kept))


def run(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Captured:
    """Do what `capture` does where no loop runs."""
    import asyncio  # noqa: PLC0415 -- see Program

    return asyncio.run(
        capture(argv, timeout_seconds=timeout_seconds, cwd=cwd, env=env, stdin=stdin)
    )


def start_detached(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program that outlives this process; standard error is this process's.

    Returns:
        What `poll()` asks whether it has ended, while this process still looks.
    """
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=cwd,
        env=env,
        pass_fds=pass_fds,
        start_new_session=True,
    )


class _Head:
    """The first bytes of an output."""

    def __init__(self) -> None:
        self.kept = bytearray()

    def take(self, chunk: bytes) -> None:
        self.kept += chunk[: _CAPTURED_BYTES - len(self.kept)]
