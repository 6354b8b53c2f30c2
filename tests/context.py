"""The context of a supervisor's requests, with real files, for tests that start no supervisor."""

from __future__ import annotations

from typing import Final

from teamd.approvals.store import Approvals
from teamd.budget.ledger import Ledger
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.models.retry import RetryPolicy
from teamd.supervisor.children import Children
from teamd.supervisor.copying import CopyMakers
from teamd.supervisor.fork import ChildProgram
from teamd.supervisor.live_settings import LiveSettings
from teamd.supervisor.roster_writer import RosterWriter
from teamd.supervisor.shutdowns import ShutdownContext, Shutdowns
from teamd.supervisor.slots import ConcurrencyLimit, Slots
from teamd.supervisor.team_context import TeamContext

NOBODY: Final = ChildProgram(
    run=lambda _: 0, load=lambda: None, warning=lambda: None, find_role=lambda _: None
)


def make_context(paths: TeamPaths, journal: Journal, program: ChildProgram = NOBODY) -> TeamContext:
    """Build it; nobody is forked until `children.begin` is called."""
    settings = LiveSettings(paths, paths.settings)
    post = MailRouter(paths, durable=False, max_bytes=9999)
    roster = RosterWriter(post, journal, team_name="default")
    slots = Slots(ConcurrencyLimit(lambda: 1, RetryPolicy), journal)
    children = Children(program, settings, settings.heartbeats, roster, journal, slots, [])
    shutdowns = Shutdowns(ShutdownContext(Approvals(paths, post), children, roster, journal))
    ledger = Ledger(paths.ledger)
    copies = CopyMakers(settings.paths, journal, children.descriptors)
    return TeamContext(
        settings, post, ledger, roster, children, shutdowns, program, journal, copies
    )
