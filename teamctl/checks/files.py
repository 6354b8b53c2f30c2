"""The team directory: does a supervisor serve it, and can its files be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamctl.checks import Finding, Level
from teamd.errors import TeamError
from teamd.store import running
from teamd.store.ledger import Ledger
from teamd.store.mailbox import Mailbox
from teamd.store.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from teamd.store.paths import TeamPaths


def files(paths: TeamPaths) -> Iterator[Finding]:
    """Look at what everybody needs, and at what each member needs; nothing is changed."""
    there = running.supervisor(paths)
    if there is None:
        yield Finding(Level.NOTE, "no teamd runs", "`teamd start` starts it")
    else:
        yield Finding(Level.OK, f"teamd runs (pid {there.pid})")
    yield from _failure(Ledger(paths.ledger).read)
    try:
        team = Roster(paths).read()
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
        return
    for member in team.members:
        yield from _failure(Mailbox(paths, member.name).queued)


def _failure(look: Callable[[], object]) -> Iterator[Finding]:
    try:
        look()
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
