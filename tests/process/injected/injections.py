"""Injects failures or kills into system calls with strace(1)."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STRACE: Final = shutil.which("strace")
HERE: Final = Path(__file__).parent
SHORT: Final = "short write"
FULL: Final = "short write, then EFBIG"
KILL: Final = "signal=KILL"
# The possible failures of each call; a full disk only affects calls that write.
_STATS: Final = ("error=EIO",)  # stats are never interrupted, and a kill there tests nothing new
_LOOKS: Final = (KILL, "error=EIO", "error=EINTR")
_WRITES: Final = (KILL, "error=ENOSPC", "error=EIO", "error=EINTR")
FAULTS: Final = {
    "newfstatat": _STATS,
    **dict.fromkeys(("read", "pread64", "flock", "fchmod"), _LOOKS),
    **dict.fromkeys(("openat", "mkdir", "write", "pwrite64", "fdatasync", "fsync"), _WRITES),
    **dict.fromkeys(("ftruncate", "rename", "unlink"), _WRITES),
    **dict.fromkeys(("clone", "clone3"), (KILL, "error=EAGAIN", "error=ENOMEM")),
}
CALLS: Final = tuple(FAULTS)
_SAME_LOOKS: Final = 2  # a loop checks the same thing again and again
_FORKS: Final = ("clone", "clone3")
_SYNCS: Final = ("fdatasync", "fsync")
LONGEST_SECONDS: Final = 60.0
_CALL: Final = re.compile(r"(?:\d+ +)?(\w+)\((.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault at the Nth call of a name in a process.

    Attributes:
        what: the call, as shown by the trace.
    """

    call: str
    number: int
    fault: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.fault} at {self.call} {self.number}: {self.what}"

    @property
    def deadly(self) -> bool:
        return self.fault == KILL

    @property
    def late(self) -> bool:
        """Whether everything except waiting for the disk may be done by then."""
        return self.deadly or self.call in _SYNCS or "O_DIRECTORY" in self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of a program: its status, negative if it was killed, and its output."""

    status: int
    output: str
    complaint: str

    def check(self, injection: Injection) -> bool:
        """Check that a program was killed as planned, or ended with status 0 or one sentence.

        Returns:
            Whether its status is 0.
        """
        assert (self.status == -signal.SIGKILL) == injection.deadly, f"{injection}: {self}"
        if self.status > 0:
            assert self.status == 1, f"{injection}: {self}"
            assert self.complaint.count("\n") == 1, f"{injection}: {self}"
            assert "internal error" not in self.complaint, f"{injection}: {self}"
        return self.status == 0


def traced(argv: Sequence[str], log: Path) -> list[str]:
    """Run a program to its successful end; return its system calls, one line each."""
    ended = _strace(argv, log)
    assert ended.status == 0, f"{argv} ended without any fault: {ended}"
    return log.read_text(encoding="utf-8", errors="replace").splitlines()


def found_in(argv: Sequence[str], team: Path, log: Path) -> Iterator[Injection]:
    """Run a program once; yield every fault at every call of it that affects the team."""
    numbers: Counter[str] = Counter()
    looks: Counter[str] = Counter()
    for line in traced(argv, log):
        found = _CALL.match(line)
        if found is None:
            continue
        call, rest = found.groups()
        numbers[call] += 1
        if str(team) in rest or call in _FORKS:
            what = line.replace(str(team), "TEAM")[:200]
            if FAULTS[call] in (_STATS, _LOOKS):
                looks[what] += 1
                if looks[what] > _SAME_LOOKS:
                    continue
            for fault in FAULTS[call]:
                yield Injection(call=call, number=numbers[call], fault=fault, what=what)


def run(argv: Sequence[str], injection: Injection, team: Path, log: Path) -> Ended | None:
    """Run a program with a fault.

    Returns:
        `None` if the fault affected another call: the number of reads from its pipes varies between
            runs. Kills may hit any call.
    """
    rule = f"inject={injection.call}:{injection.fault}:when={injection.number}"
    ended = _strace(argv, log, "-e", rule)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    made = [line for line in lines if "(INJECTED)" in line]
    if injection.deadly:
        return ended if ended.status == -signal.SIGKILL else None
    if any(str(team) in line or injection.call in _FORKS for line in made):
        return ended
    return None


def run_short(argv: Sequence[str], number: int, mark: Path) -> Ended | None:
    """Run a Python program whose Nth write is short; return `None` if it has fewer writes."""
    ended = _shortened(argv, "once", number, mark)
    return ended if mark.exists() else None


def run_full(argv: Sequence[str], most_bytes: int) -> Ended:
    """Run a Python program whose writes all fail beyond this offset of a file."""
    return _shortened(argv, "full", most_bytes, Path())


def program(name: str, team: Path) -> list[str]:
    """Return the command line of a program in `programs.py`."""
    return [sys.executable, str(HERE / "programs.py"), name, str(team)]


def script(code: str, *arguments: object) -> list[str]:
    """Return the command line of a small program."""
    return [sys.executable, "-c", code, *map(str, arguments)]


def _shortened(argv: Sequence[str], how: str, number: int, mark: Path) -> Ended:
    python, *program = argv
    return clean([python, str(HERE / "short.py"), how, str(number), str(mark), *program])


def _strace(argv: Sequence[str], log: Path, *options: str) -> Ended:
    assert STRACE is not None
    calls = f"trace={','.join(f'?{call}' for call in FAULTS)}"  # no machine has all of them
    return clean([STRACE, "-qq", "-y", "-o", str(log), "-e", calls, *options, "--", *argv])


def clean(argv: Sequence[str]) -> Ended:
    """Run a program without faults."""
    done = subprocess.run(
        argv,
        check=False,
        timeout=LONGEST_SECONDS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return Ended(status=done.returncode, output=done.stdout, complaint=done.stderr)
