"""A damaged roster is kept aside and made anew from what the conversations know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from teamd.errors import BadName, DamagedRoster
from teamd.protocol import check_name
from teamd.states import Status
from teamd.store import files
from teamd.store.roster import COLOURS, Member, Roster, Team
from teamd.store.transcript import Transcript

if TYPE_CHECKING:
    from teamd.journal import Journal
    from teamd.store.paths import TeamPaths
    from teamd.store.transcript import Record

_ANEW: Final = "it was made anew from the conversations"
_UNKNOWN: Final = (
    "Who was shut down is there again, idle, and who had a model of its own has the team's: "
    "`teamctl team` shows all"
)
# How every system prompt begins; the role ends with the sentence.
_PLAN: Final = "\nPlan: you work by plan."
_ELSEWHERE: Final = re.compile(r"You were put into this team by '([^'\s]+@[^'\s]+)', who leads")
_IDENTITY: Final = re.compile(r"You are '([^']+)', role: (.*)\.$", re.MULTILINE)


def mended(paths: TeamPaths, journal: Journal) -> str | None:
    """Make a damaged or lost roster anew; returns a line about it for whoever leads.

    Raises:
        StoreError: it cannot be read, or was made by a newer version.
    """
    roster = Roster(paths)
    try:
        roster.read()
    except DamagedRoster as error:
        kept = roster.replace_damaged(rebuilt(paths))
        journal.warn("roster rebuilt", reason=str(error), kept=str(kept))
        what = f"was damaged ({error.why})"
        return f"{error.path} {what}: {_ANEW}, and what stood there is kept in {kept}. {_UNKNOWN}"
    if files.exists(paths.config) or not (team := rebuilt(paths)).members:
        return None
    roster.update(lambda _: team)
    journal.warn("roster rebuilt", reason="it was gone")
    return f"{paths.config} was gone: {_ANEW}. {_UNKNOWN}"


def rebuilt(paths: TeamPaths) -> Team:
    """The team whose conversations stand in the team directory; all of them idle."""
    team = Team()
    for path in sorted(paths.transcript("any").parent.glob("*.jsonl")):
        opened = _opened(Transcript(path))
        role = _role(opened)
        try:
            name = check_name(path.stem)
        except BadName:
            continue  # user.jsonl, or no conversation at all
        if role is not None:
            elsewhere = _ELSEWHERE.search(str(opened.get("system")))
            colour = COLOURS[len(team.members) % len(COLOURS)]
            team = team.with_member(
                Member(
                    name=name,
                    agent_id=f"{name}@{team.name}",
                    role=role,
                    plan=_PLAN in str(opened.get("system")),
                    status=Status.IDLE,
                    color=colour,
                    spawned_by=elsewhere and elsewhere[1],
                )
            )
    return team


def _opened(transcript: Transcript) -> Record:
    """The record that the last conversation was opened with."""
    opened = [record for record in transcript.records() if record.get("record") == "opened"]
    return opened[-1] if opened else {}


def _role(opened: Record) -> str | None:
    if isinstance(role := opened.get("role"), str) and role:
        return role
    found = _IDENTITY.search(str(opened.get("system", "")))  # an early version kept no role
    return None if found is None else found[2]
