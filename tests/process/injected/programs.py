"""The programs into which failures are injected: `python programs.py PROGRAM TEAM`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.team.roster import Roster, Team
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered


def read(paths: TeamPaths) -> None:
    """Process mail as a teammate does: take, record, done."""
    box = Mailbox(paths, "bob")
    batch = box.take()
    if batch.messages:
        Transcript(paths.transcript("bob")).append(Delivered(messages=batch.messages))
    box.done(batch)


def update(paths: TeamPaths) -> None:
    """Write the roster with one more turn of bob."""

    def one_more(team: Team) -> Team:
        bob = team.get("bob")
        return team.with_member(replace(bob, turns=bob.turns + 1))

    Roster(paths).update(one_more)


PROGRAMS: Final[dict[str, Callable[[TeamPaths], None]]] = {
    "read": read,
    "update": update,
}

if __name__ == "__main__":
    _, program, team = sys.argv
    try:
        PROGRAMS[program](TeamPaths(Path(team)))
    except TeamError as error:
        sys.exit(str(error))
