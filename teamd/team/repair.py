"""The repair of a roster: a damaged one is kept aside and made anew from the conversations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from teamd.errors import BadName, DamagedRoster
from teamd.files import files
from teamd.messages import check_name
from teamd.states import Status
from teamd.team.roster import COLOURS, Member, Roster, Team
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened

if TYPE_CHECKING:
    from teamd.files.paths import TeamPaths
    from teamd.journal import Journal

_ANEW: Final = "it was made anew from the conversations"
_UNKNOWN: Final = (
    "Who was shut down is there again, idle, and who had a model of its own has the team's: "
    "`teamctl team` shows all"
)
# How system prompts of earlier versions tell what their records do not.
_PLAN: Final = "\nPlan: you work by plan."
_ELSEWHERE: Final = re.compile(r"You were put into this team by '([^'\s]+@[^'\s]+)', who leads")
_IDENTITY: Final = re.compile(r"You are '([^']+)', role: (.*)\.$", re.MULTILINE)


def repair_roster(paths: TeamPaths, journal: Journal) -> str | None:
    """Make a damaged or lost roster anew; return a line about it for whoever leads.

    Raises:
        StoreError: it cannot be read, or was made by a newer version.
    """
    roster = Roster(paths)
    try:
        roster.read()
    except DamagedRoster as error:
        kept = roster.replace_damaged(rebuild_team(paths))
        journal.warn("roster rebuilt", reason=str(error), kept=str(kept))
        what = f"was damaged ({error.why})"
        return f"{error.path} {what}: {_ANEW}, and what stood there is kept in {kept}. {_UNKNOWN}"
    if files.exists(paths.config) or not (team := rebuild_team(paths)).members:
        return None
    roster.update(lambda _: team)
    journal.warn("roster rebuilt", reason="it was gone")
    return f"{paths.config} was gone: {_ANEW}. {_UNKNOWN}"


def rebuild_team(paths: TeamPaths) -> Team:
    """Return the team whose conversations stand in the team directory; all of them idle."""
    team = Team()
    for path in sorted(paths.transcript("any").parent.glob("*.jsonl")):
        opened = _last_opened(Transcript(path))
        role = opened.role or _role_in(opened.system)
        try:
            name = check_name(path.stem)
        except BadName:
            continue  # user.jsonl, or no conversation at all
        if role is None:
            continue
        member = Member(
            name=name,
            agent_id=f"{name}@{team.name}",
            role=role,
            plan=_PLAN in opened.system if opened.plan is None else opened.plan,
            status=Status.IDLE,
            color=COLOURS[len(team.members) % len(COLOURS)],
            spawned_by=_spawned_by(opened),
        )
        team = team.with_member(member)
    return team


def _last_opened(transcript: Transcript) -> Opened:
    opened = [record for record in transcript.records() if isinstance(record, Opened)]
    return opened[-1] if opened else Opened()


def _role_in(system: str) -> str | None:
    found = _IDENTITY.search(system)
    return None if found is None else found[2]


def _spawned_by(opened: Opened) -> str | None:
    if opened.plan is not None:  # then all of it stands in the record
        return opened.spawned_by
    found = _ELSEWHERE.search(opened.system)
    return None if found is None else found[1]
