"""Sending and taking mail, compared with other queues: `python -m tests.bench.mail`.

Every case builds each message with its own id and time, as JSON. Ours is `Post.send`, which looks
the receiver up in the roster. Each writer sends one message before its time starts, which excludes
one-time costs of opening and copying. With a reader, a bare file and SQLite are measured twice: see
`mail_peers` for how each reader waits.

Durable mail of many writers is measured in a flood and in a burst. A writer that finds an SQLite
database locked sleeps for up to a tenth of a second. That is half of the time of a burst, but
little of a flood, in which the writers have the database one after the other.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.mail.spool import BatchLimit
from teamd.messages import MAX_MESSAGE_BYTES, Message
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered, mail_in
from tests.bench import ruler
from tests.bench.mail_peers import Flock, Redis, Send, Sqlite, batches, line, redis_server, text

_LIMIT: Final = BatchLimit(messages=100, bytes=1 << 17, wary=True)
_FORK: Final = multiprocessing.get_context("fork")
_OURS: Final = "teamd"
# Files that were just created are checked again at each message. Every case rests equally long:
# after a pause each sync takes a tenth longer for a while.
_SETTLED_SECONDS: Final = 0.15
_FIRST: Final = -1  # the number of each writer's first message
_WRITERS: Final = 8
_BURST: Final = 100  # messages per writer
_POLLS: Final = ", its reader polls"
_TARGETS: Final = {
    (False, False): {"flock": 0.6, "SQLite NORMAL": 1.2},
    (True, False): {"bare + fdatasync": 0.85, "SQLite FULL": 1.25, "Redis always": 1.4},
    (False, True): {"flock": 0.7, "SQLite NORMAL": 1.0, "Redis everysec": 2.0},
    (True, True): {"SQLite FULL": 2.5, "Redis always": 0.75},
}


class Teamd:
    """A team's inbox: `Post` sends, and a reader takes mail as a teammate does."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._paths, self._durable = TeamPaths(folder / ".team"), durable
        self._paths.create()
        Roster(self._paths).update(
            lambda team: team.with_new("bob", role="clerk", status=Status.IDLE)
        )
        Mailbox(self._paths, "bob", durable=durable).create()  # as each spawn does

    def sender(self) -> Send:
        post = MailRouter(
            self._paths,
            durable=self._durable,
            max_bytes=MAX_MESSAGE_BYTES,
            max_inbox_bytes=1 << 40,
        )
        return lambda sender, n: post.send(Message(sender=sender, to="bob", content=text(n)))

    def read(self, wanted: int) -> Iterator[bytes]:
        box = Mailbox(self._paths, "bob", durable=self._durable)
        kept = Transcript(self._paths.transcript("bob"), durable=self._durable)

        def take() -> int:
            batch = box.take(_LIMIT)
            if batch.messages:
                kept.append(Delivered(messages=batch.messages))
                box.done(batch)
            return len(batch.messages)

        batches(self._paths.inboxes, wanted, take, polls=False)
        for record in kept.records():
            yield from (message.encode() for message in mail_in(record))


def alone(make: Callable[[Path], Any], count: int) -> float:
    """Return the messages per second of a single writer."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        kind = make(Path(folder))
        time.sleep(_SETTLED_SECONDS)
        send = _first_sent(kind, "writer0")
        begun = time.perf_counter()
        for n in range(count):
            send("writer0", n)
        return count / (time.perf_counter() - begun)


def _first_sent(kind: Any, sender: str) -> Send:
    send: Send = kind.sender()
    send(sender, _FIRST)
    return send


def crowd(
    make: Callable[[Path], Any], count: int, writers: int, tally: Counter[str], name: str
) -> float:
    """Return the messages per second of several writers while a reader takes them."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        kind = make(Path(folder))
        time.sleep(_SETTLED_SECONDS)
        gate, came, times = _FORK.Barrier(writers), _FORK.SimpleQueue(), _FORK.SimpleQueue()
        senders = [
            _FORK.Process(target=_send, args=(kind, gate, times, f"writer{n}", count))
            for n in range(writers)
        ]
        reader = _FORK.Process(target=_read, args=(kind, came, writers * (count + 1)))
        for process in (*senders, reader):
            process.start()
        begun, ended = zip(*(times.get() for _ in senders), strict=True)
        reader.join(60)
        lost = "it hangs" if reader.is_alive() else came.get()
        reader.kill()
        tally[f"{name}: {lost}"] += 1
        seconds: float = max(ended) - min(begun)
        return writers * count / seconds


def _send(kind: Any, gate: Any, times: Any, sender: str, count: int) -> None:
    send = _first_sent(kind, sender)
    gate.wait()
    begun = time.perf_counter()
    try:
        for n in range(count):
            send(sender, n)
    finally:  # the parent waits for this after an error, too
        times.put((begun, time.perf_counter()))


def _read(kind: Any, came: Any, wanted: int) -> None:
    found: Counter[tuple[str, int]] = Counter()
    torn = 0
    for one in kind.read(wanted):
        try:
            message = json.loads(one)
            found[message["from"], int(message["content"].split()[0])] += 1
        except (ValueError, KeyError):
            torn += 1
    doubled = sum(found.values()) - len(found)
    came.put(f"lost {wanted - len(found)}, doubled {doubled}, torn {torn}")


