"""From mail in an idle teammate's inbox to its request at the server: `-m tests.bench.wake`.

The comparison is the minimal program with the same guarantees: a process that waits with inotify,
reads the line, syncs one record of the mail and one of the possible cost of the call, each in its
own file, and makes the bare SDK call with the same request. Mail without an id is identified only
by its position, so a marker is first written after it, as `teamd.mail.spool` describes; the minimal
program does the same, with one more sync.

The server does almost nothing: its time would be the same for both, and hide the difference. So
does the SDK's time, since it encodes the whole request at each call. Hence two tables: for a new
conversation, and for one with a text as long as some files that agents read.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from teamd.mail.lines import marker
from teamd.messages import new_id
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.bench import imitation, ruler
from tests.bench.spawn import Scene as Team
from tests.waiting import wait_until

_FORK: Final = multiprocessing.get_context("fork")
_OURS, _FLOOR = "teamd", "inotify + two syncs + SDK"
_NAMELESS, _NAMELESS_FLOOR = "teamd, mail without an id", "inotify + three syncs + SDK"
_FLOORS: Final = {_OURS: _FLOOR, _NAMELESS: _NAMELESS_FLOOR}
_BARE: Final = "bob"
_WANTED: Final = (1.3, 3.0)
_SETTINGS: Final = "[supervision]\nhibernate_seconds = 600\n"
_LONG: Final = "All work and no play. " * 4000
_RESTED_SECONDS: Final = 0.1  # the roster says idle until it hears of a turn, and afterwards


def append(path: Path, content: str = "Say yes.", **names: str) -> float:
    """Append a message as any program can; return the time before that."""
    line = json.dumps({**names, "from": "ci", "content": content}).encode() + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    begun = time.monotonic()
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, line)
    os.close(fd)
    return begun


class Scene:
    """An idle teammate, and the minimal program for comparison.

    Args:
        folder: an empty folder.
        team: a team with a teammate, eve.
    """

    def __init__(self, folder: Path, team: Team, served: imitation.Imitation) -> None:
        self._folder, self._team, self._served = folder, team, served
        self._bodies = _FORK.SimpleQueue()
        (folder / "inbox").mkdir()

    @contextmanager
    def bare_parts(self) -> Iterator[None]:
        """Run the minimal programs for the length of a block."""
        process = _FORK.Process(target=live, args=(self._folder, self._served.url, self._bodies))
        process.start()
        try:
            yield
        finally:
            process.kill()
            process.join()

    def wake(self, content: str = "Say yes.", *, named: bool) -> float:
        """Return the milliseconds from mail to the request of an idle teammate."""
        roster = Roster(self._team.paths)
        wait_until(lambda: roster.read().get("eve").status is Status.IDLE, what="eve is idle")
        time.sleep(_RESTED_SECONDS)
        names = {"id": new_id()} if named else {}
        return self._asked("eve", append(self._team.paths.inbox("eve"), content, **names))

    def size(self) -> int:
        """Return the size of the last request in bytes."""
        return len(json.dumps(self._served.last()))

    def floor(self, *, named: bool) -> float:
        """Return the milliseconds of the minimal program, with the body of the last request."""
        body = json.loads(json.dumps(self._served.last()).replace("'eve'", f"'{_BARE}'"))
        self._bodies.put((named, body))
        ready = self._folder / "ready"
        wait_until(ready.exists, what="it waits")
        time.sleep(_RESTED_SECONDS)
        took = self._asked(_BARE, append(self._folder / "inbox" / "eve.jsonl", id=new_id()))
        wait_until(lambda: not ready.exists(), what="it is answered")
        return took

    def _asked(self, name: str, begun: float) -> float:
        return (self._served.wait_for(name, after=begun) - begun) * 1000


def live(folder: Path, url: str, bodies: Any) -> None:
    """Run the minimal program: wait, read, record, call."""
    import anthropic  # noqa: PLC0415 -- in this process only
    from inotify_simple import INotify, flags  # noqa: PLC0415

    client = anthropic.Anthropic(base_url=url, api_key="test-key")
    queue = INotify()
    queue.add_watch(folder / "inbox", flags.MODIFY)
    inbox = os.open(folder / "inbox" / "eve.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    to_append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    records = [os.open(folder / name, to_append, 0o600) for name in ("mail", "cost")]
    at = os.fstat(inbox).st_size
    while True:
        named, body = bodies.get()
        (folder / "ready").touch()
        queue.read()
        line = os.pread(inbox, 1 << 16, at)
        at += len(line)
        if not named:
            at += os.write(inbox, marker(new_id()))
            os.fdatasync(inbox)
            queue.read()  # discard the events that this has caused
        for record in records:
            os.write(record, line)
        for record in records:
            os.fdatasync(record)
        for _ in client.messages.create(**{**body, "stream": True}):
            pass
        (folder / "ready").unlink()


def measure(rounds: int) -> Iterator[tuple[int, ruler.Samples]]:
    """Wake an idle teammate and the minimal program again and again.

    Yields:
        The size of the last request in bytes, and the figures; a short conversation comes first.
    """
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as made, imitation.running() as served:
        folder = Path(made)
        (folder / "team").mkdir()
        team = Team(folder / "team", served, settings=_SETTINGS)
        scene = Scene(folder, team, served)
        cases: dict[str, Callable[[], float]] = {
            _OURS: partial(scene.wake, named=True),
            _NAMELESS: partial(scene.wake, named=False),
            _FLOOR: partial(scene.floor, named=True),
            _NAMELESS_FLOOR: partial(scene.floor, named=False),
        }
        with team.running(), scene.bare_parts():
            for content in ("Say yes.", _LONG):
                scene.wake(content, named=True)
                ruler.interleave(cases, 1)  # the first request of a process takes longer
                measured = ruler.interleave(cases, rounds)
                yield scene.size(), measured


def main() -> int:
    """Print the tables; a missing wake has already raised an error."""
    tables = measure(5 if ruler.options(__doc__).short else 40)
    print(ruler.machine())
    for about, (size, figures) in zip(("", ", a long conversation"), tables, strict=True):
        _table(f"an idle teammate's wake{about}", figures)
        print(f"- requests of up to {size // 1000} KB\n")
    return 0


def _table(title: str, figures: ruler.Samples) -> None:
    wanted = " and ".join(f"{one:g}" for one in _WANTED)
    rows = []
    for name, found in figures.items():
        remark = f"95th {_quantile(found, 0.95):.3g}"
        if (floor := _FLOORS.get(name)) is not None:
            share = " and ".join(
                f"{_quantile(found, part) / _quantile(figures[floor], part):.2f}"
                for part in (0.5, 0.95)
            )
            remark += f"; {share} of its bare parts, wanted {wanted}"
        rows.append((name, found, remark))
    print(ruler.spread(title, rows, "ms"))


def _quantile(figures: list[float], part: float) -> float:
    return statistics.quantiles(figures, n=100, method="inclusive")[round(part * 100) - 1]


if __name__ == "__main__":
    sys.exit(main())
