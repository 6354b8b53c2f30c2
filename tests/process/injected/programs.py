"""The programs into which failures are injected: `python programs.py PROGRAM TEAM`."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd import settings
from teamd.assembly import assembled
from teamd.errors import TeamError
from teamd.journal import Journal
from teamd.parts import Parts
from teamd.protocol import TEAMD
from teamd.store import running
from teamd.store.mailbox import Mailbox
from teamd.store.paths import TeamPaths
from teamd.store.roster import Roster
from teamd.store.transcript import Transcript
from teamd.supervisor import kernel
from teamd.supervisor.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.agent.pulse import Pulse
    from teamd.store.roster import Team

STOP_SECONDS: Final = 5.0
ROUND_SECONDS: Final = 0.05


def read(paths: TeamPaths) -> None:
    """What a teammate does with its mail: take it, write it down, be done with it."""
    box = Mailbox(paths, "bob")
    batch = box.take()
    if batch.messages:
        kept = [{"id": m.id, "content": m.content} for m in batch.messages]
        Transcript(paths.transcript("bob")).append(*kept)
    box.done(batch)


def update(paths: TeamPaths) -> None:
    """Write the roster: bob has had one more turn."""

    def one_more(team: Team) -> Team:
        bob = team.get("bob")
        return team.with_member(replace(bob, turns=bob.turns + 1))

    Roster(paths).update(one_more)


class Resting:
    """Teammates that do nothing, for as long as there is a supervisor."""

    def live(self, name: str, bell: int, pulse: Pulse) -> int:  # noqa: ARG002 -- nothing is done
        """Wait for a signal that ends it."""
        while True:
            signal.pause()

    def caution(self) -> str | None:
        """Nothing needs to be known."""
        return None

    def role(self, role: str) -> object:  # noqa: ARG002 -- there are no files of roles
        """There is none."""
        return None


def supervise(paths: TeamPaths) -> None:
    """Do what the control inbox asks for, as `teamd` does it; then end."""
    chosen = settings.load(None, folder=paths.home)
    journal = Journal(paths.log(TEAMD), TEAMD)
    parts = Parts(paths, paths.settings, chosen, journal, running.claim(paths))
    mailbox = Mailbox(paths, TEAMD, durable=False)
    kernel.become_subreaper()
    supervisor = assembled(
        parts,
        Resting(),
        Signals(signal.SIGTERM, signal.SIGCHLD),
        alive=lambda: None if mailbox.waiting() else signal.raise_signal(signal.SIGTERM),
        round_seconds=ROUND_SECONDS,
    ).supervisor
    supervisor.resume()
    supervisor.run()


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
