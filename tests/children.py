"""Other processes for tests: Python programs that know of teamd only what they import."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NoReturn, TextIO

from teamd.approvals.store import Approvals
from teamd.budget.ledger import Ledger
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.models import RetryPolicy
from teamd.supervisor.children import Children
from teamd.supervisor.fork import ChildProgram
from teamd.supervisor.live_settings import LiveSettings
from teamd.supervisor.roster_in_memory import RosterWriter
from teamd.supervisor.shutdowns import Shutdowns
from teamd.supervisor.slots import ConcurrencyLimit, Slots
from teamd.supervisor.team_context import TeamContext
from teamd.supervisor.workers import CopyMakers

NOBODY: Final = ChildProgram(
    run=lambda _: 0, load=lambda: None, warning=lambda: None, find_role=lambda _: None
)


def make_context(paths: TeamPaths, journal: Journal, program: ChildProgram = NOBODY) -> TeamContext:
    """Build it; no process is forked until `children.begin` is called."""
    settings = LiveSettings(paths, paths.settings)
    post = MailRouter(paths, durable=False, max_bytes=9999)
    roster = RosterWriter(post, journal, team_name="default")
    slots = Slots(ConcurrencyLimit(lambda: 1, RetryPolicy), journal)
    children = Children(program, settings, settings.heartbeats, roster, journal, slots, [])
    shutdowns = Shutdowns(Approvals(paths, post), children)
    ledger = Ledger(paths.ledger)
    copies = CopyMakers(children)
    return TeamContext(
        settings, post, ledger, roster, children, shutdowns, program, journal, copies
    )


PR_SET_CHILD_SUBREAPER = 36
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

    Close `stdin` to let it continue.
    """
    with subprocess.Popen(
        _argv(code, arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def adopt_orphans(*, adopts: bool = True) -> None:
    """Switch this process's subreaper flag (Linux); teammates and supervisors have it on."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0) == 0


@contextmanager
def adopting_orphans() -> Iterator[None]:
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(adopts=False)


@dataclass(frozen=True, slots=True)
class ForkedChild:
    """A process that was forked, and the pipes to its standard input and from its output."""

    pid: int
    stdin: TextIO
    stdout: TextIO


@contextmanager
def forked(deed: Callable[[], None]) -> Iterator[ForkedChild]:
    """Do something as `child` does it, in a process that imports nothing anew: it is forked."""
    given, feed = os.pipe()
    said, to_said = os.pipe()
    pid = os.fork()
    if pid == 0:
        _do_and_end(deed, given, to_said, (feed, said))
    os.close(given)
    os.close(to_said)
    with open(feed, "w") as stdin, open(said) as stdout:  # noqa: PTH123 -- descriptors
        try:
            yield ForkedChild(pid, stdin, stdout)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _do_and_end(
    deed: Callable[[], None], stdin: int, stdout: int, others: tuple[int, ...]
) -> NoReturn:
    code = 1
    try:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        for fd in (stdin, stdout, *others):
            os.close(fd)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- a descriptor, for good
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 -- the same
        deed()
        sys.stdout.flush()
        code = 0
    except BaseException:  # noqa: BLE001 -- the edge of a process
        traceback.print_exc()
    finally:
        os._exit(code)


@contextmanager
def holding(path: object) -> Iterator[subprocess.Popen[str]]:
    """A foreign program that has the `flock` on `path` until it ends."""
    with child(HOLDER, path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder


def said(code: str, *arguments: object, file_bytes: int | None = None) -> str:
    """Return the output of a program; no file can grow beyond `file_bytes`, as on a full disk."""
    if file_bytes is not None:
        limit = f"({file_bytes}, {file_bytes})"
        code = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, {limit})\n{code}"
    argv = _argv(code, arguments)
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout


def survived(left: int, deed: Callable[[Callable[[], None]], object]) -> bool:
    """Run `deed` in a forked process that is killed before its n-th operation on a file.

    Python calls audit hooks before each `open`, `flock`, `rename`, `truncate` and `unlink`.

    Args:
        left: the number of the first operation that is not done.
        deed: calls its argument when counting shall begin.

    Returns:
        Whether the process reached its end.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            deed(lambda: sys.addaudithook(_Deadly(left)))
            code = 0
        except BaseException:  # noqa: BLE001 -- the edge of a process
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return status == 0


@dataclass(slots=True)
class Kill:
    """A kill of a process before its file operation `number`, see `survived`."""

    number: int
    survived: bool = False

    def during(self, deed: Callable[[Callable[[], None]], object]) -> bool:
        self.survived = survived(self.number, deed)
        return self.survived


def kill_at_each_step(*, least: int) -> Iterator[Kill]:
    """Yield a kill for each file operation until the process survives; at least `least` kills."""
    for number in range(1, 300):
        kill = Kill(number)
        yield kill
        if kill.survived:
            assert number > least
            return
    raise AssertionError("the process is killed again and again")


class _Deadly:
    """Counts down to the end."""

    def __init__(self, left: int) -> None:
        self._left = left

    def __call__(self, event: str, _: object) -> None:
        if event.startswith(("open", "os.", "fcntl.")):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _argv(code: str, arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]
