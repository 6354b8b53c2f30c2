"""The teams of this user over all projects, those that need the person first."""

from __future__ import annotations

import hashlib
import os
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
        trouble: why the team, or a part of it, cannot be read; empty if all of it was read.
    """

    key: str
    facts: teams.TeamFacts
    requests: int = 0
    mail: int = 0
    trouble: str = ""

    @property
    def stopped(self) -> int:
        """The number of members that have failed or are paused without a request."""
        statuses = self.facts.statuses
        return statuses.get(Status.FAILED, 0) + statuses.get(Status.PAUSED, 0)

    def to_json(self) -> dict[str, Any]:
        """Return the team as the page's sidebar shows it."""
        shown = {"key": self.key, "project": self.facts.folder, "trouble": self.trouble}
        needs = {"requests": self.requests, "mail": self.mail, "stopped": self.stopped}
        return {**self.facts.to_json(), **shown, **needs}


def key_of(paths: TeamPaths) -> str:
    """Return the name of a team in addresses of the page."""
    return hashlib.sha256(os.fsencode(paths.root.resolve())).hexdigest()[:16]


def list_teams(own: TeamPaths) -> list[ListedTeam]:
    """Return all teams: those that need the person first, then those that run.

    Args:
        own: the team of the page, which is listed even if no teamd has served it.
    """
    found = teams.known_teams()
    if all(paths.root.resolve() != own.root.resolve() for paths in found):
        found.append(own)
    return sorted(map(_look, found), key=_urgency)


def find_team(key: str) -> TeamPaths | None:
    """Return the team of a key, if this user has one."""
    return next((paths for paths in teams.known_teams() if key_of(paths) == key), None)


def _look(paths: TeamPaths) -> ListedTeam:
    key = key_of(paths)
    try:
        facts = teams.read_facts(paths)
    except (TeamError, OSError) as error:
        name = paths.own_name or paths.home.resolve().name
        facts = teams.TeamFacts(name=name, paths=paths, pid=None, statuses={})
        return ListedTeam(key, facts, trouble=str(error))
    try:
        roster = Roster(paths).read()
        requests = sum(one.yours for one in read_requests(paths, roster))
        return ListedTeam(key, facts, requests, count_unread(paths, roster))
    except (TeamError, OSError) as error:
        return ListedTeam(key, facts, trouble=str(error))


def _urgency(one: ListedTeam) -> tuple[int, bool, int, bool, str]:
    facts = one.facts
    return -one.requests, not one.trouble, -one.stopped, facts.pid is None, str(facts.paths.root)
