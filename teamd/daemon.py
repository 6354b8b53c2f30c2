"""`teamd start`: claims a team and supervises it until a signal says to stop."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from teamd.agent.process import TeammateProcess
from teamd.assembly import assembled
from teamd.errors import StoreError, TeamError
from teamd.journal import Journal
from teamd.parts import Parts, newcomer, settings_of
from teamd.protocol import TEAMD
from teamd.service import notify, watchdog_seconds
from teamd.store import debris, locks, running, teams
from teamd.store.watch import SLOW_SECONDS
from teamd.supervisor import kernel
from teamd.supervisor.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from teamd.assembly import Assembled, Worker
    from teamd.settings import Settings
    from teamd.store.paths import TeamPaths


Prepare: TypeAlias = "Callable[[TeamPaths, Callable[[], Settings], Callable[[], int]], Worker]"

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def serve(
    paths: TeamPaths,
    settings_file: Path,
    *,
    ready: Callable[[], None],
    prepare: Prepare = TeammateProcess.prepare,
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
    chosen = settings_of(paths, settings_file)
    teams.check_own_name(paths, chosen.team.name, settings_file)
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
        with suppress(OSError):  # a name that stays is of one that holds the lock no more
            os.ftruncate(claim, 0)
        os.close(claim)


def _serve(parts: Parts, ready: Callable[[], None], prepare: Prepare) -> None:
    _sweep(parts.paths, parts.journal)
    kernel.become_subreaper()
    made = assembled(
        parts,
        prepare(parts.paths, lambda: parts.settings, parts.granted_bytes),
        Signals(*_CAUGHT),
        alive=lambda: notify("WATCHDOG=1"),
        round_seconds=(watchdog_seconds() or 2 * SLOW_SECONDS) / 2,
    )
    gc.collect()
    gc.freeze()  # a collection in a child would un-share every page it walks over
    made.supervisor.resume()
    _spawn_declared(parts, made)
    parts.journal.note("ready", pid=os.getpid(), team=str(parts.paths.root))
    ready()
    made.supervisor.run()
    notify("STOPPING=1")
    parts.journal.note("stopped")


def _sweep(paths: TeamPaths, journal: Journal) -> None:
    """Remove what earlier processes left when they were killed."""
    try:
        if swept := debris.sweep(paths):
            journal.note("swept", files=[str(path) for path in swept])
    except StoreError as error:  # it takes space, no more: the team is served all the same
        journal.error("not swept", error)


def _spawn_declared(parts: Parts, made: Assembled) -> None:
    """Spawn those of `team.toml` that the roster does not know yet."""
    for declared in parts.settings.teammates:
        try:
            made.spawning.enlist(newcomer(declared))
        except TeamError as error:
            parts.journal.error("not spawned", error, name=declared.name)
    with suppress(StoreError):  # the next round writes it
        made.register.publish()
