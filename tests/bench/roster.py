"""The roster under load: from a report until readers see it. `python -m tests.bench.roster`.

Eight teammates report at once, each for one of a hundred members; one supervisor writes. For
comparison, programs without a supervisor each lock the file, read it, change it and rename a new
one into place, with and without a sync. Two readers look for torn files.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from inotify_simple import INotify, flags

from teamd.agent.conversation.conversation import Conversation
from teamd.agent.work import Reporter
from teamd.files.locks import locked
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import TEAMD, new_id
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from tests.bench.ruler import interleave, machine, median, options, percentile, table
from tests.e2e.harness import opened
from tests.waiting import wait_until

Report = Callable[[Status, str], None]

_FORK: Final = multiprocessing.get_context("fork")
_MEMBERS: Final = 100
_NAMES: Final = tuple(f"t{number}" for number in range(8))
_OURS: Final = "teamd"
_STATUSES: Final = (Status.WORKING, Status.PAUSED, Status.IDLE)
_PAUSES: Final = (0.05, 0.15)  # seconds between reports, like those of a busy teammate
_NAP_SECONDS: Final = 0.005  # of the readers, so that they do not take a core each
_LIMIT_MS: Final = 20
_MOST_SECONDS: Final = 60
_HEAD: Final = (
    "until a report is seen", "median ms", "95th ms", "limit ms", "wrong", "torn", "reads"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the reports.

    Attributes:
        seconds: from each report until it was seen.
        wrong: the number of reporters whose final status is not their last report.
        reads: how many times the file was read.
        torn: the number of reads without a complete roster.
    """

    seconds: list[float]
    wrong: int
    reads: int
    torn: int


def ours(paths: TeamPaths, name: str) -> Report:
    """Return a report function of a teammate, which reports to its supervisor."""
    process = Roster(paths).read().get(name).process
    assert process is not None
    post = MailRouter(paths, durable=False, max_bytes=1 << 20)
    talk = Conversation(Transcript(paths.transcript("of_a_bench"), durable=False))
    box = Mailbox(paths, TEAMD, durable=False)
    return Reporter(name=name, process=process, conversation=talk, supervisor=box, post=post).report


def renamed(paths: TeamPaths, name: str, *, durable: bool) -> Report:
    """Return a report function that changes the file directly, as any program can."""
    aside = paths.config.with_name(f".{name}")

    def report(status: Status, reason: str) -> None:
        with locked(paths.config.with_suffix(".lock")):
            team = json.loads(paths.config.read_bytes())
            member = next(one for one in team["members"] if one["name"] == name)
            member |= {"status": str(status), "reason": reason}
            with aside.open("w", encoding="utf-8") as file:
                json.dump(team, file)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            aside.rename(paths.config)

    return report


def live(
    make: Callable[[str], Report], name: str, reasons: list[str], gate: Any, told: Any
) -> None:
    """Run one reporter: report with each reason, and send the time of each report."""
    report, begun = make(name), []
    gate.wait()
    for status, reason in zip(cycle(_STATUSES), reasons, strict=False):
        time.sleep(random.uniform(*_PAUSES))
        begun.append(time.monotonic())
        report(status, reason)
    told.put((name, begun))


def look(path: Path, over: Any, told: Any) -> None:
    """Run one reader: count the reads, and the torn ones."""
    reads = torn = 0
    while not over.is_set():
        torn += members_of(path.read_bytes()) is None
        reads += 1
        time.sleep(_NAP_SECONDS)
    told.put((reads, torn))


def members_of(content: bytes) -> Mapping[str, dict[str, Any]] | None:
    """Return the members by name, or `None` if the roster is not complete."""
    try:
        found = {member["name"]: member for member in json.loads(content)["members"]}
    except (ValueError, KeyError):
        return None
    return found if len(found) == _MEMBERS else None


class Watch:
    """Records when each report is first seen."""

    def __init__(self, path: Path) -> None:
        self._path, self._queue = path, INotify()
        self._queue.add_watch(path.parent, flags.MOVED_TO)
        self.seen: dict[str, list[float]] = {name: [] for name in _NAMES}

    def follow(self, reasons: list[str]) -> None:
        """Read the file whenever it is replaced, until each member's last report has been seen."""
        numbers = {reason: number for number, reason in enumerate(reasons)}
        until = time.monotonic() + _MOST_SECONDS
        while any(len(times) < len(reasons) for times in self.seen.values()):
            assert time.monotonic() < until, "reports are not seen"
            self._queue.read(timeout=1000)
            members, now = members_of(self._path.read_bytes()) or {}, time.monotonic()
            for name, times in self.seen.items():
                last = numbers.get(str(members.get(name, {}).get("reason")), -1)
                times.extend([now] * (last + 1 - len(times)))  # some may be skipped


