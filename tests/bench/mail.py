"""Sending and taking mail, compared with other queues: `python -m tests.bench.mail`.

Every case builds each message with its own id and time, as JSON. Ours is `Post.send`, which looks
the receiver up in the roster. Each writer sends one message before its time starts, which excludes
one-time costs of opening and copying.
"""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
from tests.bench.mail_peers import Flock, Redis, Send, Sqlite, batches, redis_server, text

_LIMIT: Final = BatchLimit(messages=100, bytes=1 << 17, wary=True)
_FORK: Final = multiprocessing.get_context("fork")
_OURS: Final = "teamd"
# Files that were just created are checked again at each message. Every case rests equally long:
# after a pause each sync takes a tenth longer for a while.
_SETTLED_SECONDS: Final = 0.15
_FIRST: Final = -1  # the number of each writer's first message
_WRITERS: Final = 8
_WANTED: Final = {"SQLite FULL": 1.0, "SQLite NORMAL": 0.5}  # with several writers, at least


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

        batches(self._paths.inboxes, wanted, take)
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


def _kinds(durable: bool, connect: Callable[[bool], Any] | None) -> dict[str, Any]:
    level, synced = ("FULL", "always") if durable else ("NORMAL", "everysec")
    made: dict[str, Any] = {
        _OURS: partial(Teamd, durable=durable),
        "flock + fdatasync" if durable else "flock": partial(Flock, durable=durable),
        f"SQLite {level}": partial(Sqlite, durable=durable),
    }
    if connect is not None:
        made[f"Redis {synced}"] = partial(Redis, durable=durable, connect=connect)
    return made


def _show(title: str, figures: ruler.Samples, wanted: dict[str, float]) -> None:
    rows = []
    for name, found in figures.items():
        remark = "" if name == _OURS else f"teamd is {ruler.ratio(figures, _OURS, name):.2f} of it"
        if name in wanted:
            remark += f", at least {wanted[name]:g}"
        rows.append((name, found, remark))
    print(ruler.spread(title, rows, "messages a second"))


def main() -> int:
    """Print the tables; return 1 if teamd lost, doubled or tore a message."""
    short = ruler.options(__doc__).short
    rounds = 1 if short else 14  # times of disks and processes vary more than the programs differ
    tally: Counter[str] = Counter()
    with redis_server() as connect:
        print(f"SQLite {sqlite3.sqlite_version}", connect.version, sep=", ")
        for durable in (False, True):
            kinds = _kinds(durable, connect if connect.found else None)
            count = (200 if short else 5000) // (10 if durable else 1)
            suffix = ", durable" if durable else ""
            if durable:  # as the mail of teammates is
                singles = {name: partial(alone, kind, count) for name, kind in kinds.items()}
                _show(f"one writer{suffix}", ruler.interleave(singles, rounds), {})
            crowds = {
                name: partial(crowd, kind, count * 3 // 4, _WRITERS, tally, name)
                for name, kind in kinds.items()
            }
            title = f"{_WRITERS} writers and a reader{suffix}"
            _show(title, ruler.interleave(crowds, rounds), _WANTED)
    bad = [one for one in tally if "lost 0, doubled 0, torn 0" not in one]
    print("; ".join(bad) or f"Every one of {tally.total()} readers: lost 0, doubled 0, torn 0")
    return any(one.startswith(_OURS) for one in bad)


if __name__ == "__main__":
    sys.exit(main())