def take(count: int, how: Callable[[Path, int], None]) -> float:
    """Return the milliseconds that taking this many messages needs."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        paths = TeamPaths(Path(folder) / ".team")
        paths.create()
        paths.inbox("bob").write_bytes(b"".join(line("lead", n) for n in range(count)))
        begun = time.perf_counter()
        how(paths.root, count)
        return (time.perf_counter() - begun) * 1000


def take_ours(root: Path, count: int) -> None:
    """Take all at once; safe from kills and power cuts."""
    box = Mailbox(TeamPaths(root), "bob", max_inbox_bytes=1 << 40)
    batch = box.take()
    if len(batch.messages) != count:
        raise AssertionError(len(batch.messages))


def take_as_in_the_lessons(root: Path, count: int) -> None:
    """Read all under a lock, line by line, and truncate; no message is safe from a kill."""
    with TeamPaths(root).inbox("bob").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = [json.loads(one) for one in file.read().splitlines()]
        file.truncate(0)
    if len(found) != count:
        raise AssertionError(len(found))


def _kinds(durable: bool, connect: Callable[[bool], Any] | None) -> dict[str, Any]:
    level = "FULL" if durable else "NORMAL"
    made: dict[str, Any] = {
        _OURS: partial(Teamd, durable=durable),
        "bare + fdatasync" if durable else "flock": partial(
            Flock, durable=durable, locks=not durable
        ),
        f"SQLite {level}": partial(Sqlite, durable=durable),
    }
    if connect is not None:
        name = "Redis always" if durable else "Redis everysec"
        made[name] = partial(Redis, durable=durable, connect=connect)
    return made


def _table(title: str, figures: ruler.Samples, targets: dict[str, float]) -> None:
    rows = []
    for name, found in figures.items():
        remark = ""
        if name != _OURS:
            target = targets.get(name.removesuffix(_POLLS))
            wanted = "" if target is None else f", wanted {target}"
            remark = f"teamd is {ruler.ratio(figures, _OURS, name):.2f} of it{wanted}"
        rows.append((name, found, remark))
    print(ruler.spread(title, rows, "messages a second"))


def _crowds(
    kinds: dict[str, Any], flood: int, rounds: int, tally: Counter[str], *, durable: bool
) -> None:
    """Print the tables of many writers, each of which sends so many messages."""
    kinds.pop("bare + fdatasync", None)  # it has no lock, and loses mail
    polling = {
        name + _POLLS: partial(kind, polls=True)
        for name, kind in kinds.items()
        if kind.func in (Flock, Sqlite)
    }
    if durable:
        kinds["flock + fdatasync"] = partial(Flock, durable=True)
    sizes = {"": flood}
    if durable:
        sizes[f", a burst of {_BURST} from each"] = _BURST
    for size, each in sizes.items():
        cases = {
            name: partial(crowd, kind, each, _WRITERS, tally, name)
            for name, kind in (kinds | polling).items()
        }
        title = f"{_WRITERS} writers and a reader{', durable' if durable else ''}{size}"
        # With few cores, the scheduling of the processes is random.
        _table(title, ruler.interleave(cases, rounds * 2), _TARGETS[durable, True])


def main() -> int:
    """Print the tables; return 1 if teamd lost, doubled or tore a message."""
    short = ruler.options(__doc__).short
    rounds = 1 if short else 7
    tally: Counter[str] = Counter()
    with ExitStack() as stack:
        connect = stack.enter_context(redis_server())
        print(ruler.machine(), f"SQLite {sqlite3.sqlite_version}", connect.version, sep=", ")
        for durable in (False, True):
            kinds = _kinds(durable, connect if connect.found else None)
            many = (200 if short else 5000) // (10 if durable else 1)
            cases = {name: partial(alone, kind, many) for name, kind in kinds.items()}
            title = f"one writer{', durable' if durable else ''}"
            # Disk times vary more from run to run than the compared programs differ.
            more = rounds * 2 if durable else rounds
            _table(title, ruler.interleave(cases, more), _TARGETS[durable, False])
            _crowds(kinds, many * 3 // 4, rounds, tally, durable=durable)
    count = 2000 if short else 100_000
    ways = {"teamd": take_ours, "the lessons' way": take_as_in_the_lessons}
    took = ruler.interleave({name: partial(take, count, how) for name, how in ways.items()}, rounds)
    remark = f"teamd takes {ruler.ratio(took, 'teamd', next(reversed(ways))):.2f} of it, wanted 0.5"
    rows = [(name, took[name], "" if name == "teamd" else remark) for name in ways]
    print(ruler.spread(f"taking {count:,} messages", rows, "ms"))
    print(*(f"- {outcome} ({runs} x)" for outcome, runs in sorted(tally.items())), sep="\n")
    bad = [one for one in tally if one.startswith(_OURS) and "lost 0, doubled 0, torn 0" not in one]
    return len(bad)


if __name__ == "__main__":
    sys.exit(main())
