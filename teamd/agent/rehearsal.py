"""A rehearsal of a teammate's first turn, in a process that waits to be one.

What it touches of the memory that is shared with the supervisor is copied by that, page by page: a
third of the time until a first request. It is a whole teammate of a team of its own, which is in
memory, and gone at the end; where the system has no place for that, nothing is rehearsed. Its model
is a script: nothing leaves this process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.agent import child
from teamd.budget.ledger import Ledger
from teamd.call_slots import CHANNEL
from teamd.files.paths import TeamPaths
from teamd.files.scratch import scratch_folder
from teamd.heartbeat import Heartbeat
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, PROMPT_KEY, Message
from teamd.states import ChildExit, Status
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = "rehearsal"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- a folder of random name in it, for nobody else
_PREFIX: Final = "teamd-rehearsal-"
_RESTED_SECONDS: Final = 0.001  # then it may hibernate, and that is the end
_LONGEST_SECONDS: Final = 0.5  # whatever keeps it: somebody may wait for its name to be heard


def rehearse(common: child.Common) -> None:
    """Be a teammate for a turn, as another process of this kind will be.

    Raises:
        Exception: whatever came in the way; all of it is gone.
    """
    if not os.access(_MEMORY, os.W_OK):
        return
    with _loop() as loop, scratch_folder(_MEMORY, _PREFIX) as folder:
        paths = TeamPaths(folder / ".team")
        paths.create()
        Roster(paths).update(lambda team: team.with_new(_NAME, role=_NAME, status=Status.WORKING))
        prompt = Message(sender=LEAD, to=_NAME, content=".", extra={PROMPT_KEY: True})
        Mailbox(paths, _NAME).put(prompt)
        script = folder / "script.json"
        script.write_text('{"turns": {}}', encoding="utf-8")
        given = common.settings
        settings = replace(
            given,
            team=replace(given.team, workspace=folder),
            model=replace(given.model, script=script, key_command=None),
            supervision=replace(given.supervision, hibernate_seconds=_RESTED_SECONDS),
        )
        own = replace(common, paths=paths, settings=settings, ledger=Ledger(paths.ledger))
        bell, supervisor = map(FileIO, os.pipe(), "rw")
        slots, grants = socket.socketpair(socket.AF_UNIX, CHANNEL)
        with bell, supervisor, slots, grants:
            os.set_blocking(bell.fileno(), False)
            slots.setblocking(False)
            grants.send(b"0")
            loop.call_later(_LONGEST_SECONDS, supervisor.close)  # its bell tells that it has gone
            fds = bell.fileno(), slots.fileno()
            ended = child.live(own, _NAME, *fds, Heartbeat(), hibernates=False, loop=loop)
        if ended != ChildExit.HIBERNATES:
            raise TimeoutError(ended)


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop of which nothing is left at the end, handlers of signals included.

    A signal that comes meanwhile is for who comes after it: it waits, and may end this process.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()
        asyncio.set_event_loop(None)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
