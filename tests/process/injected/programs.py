"""The programs into which failures are injected: `python programs.py PROGRAM TEAM`."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd import daemon
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from teamd.supervisor.fork import ChildProgram
from teamd.team.roster import Roster
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.team.roster import Team

LOOK_SECONDS: Final = 0.1


def read(paths: TeamPaths) -> None:
    """What a teammate does with its mail: take it, write it down, be done with it."""
    box = Mailbox(paths, "bob")
    batch = box.take()
    if batch.messages:
        Transcript(paths.transcript("bob")).append(Delivered(messages=batch.messages))
    box.done(batch)


def update(paths: TeamPaths) -> None:
    """Write the roster: bob has had one more turn."""

    def one_more(team: Team) -> Team:
        bob = team.get("bob")
        return team.with_member(replace(bob, turns=bob.turns + 1))

    Roster(paths).update(one_more)


def idle(*_: object) -> int:
    """Be a teammate that does nothing, for as long as there is a supervisor."""
    while True:
        signal.pause()


IDLE: Final = ChildProgram(
    run=idle, load=lambda: None, warning=lambda: None, check_role=lambda _: None
)


def supervise(paths: TeamPaths) -> None:
    """Be `teamd`, over teammates that do nothing, until all that was asked for is done."""
    control = Mailbox(paths, TEAMD)

    def look(*_: object) -> None:
        with suppress(TeamError):
            if not control.waiting():
                signal.raise_signal(signal.SIGTERM)

    def ready() -> None:
        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)

    try:
        daemon.serve(paths, paths.settings, ready=ready, prepare=lambda _: IDLE)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


PROGRAMS: Final[dict[str, Callable[[TeamPaths], None]]] = {
    "read": read,
    "update": update,
    "supervise": supervise,
}

if __name__ == "__main__":
    _, program, team = sys.argv
    try:
        PROGRAMS[program](TeamPaths(Path(team)))
    except TeamError as error:
        sys.exit(str(error))
