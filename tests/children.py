"""Other processes for tests: Python programs that know of teamd only what they import."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLDER = """
import fcntl, sys
fd = open(sys.argv[1], "a")
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A program with pipes to its standard input and from its standard output; killed at the end.

    Closing `stdin` is how to tell it to go on.
    """
    with subprocess.Popen(
        _argv(code, arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def holding(path: object) -> Iterator[subprocess.Popen[str]]:
    """A foreign program that has the `flock` on `path` until it ends."""
    with child(HOLDER, path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder


def said(code: str, *arguments: object, file_bytes: int | None = None) -> str:
    """What a program prints; with `file_bytes` no file can grow over that, as on a full disk."""
    if file_bytes is not None:
        limit = f"({file_bytes}, {file_bytes})"
        code = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, {limit})\n{code}"
    argv = _argv(code, arguments)
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout


def _argv(code: str, arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]
