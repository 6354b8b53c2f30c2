"""`teamd start`: claims a team, builds its supervisor, and runs it until a signal says to stop."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from teamd import damaged
from teamd.agent.process import TeammateProcess
from teamd.agent.wakeup import Pulse
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.budget.ledger import Ledger
from teamd.budget.records import Terms
from teamd.errors import StoreError
from teamd.files import directories, locks, pidfile
from teamd.files.watch import SLOW_SECONDS, watch
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import Post
from teamd.messages import TEAMD
from teamd.models.prices import Prices
from teamd.service import leave_terminal, notify, watchdog_seconds
from teamd.supervisor import orphans
from teamd.supervisor.children import Children
from teamd.supervisor.context import Context
from teamd.supervisor.fork import ChildProgram, become_subreaper
from teamd.supervisor.inbox import ControlInbox
from teamd.supervisor.live_settings import LiveSettings
from teamd.supervisor.roster_writer import RosterWriter
from teamd.supervisor.shutdown import ShutdownContext
from teamd.supervisor.shutdowns import Shutdowns
from teamd.supervisor.supervisor import Rounds, Signals, Supervisor
from teamd.team import teams
from teamd.team.repair import repair_roster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal
    from pathlib import Path

    from teamd.files.paths import TeamPaths
    from teamd.heartbeat import Heartbeat
    from teamd.tokens import Usage

_CAUGHT: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def agent_program(settings: LiveSettings) -> ChildProgram:
    """Return what the children run; what is slow to load of it is loaded before the first fork.

    Args:
        settings: followed by each child that is forked from now on.
    """
    teammate = TeammateProcess(settings.paths, lambda: settings.now, settings.accepted_bytes)
    beat_seconds = settings.heartbeats.beat_seconds  # for good: the watchdogs expect no other

    def run(name: str, bell: int, heartbeat: Heartbeat) -> int:
        return teammate.live(name, bell, Pulse(heartbeat, every_seconds=beat_seconds))

    return ChildProgram(run, teammate.load, teammate.caution, teammate.role)


def serve(
    paths: TeamPaths,
    settings_file: Path,
    *,
    ready: Callable[[], None],
    prepare: Callable[[LiveSettings], ChildProgram] = agent_program,
) -> None:
    """Supervise a team until a signal says to stop.

    Args:
        paths: created at need.
        settings_file: may be missing.
        ready: called once, when requests are served.
        prepare: makes what the children run; what is slow to load of it comes behind `ready`.

    Raises:
        TeamError: the settings are wrong, another supervisor runs, files cannot be written, locks
            exclude nobody.
    """
    settings = LiveSettings(paths, settings_file)
    teams.check_own_name(paths, settings.now.team.name, settings_file)
    paths.create()
    locks.check(paths.root)  # where they exclude nobody, nothing here is safe
    with _claimed(paths) as (claim, journal):
        _sweep(paths, journal)
        become_subreaper()
        program = _detached(paths, prepare(settings))
        supervisor = _build_supervisor(settings, program, journal, claim)
        supervisor.resume()
        journal.note("ready", pid=os.getpid(), team=str(paths.root))
        ready()
        supervisor.context.children.begin()  # requests that come meanwhile stand in the inbox
        notify("WATCHDOG=1")  # it may have taken seconds
        supervisor.run()
        notify("STOPPING=1")
        journal.note("stopped")


@contextmanager
def _claimed(paths: TeamPaths) -> Iterator[tuple[int, Journal]]:
    """Hold the lock of a team's supervisor, and its log: an error that ends it stands there."""
    claim = pidfile.claim(paths)
    journal = Journal(paths.log(TEAMD), TEAMD)
    try:
        yield claim, journal
    except Exception as error:
        journal.error("teamd failed", error)
        raise
    finally:
        with suppress(OSError):  # a name that stays is of one that holds the lock no more
            os.ftruncate(claim, 0)
        os.close(claim)


