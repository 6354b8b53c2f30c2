"""The programs into which failures are injected: `python programs.py PROGRAM TEAM`."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.errors import TeamError
from teamd.journal import Journal
from teamd.protocol import MAX_MESSAGE_BYTES, TEAMD
from teamd.store import files, running
from teamd.store.mailbox import Mailbox
from teamd.store.paths import TeamPaths
from teamd.store.post import Post
from teamd.store.rebuilding import opened_roster
from teamd.store.roster import Roster
from teamd.store.transcript import Transcript
from teamd.store.watch import watch
from teamd.supervisor import kernel, orphans
from teamd.supervisor.commands import Commands, Reloaded
from teamd.supervisor.register import Register
from teamd.supervisor.restarts import Tolerance
from teamd.supervisor.signals import Signals
from teamd.supervisor.supervisor import Supervisor
from teamd.supervisor.teammates import Teammates

if TYPE_CHECKING:
    from collections.abc import Callable

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


def supervise(paths: TeamPaths) -> None:
    """Do what the control inbox asks for, as `teamd.daemon` has it; then end.

    All of the supervisor, over teammates that do nothing.
    """
    claim = running.claim(paths)
    journal = Journal(paths.log(TEAMD), TEAMD)
    kernel.become_subreaper()
    signals = Signals(signal.SIGTERM, signal.SIGCHLD)
    watching = watch(paths.inboxes)
    post = Post(paths, durable=True, max_bytes=MAX_MESSAGE_BYTES)
    register = Register(
        roster=opened_roster(paths, journal),
        post=post,
        journal=journal,
        team_name="default",
        log_of=paths.log,
    )
    former = [m.process for m in register.team.members if m.process is not None]
    orphans.end_former(former, seconds=STOP_SECONDS, journal=journal)
    teammates = Teammates(
        run=lambda _name, _bell: _rest(),
        register=register,
        journal=journal,
        tolerance=lambda: Tolerance(crashes=5, within_seconds=60),
        private=lambda: [claim, watching.fileno(), *signals.descriptors],
    )
    commands = Commands(
        teammates=teammates,
        register=register,
        post=post,
        journal=journal,
        caution=lambda: None,
        reload=lambda: Reloaded((), ()),
    )
    mailbox = Mailbox(paths, TEAMD, durable=False)
    supervisor = Supervisor(
        paths=paths,
        mailbox=mailbox,
        register=register,
        teammates=teammates,
        commands=commands,
        orphans=orphans.Orphans(journal),
        signals=signals,
        watch=watching,
        journal=journal,
        claim_stands=lambda: files.stands_under(claim, paths.supervisor),
        stop_seconds=STOP_SECONDS,
        alive=lambda: None if mailbox.waiting() else signal.raise_signal(signal.SIGTERM),
        round_seconds=ROUND_SECONDS,
    )
    supervisor.resume()
    supervisor.run()


def _rest() -> int:
    """Do nothing, for as long as there is a supervisor."""
    while True:
        signal.pause()


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
