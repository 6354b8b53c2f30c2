"""The programs of the mail campaigns: `python mail_programs.py PROGRAM TEAM ARGUMENT …`."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import portalocker

from teamd.errors import InboxFull
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered

OWNER = "bob"
DELIVERED = "delivered"  # the transcript into which the reader puts what it took
_LOOK_SECONDS = 0.2
_PAUSE_SECONDS = 0.001
_LIFE_MILLISECONDS = 15
_MANY_KILLS = 25


def write(  # noqa: PLR0917 -- the words of a command line
    paths: TeamPaths, sender: str, count: str, size: str, durability: str, queue: str
) -> None:
    """Put messages one after the other, `n` numbers them; wait while the queue is too long.

    What a full inbox refuses is sent again, the very same: it would be there twice if it had been
    written.
    """
    box = Mailbox(paths, OWNER, durable=durability == "disk")
    for n in range(int(count)):
        while paths.has_mail(OWNER) and paths.inbox(OWNER).stat().st_size > int(queue):
            time.sleep(_PAUSE_SECONDS)
        message = Message(sender=sender, to=OWNER, content="x" * int(size), extra={"n": n})
        while not _is_put(box, message):
            time.sleep(_PAUSE_SECONDS)


def _is_put(box: Mailbox, message: Message) -> bool:
    try:
        box.put(message)
    except InboxFull:
        return False
    return True


def write_foreign(paths: TeamPaths, sender: str, count: str, size: str) -> None:
    """What any program may do: lock, append, close; no id, no time."""
    for n in range(int(count)):
        with paths.inbox(OWNER).open("ab", 0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            line = json.dumps({"from": sender, "n": n, "content": "x" * int(size)})
            file.write(line.encode() + b"\n")


def write_with_portalocker(paths: TeamPaths, sender: str, count: str, size: str) -> None:
    """Do the same with portalocker; unbuffered, since the lock goes before a buffer is flushed."""
    for n in range(int(count)):
        with paths.inbox(OWNER).open("ab", 0) as file:
            portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE)
            line = json.dumps({"from": sender, "n": n, "content": "x" * int(size)})
            file.write(line.encode() + b"\n")


def read(paths: TeamPaths, durability: str) -> None:
    """Take mail, put it where it belongs, be done with it, for as long as there is a parent."""
    parent = os.getppid()
    box = Mailbox(paths, OWNER, durable=durability == "disk")
    delivered = Transcript(paths.transcript(DELIVERED), durable=durability == "disk")
    while os.getppid() == parent:
        wait_for(paths.inboxes, lambda: box.waiting() or None, timeout_seconds=_LOOK_SECONDS)
        batch = box.take()
        if batch.messages:
            short = [
                replace(m, content="", extra={"n": m.extra["n"], "size": len(m.content)})
                for m in batch.messages
            ]
            delivered.append(Delivered(messages=tuple(short)))
        box.done(batch)


def read_and_die(paths: TeamPaths, durability: str, seed: str) -> None:
    """A reader after the other, each killed at a random moment; one figure for each kill."""
    chance = random.Random(seed)
    stop = select.poll()
    stop.register(sys.stdin, select.POLLIN | select.POLLHUP)
    for kills in itertools.count():
        reader = os.fork()
        if reader == 0:
            try:
                read(paths, durability)
            finally:
                os._exit(1)
        # Most lives are short; some last, and all last longer in the end: a reader begins with all
        # that was delivered, and would never come to a queue on a machine that is slow enough.
        told = stop.poll(chance.expovariate(1 / (_LIFE_MILLISECONDS + (kills / _MANY_KILLS) ** 2)))
        os.kill(reader, signal.SIGKILL)
        _, status = os.waitpid(reader, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
        if told:
            return


if __name__ == "__main__":
    _, program, team, *rest = sys.argv
    globals()[program](TeamPaths(Path(team)), *rest)