def run(paths: TeamPaths, make: Callable[[str], Report], count: int) -> Outcome:
    """Run all reporters and readers at once."""
    mark = new_id()
    reasons = [f"{mark} {number}" for number in range(count)]
    gate, over = _FORK.Barrier(len(_NAMES) + 1), _FORK.Event()
    reports, reads = _FORK.SimpleQueue(), _FORK.SimpleQueue()
    watch = Watch(paths.config)
    processes = [_FORK.Process(target=look, args=(paths.config, over, reads)) for _ in range(2)]
    processes += [
        _FORK.Process(target=live, args=(make, name, reasons, gate, reports)) for name in _NAMES
    ]
    for process in processes:
        process.start()
    gate.wait()
    watch.follow(reasons)
    over.set()
    begun = dict(reports.get() for _ in _NAMES)
    looks = [reads.get() for _ in range(2)]
    for process in processes:
        process.join()
    last = members_of(paths.config.read_bytes()) or {}
    final = _STATUSES[(count - 1) % len(_STATUSES)]
    return Outcome(
        seconds=[
            seen - at
            for name in _NAMES
            for at, seen in zip(begun[name], watch.seen[name], strict=True)
        ],
        wrong=sum(last[name]["status"] != final for name in _NAMES),
        reads=sum(number for number, _ in looks),
        torn=sum(number for _, number in looks),
    )


@contextmanager
def supervised(root: Path) -> Iterator[TeamPaths]:
    """Yield a supervisor with eight idle teammates, and many that have ended."""
    root.mkdir()
    with opened(root) as project:
        project.ask_no_service("[supervision]\nhibernate_seconds = 3600\n")
        fill(project.paths)
        project.start()
        for name in _NAMES:
            project.wait_for_process(name)
        wait_until(lambda: not project.mail(TEAMD), what="the first reports are read")
        yield project.paths


def unsupervised(root: Path) -> TeamPaths:
    """Yield the same roster without a supervisor."""
    root.mkdir()
    paths = TeamPaths(root / ".team")
    fill(paths)
    return paths


def fill(paths: TeamPaths) -> None:
    """Write a roster of a hundred members: eight are idle, the others have ended."""
    paths.create()
    names = [*_NAMES, *(f"t{number}" for number in range(len(_NAMES), _MEMBERS))]
    states = [Status.IDLE if name in _NAMES else Status.SHUTDOWN for name in names]
    members = tuple(
        Member(name=name, agent_id=f"{name}@default", role="clerk", status=status)
        for name, status in zip(names, states, strict=True)
    )
    Roster(paths).update(lambda team: replace(team, members=members))


def measure(rounds: int, count: int) -> tuple[str, bool]:
    """Return the table, and whether our row has neither wrong statuses nor torn reads."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        ruled, plain = stack.enter_context(supervised(root / "ours")), unsupervised(root / "plain")
        makes: dict[str, Callable[[str], Report]] = {
            _OURS: partial(ours, ruled),
            "lock and rename": partial(renamed, plain, durable=False),
            "lock, fsync and rename": partial(renamed, plain, durable=True),
        }
        found: dict[str, list[Outcome]] = {name: [] for name in makes}

        def once(name: str) -> float:
            paths = ruled if name == _OURS else plain
            found[name].append(run(paths, makes[name], count))
            return median(found[name][-1].seconds)

        interleave({name: partial(once, name) for name in makes}, rounds)
    rows = [_row(name, outcomes) for name, outcomes in found.items()]
    title = f"Roster: {len(_NAMES)} reporters, {_MEMBERS} members"
    right = all(one.wrong == one.torn == 0 for one in found[_OURS])
    return table(title, [_HEAD, *rows]), right


def _row(name: str, outcomes: Sequence[Outcome]) -> list[str]:
    seconds = [one for outcome in outcomes for one in outcome.seconds]
    times = [f"{1000 * one:.1f}" for one in (median(seconds), percentile(seconds, 0.95))]
    limit = f"{_LIMIT_MS}" if name == _OURS else ""
    reads = sum(outcome.reads for outcome in outcomes)
    counts = (sum(outcome.wrong for outcome in outcomes), sum(one.torn for one in outcomes))
    return [name, *times, limit, *map(str, counts), str(reads)]


def main() -> int:
    """Print the table; return 1 if a status is wrong or a read was torn."""
    short = options(__doc__).short
    shown, right = measure(*((1, 10) if short else (3, 60)))
    print(machine(), shown, sep="\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
