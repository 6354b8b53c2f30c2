"""From mail in an idle teammate's inbox to its request at the server: `-m tests.bench.wake`.

The comparison is the minimal program with the same guarantees: a process that waits with inotify,
reads the line, syncs one record of the mail and one of the possible cost of the call, each in its
own file, and makes the bare SDK call with the same request. The server does almost nothing: its
time would be the same for both, and hide the difference.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from teamd.messages import new_id
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.bench import imitation, ruler
from tests.bench.spawn import Scene as Team
from tests.waiting import wait_until

_FORK: Final = multiprocessing.get_context("fork")
_OURS, _FLOOR = "teamd", "inotify + two syncs + SDK"
_BARE: Final = "bob"
_LIMIT_MS: Final = 100  # of the 95th percentile
_SETTINGS: Final = "[supervision]\nhibernate_seconds = 600\n"
_RESTED_SECONDS: Final = 0.1  # the roster says idle until it hears of a turn, and afterwards


def append(path: Path) -> float:
    """Append a message as any program can; return the time before that."""
    line = json.dumps({"id": new_id(), "from": "ci", "content": "Say yes."}).encode() + b"\n"
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

    def wake(self) -> float:
        """Return the milliseconds from mail to the request of an idle teammate."""
        roster = Roster(self._team.paths)
        wait_until(lambda: roster.read().get("eve").status is Status.IDLE, what="eve is idle")
        time.sleep(_RESTED_SECONDS)
        return self._asked("eve", append(self._team.paths.inbox("eve")))

    def floor(self) -> float:
        """Return the milliseconds of the minimal program, with the body of the last request."""
        body = json.loads(json.dumps(self._served.last()).replace("'eve'", f"'{_BARE}'"))
        self._bodies.put(body)
        ready = self._folder / "ready"
        wait_until(ready.exists, timeout_seconds=120, what="it has loaded the SDK and waits")
        time.sleep(_RESTED_SECONDS)
        took = self._asked(_BARE, append(self._folder / "inbox" / "eve.jsonl"))
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
        body = bodies.get()
        (folder / "ready").touch()
        queue.read()
        line = os.pread(inbox, 1 << 16, at)
        at += len(line)
        for record in records:
            os.write(record, line)
        for record in records:
            os.fdatasync(record)
        for _ in client.messages.create(**{**body, "stream": True}):
            pass
        (folder / "ready").unlink()


def measure(rounds: int) -> ruler.Samples:
    """Wake an idle teammate and the minimal program again and again."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as made, imitation.running() as served:
        folder = Path(made)
        (folder / "team").mkdir()
        team = Team(folder / "team", served, settings=_SETTINGS)
        scene = Scene(folder, team, served)
        cases = {_OURS: scene.wake, _FLOOR: scene.floor}
        with team.running(), scene.bare_parts():
            scene.wake()
            ruler.interleave(cases, 1)  # the first request of a process takes longer
            return ruler.interleave(cases, rounds)


def main() -> int:
    """Print the table; a missing wake has already raised an error."""
    figures = measure(5 if ruler.options(__doc__).short else 40)
    slowest = {name: f"95th {ruler.percentile(found, 0.95):.3g}" for name, found in figures.items()}
    slowest[_OURS] += f", at most {_LIMIT_MS}"
    rows = [(name, found, slowest[name]) for name, found in figures.items()]
    print(ruler.spread("an idle teammate's wake", rows, "ms"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
