"""The state of a team at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from teamd.board.files import TaskFiles, Tasks
from teamd.budget.account import NOTHING, Account
from teamd.budget.ledger import Ledger
from teamd.errors import StoreError
from teamd.files import pidfile
from teamd.files.file_stamp import remember
from teamd.files.paths import TeamPaths
from teamd.messages import SHUTDOWN_TYPE
from teamd.overview import notices
from teamd.overview.branch import BranchAhead, read_ahead
from teamd.overview.finished import FinishReader
from teamd.overview.members import (
    MemberView,
    OpenRequest,
    count_rejected,
    count_unread,
    describe_requests,
    look_at,
    read_approvals,
)
from teamd.overview.notices import Notice
from teamd.overview.standstill import StandstillReader
from teamd.team.roster import Roster, Team


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The state of a team at one moment.

    Attributes:
        supervisor: the pid of its teamd; `None` if teamd does not run.
        other_version: the version of its teamd if it is not this program's, empty if that teamd
            did not record it; otherwise `None`.
        requests: the open requests, the oldest first.
        unread: the number of messages for the person, without requests that are answered; `None`
            if they cannot be counted.
        rejected: names and the number of their inbox lines that were not messages.
        untrusted: the settings that the person has yet to trust.
        untrusted_sentence: names them and the command that trusts them.
        trouble: why the costs are unknown; empty if they are known.
        standstill: the notices about work that nobody continues.
        finished: the notice that the work is done, until the person has looked.
    """

    paths: TeamPaths
    team: Team
    supervisor: int | None
    members: tuple[MemberView, ...]
    requests: tuple[OpenRequest, ...]
    unread: int | None
    other_version: str | None = None
    rejected: tuple[tuple[str, int], ...] = ()
    untrusted: tuple[str, ...] = ()
    untrusted_sentence: str = ""
    trouble: str = ""
    standstill: tuple[Notice, ...] = ()
    finished: Notice | None = None

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """The notices to the person, the most urgent first."""
        paths = self.paths
        found = [notices.describe_request(request) for request in self.waiting]
        found += notices.describe_stopped(paths, self.members)
        found += notices.describe_outages(paths, self.members)
        if self.supervisor is None:
            found.append(notices.describe_no_teamd(paths))
        if self.other_version is not None:
            found.append(notices.describe_version(paths, self.other_version))
        found += self.standstill
        found += [notices.describe_rejected(paths, name, count) for name, count in self.rejected]
        if self.unread:
            found.append(notices.describe_mail(paths, self.unread))
        if self.finished is not None:
            found.append(self.finished)
        return tuple(found)

    @cached_property
    def ahead(self) -> BranchAhead | None:
        """The queue's branch, if it has commits that the person's branch does not have."""
        return read_ahead(self.paths, self.team)

    @property
    def waiting(self) -> tuple[OpenRequest, ...]:
        """The requests that wait for the person, the oldest first."""
        return tuple(request for request in self.requests if request.yours)

    def find(self, name: str) -> MemberView | None:
        """Return the member of a name, ignoring case."""
        wanted = name.lower()
        return next((view for view in self.members if view.name.lower() == wanted), None)

    def to_json(self) -> dict[str, Any]:
        """The document that `teamctl team --json` prints."""
        return {
            "team_name": self.team.name,
            "teamd": self.supervisor,
            "members": [view.to_json() for view in self.members],
            "requests": [request.to_json() for request in self.requests],
            "notices": [notice.to_json() for notice in self.notices],
            "unread": self.unread,
            "sandbox": self.team.sandbox or None,
            "untrusted": list(self.untrusted),
            "merge": None if self.ahead is None else self.ahead.to_json(),
        }


class OverviewReader:
    """Reads the state of one team repeatedly; unchanged files are not read again.

    It takes no locks and writes nothing.

    Args:
        costs: whether to read the usage of each member, which takes as long as all the rest.
        copies: whether to look at working copies, for which git runs in each.
    """

    def __init__(self, paths: TeamPaths, *, costs: bool = True, copies: bool = True) -> None:
        self._paths = paths
        self._with_costs = costs
        self._with_copies = copies
        self._roster = Roster(paths)
        self._approvals = remember(paths.requests, partial(read_approvals, paths))
        self._task_files = TaskFiles(paths)
        board = remember(paths.tasks, self._read_board)
        self._finish = FinishReader(paths, board)
        self._standstill = StandstillReader(paths, board)
        self._costs = remember(paths.ledger, self._read_costs)

    def read(self, untrusted: tuple[Sequence[str], str] = ((), "")) -> Overview:
        """Read the state of the team.

        Args:
            untrusted: the result of `TeamOptions.waiting`.

        Raises:
            StoreError: the roster cannot be read.
        """
        paths, team = self._paths, self._roster.read()
        there = pidfile.supervisor(paths)
        requests = describe_requests(paths, team, self._approvals())
        wanted = self._with_costs and bool(team.members)
        used, trouble = self._costs() if wanted else (None, "")
        members = tuple(self._look(team, requests, used, served=there is not None))
        return Overview(
            paths=paths,
            team=team,
            supervisor=None if there is None else there.pid,
            other_version=None if there is None else pidfile.find_other_version(paths),
            members=members,
            requests=tuple(requests),
            unread=self._count_unread(team),
            rejected=tuple(count_rejected(paths, team)),
            untrusted=tuple(untrusted[0]),
            untrusted_sentence=untrusted[1],
            trouble=trouble,
            standstill=tuple(self._standstill.read(members)),
            finished=self._finish.read(members),
        )

    def _look(
        self,
        team: Team,
        requests: Sequence[OpenRequest],
        used: Mapping[str, Account] | None,
        *,
        served: bool,
    ) -> list[MemberView]:
        # The oldest request of each member. The leader, not the member, requests a shutdown.
        waiting = {
            one.approval.asker: one
            for one in reversed(requests)
            if one.approval.type != SHUTDOWN_TYPE
        }
        views = []
        for member in team.members:
            account = None if used is None else used.get(member.name, NOTHING)
            asked, copy = waiting.get(member.name), self._with_copies
            look = partial(look_at, self._paths, member, account, asked)
            views.append(look(served=served, with_copy=copy))
        return views

    def _read_board(self) -> Tasks:
        try:
            return self._task_files.read()
        except StoreError:  # `teamctl tasks` reports it
            return Tasks()

    def _read_costs(self) -> tuple[Mapping[str, Account] | None, str]:
        try:
            return Ledger(self._paths.ledger).read().used, ""
        except StoreError as error:
            return None, f"no costs are known: {error}"

    def _count_unread(self, team: Team) -> int | None:
        try:
            return count_unread(self._paths, team)
        except StoreError:
            return None
