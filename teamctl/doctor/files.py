"""The team directory: does a supervisor serve it, and can its files be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamctl.doctor import Finding, Level
from teamd import damaged
from teamd.errors import TeamError
from teamd.files import pidfile
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.files.paths import TeamPaths


def files(paths: TeamPaths) -> Iterator[Finding]:
    """Look at what everybody needs, and at what each member needs; nothing is changed."""
    there = pidfile.supervisor(paths)
    if there is None:
        yield Finding(Level.NOTE, "no teamd runs", "`teamd start` starts it")
    else:
        yield Finding(Level.OK, f"teamd runs (pid {there.pid})")
    for damage in damaged.find_damage(paths):
        yield Finding(Level.FAIL, str(damage), f"`teamd restart` sets it aside: {damage.repaired}")
    for sentence in damaged.find_damaged_tasks(paths):
        yield Finding(Level.FAIL, sentence)
    for kept in damaged.find_kept(paths):
        yield Finding(
            Level.NOTE, f"{kept} is a damaged file that was set aside", "look at it, then remove it"
        )
    try:
        Roster(paths).read()
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
