"""System calls that fail, or are the last of their process, by strace(1)."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

STRACE: Final = shutil.which("strace")
CALLS: Final = (
    "openat",
    "flock",
    "write",
    "pwrite64",
    "fdatasync",
    "fsync",
    "ftruncate",
    "rename",
    "unlink",
)
_SYNCS: Final = ("fdatasync", "fsync")
FAULTS: Final = ("signal=KILL", "error=ENOSPC", "error=EIO", "error=EINTR")
LONGEST_SECONDS: Final = 60.0
_CALL: Final = re.compile(r"(?:\d+ +)?(\w+)\((.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault at the Nth call of a name in a process.

    Attributes:
        what: the call as the trace showed it.
    """

    call: str
    number: int
    fault: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.fault} at {self.what}"

    @property
    def deadly(self) -> bool:
        """Whether the process is killed."""
        return self.fault == "signal=KILL"

    @property
    def late(self) -> bool:
        """Whether everything may be done by then, but for waiting for the disk."""
        return self.deadly or self.call in _SYNCS or "O_DIRECTORY" in self.what


def injections(argv: Sequence[str], team: Path, log: Path) -> Iterator[Injection]:
    """Run a program once, and yield every fault at every call of it that touches the team."""
    status = _strace(argv, log)
    assert status == 0, f"{argv} ended with {status} without any fault"
    numbers: dict[str, int] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        found = _CALL.match(line)
        if found is None:
            continue
        call, rest = found.groups()
        numbers[call] = numbers.get(call, 0) + 1
        if str(team) in rest:
            what = line.replace(str(team), "TEAM")[:200]
            for fault in FAULTS:
                yield Injection(call=call, number=numbers[call], fault=fault, what=what)


def run(argv: Sequence[str], injection: Injection, log: Path) -> int:
    """Run a program with a fault in it; its status, negative if it was killed."""
    rule = f"inject={injection.call}:{injection.fault}:when={injection.number}"
    status = _strace(argv, log, "-e", rule)
    made = log.read_text(encoding="utf-8", errors="replace")
    assert "(INJECTED)" in made or status == -9, f"{injection} has not been made"
    return status


def run_short(argv: Sequence[str], most_bytes: int) -> int:
    """Run a program none of whose writes gets beyond this offset of a file.

    The write that would is a short one, and the next one fails: what a full disk does.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return subprocess.run(
        argv,
        check=False,
        timeout=LONGEST_SECONDS,
        capture_output=True,
        preexec_fn=limit,
    ).returncode


def program(code: str, *arguments: object) -> list[str]:
    """The command line of a small program."""
    return [sys.executable, "-c", code, *map(str, arguments)]


def _strace(argv: Sequence[str], log: Path, *options: str) -> int:
    assert STRACE is not None
    calls = f"trace={','.join(CALLS)}"
    words = [STRACE, "-f", "-qq", "-y", "-o", str(log), "-e", calls, *options]
    return subprocess.run(
        [*words, "--", *argv], check=False, timeout=LONGEST_SECONDS, capture_output=True
    ).returncode
