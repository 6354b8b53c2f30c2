"""The teams of this user over all projects, those that need the person first."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.overview.members import count_unread, read_requests
from teamd.team import teams
from teamd.team.roster import Roster
from teamd.team.states import Status


@dataclass(frozen=True, slots=True)
class ListedTeam:
    """A team of the list.

    Attributes:
        key: names the team in addresses of the page.
        requests: the number of requests that wait for the person.
        mail: the number of messages for the person.
    """

    key: str
    facts: teams.TeamFacts
    requests: int
    mail: int

    @property
    def stopped(self) -> int:
        """The number of members that have failed or are paused without a request."""
        statuses = self.facts.statuses
        return statuses.get(Status.FAILED, 0) + statuses.get(Status.PAUSED, 0)

    def to_json(self) -> dict[str, Any]:
        shown = {"key": self.key, "project": self.facts.folder}
        needs = {"requests": self.requests, "mail": self.mail, "stopped": self.stopped}
        return {**self.facts.to_json(), **shown, **needs}


def key_of(paths: TeamPaths) -> str:
    """Return the name of a team in addresses of the page."""
    return hashlib.sha256(os.fsencode(paths.root.resolve())).hexdigest()[:16]


def list_teams(own: TeamPaths) -> list[ListedTeam]:
    """Return all teams, those that need the person first, then those that run."""
    found = [_look(team) for team in teams.every_team()]
    if all(one.facts.paths.root.resolve() != own.root.resolve() for one in found):
        found += [_look(team) for team in teams.teams(own.home) if team.paths.root == own.root]
    return sorted(found, key=_urgency)


def find_team(key: str) -> TeamPaths | None:
    """Return the team of a key, if this user has one."""
    known = (team.paths for team in teams.every_team())
    return next((paths for paths in known if key_of(paths) == key), None)


def _look(team: teams.TeamFacts) -> ListedTeam:
    requests = mail = 0
    with suppress(TeamError):  # an unreadable file of one team does not hide the others
        roster = Roster(team.paths).read()
        requests = sum(one.yours for one in read_requests(team.paths, roster))
        mail = count_unread(team.paths, roster.person)
    return ListedTeam(key_of(team.paths), team, requests, mail)


def _urgency(one: ListedTeam) -> tuple[int, int, bool, str]:
    return -one.requests, -one.stopped, one.facts.pid is None, str(one.facts.paths.root)
