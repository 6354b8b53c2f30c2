"""A damaged roster is kept aside and made anew from what the conversations know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from teamd.errors import BadName, DamagedRoster
from teamd.protocol import check_name
from teamd.states import Status
from teamd.store.roster import COLOURS, Member, Roster, Team
from teamd.store.transcript import Transcript

if TYPE_CHECKING:
    from teamd.journal import Journal
    from teamd.store.paths import TeamPaths

# How every system prompt begins; the role ends with the sentence.
_PLAN: Final = "\nPlan: you work by plan."
_ELSEWHERE: Final = re.compile(r"You were put into this team by '([^'\s]+@[^'\s]+)', who leads")
_IDENTITY: Final = re.compile(r"You are '([^']+)', role: (.*)\.$", re.MULTILINE)


def mended(paths: TeamPaths, journal: Journal) -> str | None:
    """Make a damaged roster anew; returns a line about it for whoever leads, if there was one.

    Raises:
        StoreError: it cannot be read, or was made by a newer version.
    """
    roster = Roster(paths)
    try:
        roster.read()
    except DamagedRoster as error:
        kept = roster.replace_damaged(rebuilt(paths))
        journal.warn("roster rebuilt", reason=str(error), kept=str(kept))
        return (
            f"{error.path} was damaged ({error.why}): it was made anew from the conversations, and "
            f"what stood there is kept in {kept}. Who was shut down is there again, idle, and who "
            "had a model of its own has the team's: `teamctl team` shows all"
        )
    return None


def rebuilt(paths: TeamPaths) -> Team:
    """The team whose conversations stand in the team directory; all of them idle."""
    team = Team()
    for path in sorted(paths.transcript("any").parent.glob("*.jsonl")):
        system = _system(Transcript(path))
        role = _IDENTITY.search(system)
        try:
            name = check_name(path.stem)
        except BadName:
            continue  # user.jsonl, or no conversation at all
        if role is not None:
            elsewhere = _ELSEWHERE.search(system)
            colour = COLOURS[len(team.members) % len(COLOURS)]
            team = team.with_member(
                Member(
                    name=name,
                    agent_id=f"{name}@{team.name}",
                    role=role[2],
                    plan=_PLAN in system,
                    status=Status.IDLE,
                    color=colour,
                    spawned_by=elsewhere and elsewhere[1],
                )
            )
    return team


def _system(transcript: Transcript) -> str:
    """The system prompt that the last conversation was opened with."""
    opened = [record for record in transcript.records() if record.get("record") == "opened"]
    return str(opened[-1].get("system", "")) if opened else ""
