"""Builds the supervisor: one function, for the program and for its tests."""

from __future__ import annotations

import signal
from decimal import Decimal
from functools import cache
from typing import Final

from teamd import recovery
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.budget.prices import Prices
from teamd.errors import StoreError
from teamd.files.locks import is_held_by
from teamd.files.watch import watch
from teamd.hosts.far import FarHosts
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import RESERVE, MailRouter
from teamd.messages import TEAMD
from teamd.model_server import Usage
from teamd.models import RetryPolicy
from teamd.supervisor import orphans
from teamd.supervisor.children import Children
from teamd.supervisor.fork import ChildProgram
from teamd.supervisor.inbox import ControlInbox
from teamd.supervisor.live_settings import LiveSettings
from teamd.supervisor.roster_in_memory import RosterWriter
from teamd.supervisor.shutdowns import Shutdowns
from teamd.supervisor.slots import ConcurrencyLimit, Slots
from teamd.supervisor.supervisor import ServiceWatchdog, Signals, Supervisor, is_inbox
from teamd.supervisor.team_context import TeamContext
from teamd.supervisor.workers import Checkers, CopyMakers, Mergers, Postmen
from teamd.team.teams import name_of

_CAUGHT: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def build_supervisor(
    settings: LiveSettings,
    program: ChildProgram,
    journal: Journal,
    claim: int,
    watchdog: ServiceWatchdog,
) -> Supervisor:
    """Build a supervisor. Signals are caught from here on; everything else starts later.

    Raises:
        TeamError: the files of the team cannot be read or written.
    """
    paths, signals = settings.paths, Signals(*_CAUGHT)
    repaired = _repair(settings, journal)
    ledger = Ledger(paths.ledger)
    ledger.agree(Terms.of(settings.now))
    inboxes, board = watch(paths.inboxes, is_inbox), watch(paths.tasks)
    post = _build_post(settings)
    roster = _start_roster(settings, post, journal)
    if repaired:
        roster.tell_lead(repaired)
    private = [claim, inboxes.fileno(), board.fileno(), *signals.descriptors]
    slots = Slots(_call_limit(settings), journal)
    children = Children(program, settings, settings.heartbeats, roster, journal, slots, private)
    shutdowns = Shutdowns(Approvals(paths, post), children)
    copies = CopyMakers(children)
    context = TeamContext(
        settings, post, ledger, roster, children, shutdowns, program, journal, copies
    )
    patience = orphans.BOARD_PATIENCE_SECONDS
    store = Board(paths, post, TEAMD, durable=settings.durable, patience_seconds=patience)
    tasks = orphans.OrphanedTasks(store, board, journal)
    pools = (Checkers(store, children), Mergers(children), Postmen(children), copies)
    inbox = ControlInbox(context, tasks, Mailbox(paths, TEAMD, durable=False))
    return Supervisor(context, claim, inbox, tasks, pools, signals, inboxes, watchdog)


def _build_post(settings: LiveSettings) -> MailRouter:
    """Build the router for the mail of teamd itself, which may fill inboxes beyond their limit."""
    paths, mail, hosts = settings.paths, settings.now.mail, None
    if settings.now.hosts.name is not None:
        hosts = FarHosts.of(paths, settings.now.hosts, durable=settings.durable)
    return MailRouter(
        paths,
        durable=settings.durable,
        max_bytes=mail.max_message_bytes,
        max_inbox_bytes=RESERVE * mail.max_inbox_bytes,
        hosts=hosts,
    )


def _call_limit(settings: LiveSettings) -> ConcurrencyLimit:
    """Return a limit that follows the settings in force."""

    def policy() -> RetryPolicy:
        model = settings.now.model
        return RetryPolicy(attempts=model.attempts, longest_seconds=model.retry_seconds)

    return ConcurrencyLimit(lambda: settings.now.model.concurrent_calls, policy)


def _repair(settings: LiveSettings, journal: Journal) -> str:
    """Put damaged files aside; return a report for the lead, one line per file."""

    @cache
    def prices() -> Prices:  # read only if there is damage
        return Prices(Terms.of(settings.now).prices)

    def cost(model: str, usage: Usage) -> Decimal | None:
        price = prices().find(model)
        return None if price is None else price.cost(usage)

    report = []
    try:
        for damage, kept in recovery.repair(settings.paths, cost):
            journal.warn("put aside", path=str(damage.path), kept=str(kept))
            state = "was gone" if kept is None else f"was damaged, and is kept as {kept.name}"
            report.append(f"{damage.path} {state}: {damage.repaired}.")
    except StoreError as error:  # such as an unreadable file: the code that needs it reports it
        journal.error("not repaired", error)
    return "\n".join(report)


def _start_roster(settings: LiveSettings, post: MailRouter, journal: Journal) -> RosterWriter:
    """Open the roster, and end the processes that a dead supervisor left to its members."""
    paths = settings.paths
    trouble = recovery.repair_roster(paths, journal)
    roster = RosterWriter(post, journal, team_name=name_of(paths, settings.now.team.name))
    if trouble is not None:
        roster.tell_lead(trouble)
    # The roster may be from an earlier boot, or edited by hand. A teammate's process holds a lock.
    lives = [(m.process, paths.life(m.name)) for m in roster.team.members]
    former = [process for process, life in lives if process and is_held_by(process.pid, life)]
    seconds = settings.now.supervision.stop_seconds
    orphans.end_former(former, seconds=seconds, journal=journal)
    return roster
