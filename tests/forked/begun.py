"""A forked command that goes on while a test looks at it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

from tests.forked.client import server

_FOR_EVER: Final = 1e6


class Begun(subprocess.Popen[str]):
    """Used as what `subprocess.Popen` returns for text, and made without starting a program.

    Args:
        argv: what the server takes.
        streams: `stdin`, `stdout` and `stderr`, as for `subprocess.Popen`.
        terminal: whether it begins a session, whose terminal is its standard input.
    """

    def __init__(
        self,
        argv: Sequence[str],
        streams: Mapping[str, Any],
        *,
        cwd: Path,
        env: Mapping[str, str],
        terminal: bool = False,
    ) -> None:
        self.args = argv
        self.returncode = None
        with ExitStack() as given:
            self.stdin, fd = _stream(streams.get("stdin"), 0, given)
            self.stdout, out = _stream(streams.get("stdout"), 1, given)
            self.stderr, err = _stream(streams.get("stderr"), 2, given)
            try:
                self._forked = server().fork(
                    argv, (fd, out, err), cwd=cwd, env=env, new_session=terminal, terminal=terminal
                )
            except BaseException:
                for mine in filter(None, (self.stdin, self.stdout, self.stderr)):
                    mine.close()
                raise
        self.pid = self._forked.pid

    def poll(self) -> int | None:
        """Return its status, if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its status."""
        if self.returncode is None:
            try:
                self.returncode = self._forked.wait(_FOR_EVER if timeout is None else timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._forked.close()
        return self.returncode

    def communicate(
        self,
        input: str | None = None,  # noqa: A002 -- as its base has it
        timeout: float | None = None,
    ) -> tuple[Any, Any]:
        """Write to it, read what it writes to its end, and wait for that."""
        with ThreadPoolExecutor(2) as pool:
            read = [pool.submit(one.read) if one else None for one in (self.stdout, self.stderr)]
            try:
                if self.stdin:
                    with suppress(BrokenPipeError), self.stdin:
                        self.stdin.write(input or "")
                self.wait(timeout)
            except BaseException:
                self.kill()  # or the threads would wait for ever
                raise
            said = [one and one.result() for one in read]
        return said[0], said[1]

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)


def _stream(wanted: Any, number: int, given: ExitStack) -> tuple[IO[str] | None, int]:
    """Return our end, where there is one, and the descriptor that the command gets."""
    if wanted == subprocess.PIPE:
        ends = os.pipe()
        mine, theirs = ends if number else reversed(ends)
        given.callback(os.close, theirs)
        return os.fdopen(mine, "r" if number else "w", encoding="utf-8"), theirs
    if wanted == subprocess.DEVNULL:
        nothing = os.open(os.devnull, os.O_RDWR)
        given.callback(os.close, nothing)
        return None, nothing
    if wanted is None:
        return None, number
    return None, wanted if isinstance(wanted, int) else wanted.fileno()
