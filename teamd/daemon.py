"""The one place where the parts are put together: a supervisor, and what its children run."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Protocol, TypeAlias

from teamd import settings
from teamd.agent.pulse import Pulse
from teamd.errors import StoreError, TeamError
from teamd.journal import Journal
from teamd.parts import Parts, newcomer
from teamd.protocol import TEAMD, new_id
from teamd.service import leave_terminal, notify, watchdog_seconds
from teamd.store import debris, locks, running, teams
from teamd.store.approvals import Approvals
from teamd.store.ledger import Ledger
from teamd.store.mailbox import Mailbox
from teamd.store.rebuilding import opened_roster
from teamd.store.terms import terms_of
from teamd.store.watch import SLOW_SECONDS, watch
from teamd.supervisor import kernel, orphans
from teamd.supervisor.blame import Blame
from teamd.supervisor.commands import Commands
from teamd.supervisor.control import Control
from teamd.supervisor.handshakes import Handshakes
from teamd.supervisor.register import Register
from teamd.supervisor.resuming import Resuming
from teamd.supervisor.shutdowns import Shutdowns
from teamd.supervisor.signals import Signals
from teamd.supervisor.supervisor import Supervisor
from teamd.supervisor.teammates import Teammates
from teamd.teammate import Teammate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from teamd.settings import Settings
    from teamd.settings.roles import Role
    from teamd.store.paths import TeamPaths
    from teamd.supervisor.chores import Chores
    from teamd.vitals import Vitals


class Life(Protocol):
    """What all children run."""

    def live(self, name: str, bell: int, pulse: Pulse) -> int:
        """Be a teammate; returns the exit code."""

    def caution(self) -> str | None:
        """What whoever spawns should read."""

    def role(self, role: str) -> Role | None:
        """The file of a role, if there is one."""


Prepare: TypeAlias = "Callable[[TeamPaths, Callable[[], Settings]], Life]"

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def serve(
    paths: TeamPaths,
    settings_file: Path,
    *,
    ready: Callable[[], None],
    prepare: Prepare = Teammate.prepare,
) -> None:
    """Supervise a team until a signal says to stop.

    Args:
        paths: created at need.
        settings_file: may be missing.
        ready: called once, when requests are served.
        prepare: makes what the children run, before any of them is forked.

    Raises:
        TeamError: the settings are wrong, another supervisor runs, files cannot be written, locks
            exclude nobody.
    """
    chosen = settings.load(settings_file, folder=paths.home)
    paths.create()
    locks.check(paths.root)  # where they exclude nobody, nothing here is safe
    claim = running.claim(paths)
    journal = Journal(paths.log(TEAMD), TEAMD)
    try:
        _serve(Parts(paths, settings_file, chosen, journal, claim), ready, prepare)
    except Exception as error:
        journal.error("teamd failed", error)
        raise
    finally:
        os.ftruncate(claim, 0)  # nobody is named any more
        os.close(claim)


def _serve(parts: Parts, ready: Callable[[], None], prepare: Prepare) -> None:
    _sweep(parts.paths, parts.journal)
    ledger = Ledger(parts.paths.ledger)
    ledger.agree(terms_of(parts.settings))
    kernel.become_subreaper()
    signals = Signals(*_CAUGHT)
    watching = watch(parts.paths.inboxes)
    chores = parts.chores()
    register = _register(parts)
    teammate = prepare(parts.paths, lambda: parts.settings)
    private = [watching.fileno(), chores.fileno(), *signals.descriptors]
    teammates = _teammates(parts, register, teammate, private=private)
    handshakes = Handshakes(
        approvals=Approvals(parts.paths, parts.post),
        teammates=teammates,
        register=register,
        journal=parts.journal,
    )
    commands = Commands(
        teammates=teammates,
        register=register,
        handshakes=handshakes,
        shutdowns=Shutdowns(handshakes, register),
        post=parts.post,
        journal=parts.journal,
        caution=teammate.caution,
        check_role=teammate.role,
        reload=parts.reload,
        resuming=Resuming(
            teammates=teammates,
            register=register,
            ledger=ledger,
            stop_seconds=lambda: parts.settings.supervision.stop_seconds,
        ),
    )
    supervisor = Supervisor(
        paths=parts.paths,
        control=_control(
            parts,
            register=register,
            teammates=teammates,
            commands=commands,
            handshakes=handshakes,
            chores=chores,
        ),
        register=register,
        teammates=teammates,
        handshakes=handshakes,
        chores=chores,
        auto_claim=lambda: parts.settings.tasks.auto_claim,
        orphans=orphans.Orphans(parts.journal, lambda: teams.supervisors(parts.paths.home)),
        signals=signals,
        watch=watching,
        journal=parts.journal,
        claim_stands=lambda: locks.stands_under(parts.claim, parts.paths.supervisor),
        stop_seconds=parts.settings.supervision.stop_seconds,
        alive=lambda: notify("WATCHDOG=1"),
        round_seconds=(watchdog_seconds() or 2 * SLOW_SECONDS) / 2,
    )
    gc.collect()
    gc.freeze()  # a collection in a child would un-share every page it walks over
    supervisor.resume()
    _spawn_declared(parts, commands, register)
    parts.journal.note("ready", pid=os.getpid(), team=str(parts.paths.root))
    ready()
    supervisor.run()
    notify("STOPPING=1")
    parts.journal.note("stopped")


def _register(parts: Parts) -> Register:
    """The roster; who stands in it with a process of a dead supervisor has none any more."""
    register = Register(
        roster=opened_roster(parts.paths, parts.journal),
        post=parts.post,
        journal=parts.journal,
        team_name=parts.paths.own_name or parts.settings.team.name,
        log_of=parts.paths.log,
    )
    former = [m.process for m in register.team.members if m.process is not None]
    seconds = parts.settings.supervision.stop_seconds
    orphans.end_former(former, seconds=seconds, journal=parts.journal)
    return register


def _teammates(
    parts: Parts, register: Register, teammate: Life, *, private: list[int]
) -> Teammates:
    silence = parts.silence  # for good: the children that run beat as often as this one wants

    def live(name: str, bell: int, vitals: Vitals) -> int:
        leave_terminal(parts.paths)  # it may be forked before `ready`, and outlive who waits for it
        return teammate.live(name, bell, Pulse(vitals, every_seconds=silence.beat_seconds))

    return Teammates(
        run=live,
        register=register,
        journal=parts.journal,
        tolerance=lambda: parts.tolerance,
        blame=Blame(parts.paths, parts.journal),
        silence=silence,
        private=[parts.claim, *private],
    )


def _control(
    parts: Parts,
    *,
    register: Register,
    teammates: Teammates,
    commands: Commands,
    handshakes: Handshakes,
    chores: Chores,
) -> Control:
    return Control(
        paths=parts.paths,
        mailbox=Mailbox(parts.paths, TEAMD, durable=False),
        register=register,
        teammates=teammates,
        commands=commands,
        handshakes=handshakes,
        chores=chores,
        journal=parts.journal,
    )


def _sweep(paths: TeamPaths, journal: Journal) -> None:
    """Remove what earlier processes left when they were killed."""
    try:
        if swept := debris.sweep(paths):
            journal.note("swept", files=[str(path) for path in swept])
    except StoreError as error:  # it takes space, no more: the team is served all the same
        journal.error("not swept", error)


def _spawn_declared(parts: Parts, commands: Commands, register: Register) -> None:
    """Spawn those of `team.toml` that the roster does not know yet."""
    for declared in parts.settings.teammates:
        if register.team.find(declared.name) is not None:
            continue
        try:
            commands.spawn(newcomer(declared), new_id())
        except TeamError as error:
            parts.journal.error("not spawned", error, name=declared.name)
