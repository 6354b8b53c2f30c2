"""The context that the handlers of requests, the inbox and the loop share."""

from __future__ import annotations

from dataclasses import dataclass

from teamd.budget.ledger import Ledger
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.supervisor.children import Children
from teamd.supervisor.fork import ChildProgram
from teamd.supervisor.live_settings import LiveSettings
from teamd.supervisor.roster_in_memory import RosterWriter
from teamd.supervisor.shutdowns import Shutdowns
from teamd.supervisor.workers import CopyMakers


@dataclass(frozen=True, slots=True)
class TeamContext:
    """One team's stores and policies, its roster, processes and shutdowns."""

    settings: LiveSettings
    post: MailRouter
    ledger: Ledger
    roster: RosterWriter
    children: Children
    shutdowns: Shutdowns
    program: ChildProgram
    journal: Journal
    copies: CopyMakers

    def describe_settings(self) -> None:
        """Record in the roster those facts from the settings that its readers show."""
        self.roster.describe(self.program.sandbox("", ""), self.settings.now)
