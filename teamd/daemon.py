"""The one place where the parts are put together: a supervisor, and what its children run."""

from __future__ import annotations

import gc
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from teamd import settings
from teamd.errors import StoreError, TeamError
from teamd.journal import Journal
from teamd.protocol import TEAMD, new_id
from teamd.service import leave_terminal, notify, watchdog_seconds
from teamd.store import debris, locks, running
from teamd.store.mailbox import Mailbox
from teamd.store.post import Post
from teamd.store.rebuilding import opened_roster
from teamd.store.watch import SLOW_SECONDS, watch
from teamd.supervisor import kernel, orphans
from teamd.supervisor.blame import Blame
from teamd.supervisor.commands import Commands, Newcomer, Reloaded
from teamd.supervisor.register import Register
from teamd.supervisor.restarts import Tolerance
from teamd.supervisor.signals import Signals
from teamd.supervisor.supervisor import Supervisor
from teamd.supervisor.teammates import Teammates
from teamd.teammate import Teammate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from teamd.settings import Settings
    from teamd.store.paths import TeamPaths

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def serve(paths: TeamPaths, settings_file: Path, *, ready: Callable[[], None]) -> None:
    """Supervise a team until a signal says to stop.

    Args:
        paths: created at need.
        settings_file: may be missing.
        ready: called once, when requests are served.

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
        _serve(_Parts(paths, settings_file, chosen, journal, claim), ready)
    except Exception as error:
        journal.error("teamd failed", error)
        raise
    finally:
        os.ftruncate(claim, 0)  # nobody is named any more
        os.close(claim)


@dataclass(slots=True)
class _Parts:
    """What the parts are made from. `settings` changes when they are read again."""

    paths: TeamPaths
    settings_file: Path
    settings: Settings
    journal: Journal
    claim: int

    @property
    def post(self) -> Post:
        mail = self.settings.mail
        return Post(self.paths, durable=mail.durability == "disk", max_bytes=mail.max_message_bytes)

    @property
    def tolerance(self) -> Tolerance:
        supervision = self.settings.supervision
        return Tolerance(crashes=supervision.crashes, within_seconds=supervision.within_seconds)

    def reload(self) -> Reloaded:
        """Read the settings again; a child that is forked from now on follows them."""
        new = settings.load(self.settings_file, folder=self.paths.home)
        changed = settings.changes(self.settings, new)
        self.settings = new
        self.journal.note("reloaded", changed=changed)
        lines = [f"{key} has changed: {_when(key)}" for key in changed]
        return Reloaded(tuple(lines), tuple(map(_newcomer, new.teammates)))


def _serve(parts: _Parts, ready: Callable[[], None]) -> None:
    paths, journal = parts.paths, parts.journal
    _sweep(paths, journal)
    kernel.become_subreaper()
    signals = Signals(*_CAUGHT)
    watching = watch(paths.inboxes)
    register = Register(
        roster=opened_roster(paths, journal),
        post=parts.post,
        journal=journal,
        team_name=parts.settings.team.name,
        log_of=paths.log,
    )
    former = [m.process for m in register.team.members if m.process is not None]
    orphans.end_former(former, seconds=parts.settings.supervision.stop_seconds, journal=journal)
    teammate = Teammate.prepare(paths, lambda: parts.settings)

    def live(name: str, bell: int) -> int:
        leave_terminal(paths)  # it may be forked before `ready`, and outlives who waits for that
        return teammate.live(name, bell)

    teammates = Teammates(
        run=live,
        register=register,
        journal=journal,
        tolerance=lambda: parts.tolerance,
        blame=Blame(paths, journal),
        private=lambda: [parts.claim, watching.fileno(), *signals.descriptors],
    )
    commands = Commands(
        teammates=teammates,
        register=register,
        post=parts.post,
        journal=journal,
        caution=teammate.caution,
        reload=parts.reload,
    )
    supervisor = Supervisor(
        paths=paths,
        mailbox=Mailbox(paths, TEAMD, durable=False),
        register=register,
        teammates=teammates,
        commands=commands,
        orphans=orphans.Orphans(journal),
        signals=signals,
        watch=watching,
        journal=journal,
        claim_stands=lambda: locks.stands_under(parts.claim, paths.supervisor),
        stop_seconds=parts.settings.supervision.stop_seconds,
        alive=lambda: notify("WATCHDOG=1"),
        round_seconds=(watchdog_seconds() or 2 * SLOW_SECONDS) / 2,
    )
    gc.collect()
    gc.freeze()  # a collection in a child would un-share every page it walks over
    supervisor.resume()
    _spawn_declared(parts, commands, register)
    journal.note("ready", pid=os.getpid(), team=str(paths.root))
    ready()
    supervisor.run()
    notify("STOPPING=1")
    journal.note("stopped")


def _sweep(paths: TeamPaths, journal: Journal) -> None:
    """Remove what earlier processes left when they were killed."""
    try:
        if swept := debris.sweep(paths):
            journal.note("swept", files=[str(path) for path in swept])
    except StoreError as error:  # it takes space, no more: the team is served all the same
        journal.error("not swept", error)


def _spawn_declared(parts: _Parts, commands: Commands, register: Register) -> None:
    """Spawn those of `team.toml` that the roster does not know yet."""
    for declared in parts.settings.teammates:
        if register.team.find(declared.name) is not None:
            continue
        try:
            commands.spawn(_newcomer(declared), new_id())
        except TeamError as error:
            parts.journal.error("not spawned", error, name=declared.name)


def _newcomer(declared: settings.Teammate) -> Newcomer:
    return Newcomer(
        name=declared.name, role=declared.role, prompt=declared.prompt, model=declared.model
    )


def _when(key: str) -> str:
    """From when on a changed setting counts."""
    section = key.partition(".")[0]
    if section == "teammate":
        return "who is new is spawned now; who is known keeps role and model"
    if section in ("team", "supervision"):
        return "waits for `teamd restart`"
    return "counts for teammates whose process starts from now on; `teamd restart` reaches all"