def _build_supervisor(
    settings: LiveSettings, program: ChildProgram, journal: Journal, claim: int
) -> Supervisor:
    """Build a supervisor; but for the signals, which are caught, nothing of it runs yet.

    Raises:
        TeamError: the files of the team cannot be read or written.
    """
    paths, signals = settings.paths, Signals(*_CAUGHT)
    repaired = _repair(settings, journal)
    ledger = Ledger(paths.ledger)
    ledger.agree(Terms.of(settings.now))
    inboxes, board = watch(paths.inboxes), watch(paths.tasks)
    max_bytes = settings.now.mail.max_message_bytes
    post = Post(paths, durable=settings.durable, max_bytes=max_bytes)
    roster = _start_roster(settings, post, journal)
    if repaired:
        roster.tell_lead(repaired)
    private = [claim, inboxes.fileno(), board.fileno(), *signals.descriptors]
    children = Children(program, settings, settings.heartbeats, roster, journal, private)
    shutdowns = Shutdowns(ShutdownContext(Approvals(paths, post), children, roster, journal))
    context = Context(settings, post, ledger, roster, children, shutdowns, program, journal)
    patience = orphans.BOARD_PATIENCE_SECONDS
    store = Board(paths, post, TEAMD, durable=settings.durable, patience_seconds=patience)
    tasks = orphans.OrphanedTasks(store, board, journal)
    processes = orphans.OrphanedProcesses(journal, partial(teams.supervisors, paths.home))
    inbox = ControlInbox(context, tasks, Mailbox(paths, TEAMD, durable=False))
    rounds = Rounds((watchdog_seconds() or 2 * SLOW_SECONDS) / 2, partial(notify, "WATCHDOG=1"))
    return Supervisor(context, claim, inbox, tasks, processes, signals, inboxes, rounds)


def _repair(settings: LiveSettings, journal: Journal) -> str:
    """Put damaged files aside; return what the lead is to be told of that, a line each."""
    prices = Prices(Terms.of(settings.now).prices)

    def cost(model: str, usage: Usage) -> Decimal | None:
        price = prices.find(model)
        return None if price is None else price.cost(usage)

    told = []
    try:
        for damage, kept in damaged.repair(settings.paths, cost):
            journal.warn("put aside", path=str(damage.path), kept=str(kept))
            what = "was gone" if kept is None else f"was damaged, and is kept as {kept.name}"
            told.append(f"{damage.path} {what}: {damage.repaired}.")
    except StoreError as error:  # a file that may not be read, say: whoever needs it says so
        journal.error("not repaired", error)
    return "\n".join(told)


def _start_roster(settings: LiveSettings, post: Post, journal: Journal) -> RosterWriter:
    """Open the roster, and end the processes that a dead supervisor left to its members."""
    paths = settings.paths
    trouble = repair_roster(paths, journal)
    roster = RosterWriter(post, journal, team_name=paths.own_name or settings.now.team.name)
    if trouble is not None:
        roster.tell_lead(trouble)
    # What the roster says may be of an earlier boot, or edited: a teammate holds its life's lock.
    lives = [(m.process, paths.life(m.name)) for m in roster.team.members]
    former = [process for process, life in lives if process and process.has_open(life)]
    seconds = settings.now.supervision.stop_seconds
    orphans.end_former(former, seconds=seconds, journal=journal)
    return roster


def _detached(paths: TeamPaths, program: ChildProgram) -> ChildProgram:
    """Return a program whose children leave the terminal: they may be forked before `ready`."""

    def run(name: str, bell: int, heartbeat: Heartbeat) -> int:
        leave_terminal(paths)  # it would outlive whoever waits for the start
        return program.run(name, bell, heartbeat)

    return replace(program, run=run)


def _sweep(paths: TeamPaths, journal: Journal) -> None:
    """Remove what earlier processes left when they were killed."""
    try:
        if swept := directories.sweep(paths):
            journal.note("swept", files=[str(path) for path in swept])
    except StoreError as error:  # it takes space, no more: the team is served all the same
        journal.error("not swept", error)
