"""`teamd start`: claims a team and supervises it until a signal asks to stop."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from teamd.agent.process import TeammateProcess
from teamd.errors import StoreError
from teamd.files import directories, locks, pidfile
from teamd.files.paths import TeamPaths, home_folder
from teamd.files.watch import SLOW_SECONDS
from teamd.journal import Journal, LoggedEvent
from teamd.masking import Mask, MaskedStream
from teamd.messages import TEAMD
from teamd.model_server import credentials
from teamd.model_server.connection import check_connection
from teamd.service import leave_terminal, notify, watchdog_seconds
from teamd.supervisor.build import build_supervisor
from teamd.supervisor.fork import (
    CheckStart,
    ChildProgram,
    become_subreaper,
    lift_descriptor_limit,
    set_title,
)
from teamd.supervisor.live_settings import LiveSettings
from teamd.supervisor.supervisor import ServiceWatchdog
from teamd.team import teams
from teamd.team.states import ChildStart

_NO_HOME: Final = "/nonexistent"  # Debian's name for the home of users without one


def agent_program(settings: LiveSettings, mask: Mask) -> ChildProgram:
    """Return the program of the children; its slow modules are loaded before the first fork.

    Args:
        settings: followed by each child that is forked from now on.
        mask: gets the secrets of the settings before each fork.
    """
    beat_seconds = settings.heartbeats.beat_seconds  # fixed, since the watchdogs rely on it
    teammate = TeammateProcess(
        settings.paths, lambda: settings.now, settings.accepted_bytes, beat_seconds, mask
    )

    def run(start: ChildStart) -> int:
        from teamd.agent import child  # noqa: PLC0415 -- see `load`

        set_title(f"{TEAMD}: {start.name}")
        return child.live(teammate, start)

    def try_first_steps(bell: int) -> None:
        from teamd.agent import child  # noqa: PLC0415 -- see `load`

        child.try_first_steps(teammate, bell)

    def load() -> None:
        from teamd.agent import child  # noqa: F401, PLC0415 -- with all modules of a teammate
        from teamd.checks import checker, merger  # noqa: F401, PLC0415 -- for `check` and `merge`

        teammate.load()

    def check(start: CheckStart) -> int:
        from teamd.checks.checker import Checker  # noqa: PLC0415 -- see `load`

        set_title(f"{TEAMD}: check")
        probe = teammate.probe_sandbox()
        checker = Checker(paths=settings.paths, settings=settings.now, probe=probe, mask=mask)
        return checker.run(start.task, start.claim)

    def merge() -> int:
        from teamd.checks.merger import Merger  # noqa: PLC0415 -- see `load`

        set_title(f"{TEAMD}: queue")
        probe, now = teammate.probe_sandbox(), settings.now
        return Merger.of(settings.paths, now, probe, mask).run()

    def post() -> int:
        from teamd.postman.start import become_postman  # noqa: PLC0415 -- few teams have a postman

        become_postman(settings.paths, settings.now)

    return ChildProgram(
        run=run,
        load=load,
        warning=teammate.caution,
        find_role=teammate.role,
        sandbox=teammate.describe_sandbox,
        clear=teammate.clear,
        check=check,
        merge=merge,
        post=post,
        try_first_steps=try_first_steps,
    )


def serve(
    paths: TeamPaths,
    settings_file: Path,
    *,
    ready: Callable[[], None],
    prepare: Callable[[LiveSettings], ChildProgram] | None = None,
) -> None:
    """Supervise a team until a signal asks to stop.

    Args:
        paths: created if missing.
        settings_file: may be missing.
        ready: called once, when requests are served and the first fork has worked.
        prepare: returns the program of the children; for tests.

    Raises:
        TeamError: the settings or the model server's address are wrong, another supervisor runs,
            files cannot be written, locks do not work, or no teammate can start on this machine.
    """
    _correct_home()
    settings = LiveSettings(paths, settings_file)
    teams.check_own_name(paths, settings.now.team.name, settings_file)
    if settings.now.model.asks_server:
        check_connection(settings.now.model.base_url)
    paths.create()
    locks.check(paths.root)  # some file systems ignore locks
    mask = Mask(*credentials.known_secrets())
    _mask_standard_error(mask)
    with _claimed(paths, mask) as (claim, journal):
        set_title(TEAMD)
        program = prepare(settings) if prepare else agent_program(settings, mask)
        _sweep(paths, journal)
        settings.note_waiting(journal)
        become_subreaper()
        program = replace(program, enter=partial(_enter_child, paths, lift_descriptor_limit()))
        seconds = watchdog_seconds() or SLOW_SECONDS
        watchdog = ServiceWatchdog(seconds, partial(notify, "WATCHDOG=1"))
        supervisor = build_supervisor(settings, program, journal, claim, watchdog)
        supervisor.resume()
        supervisor.begin()
        journal.note(LoggedEvent.TEAMD_STARTED, pid=os.getpid(), team=str(paths.root))
        ready()
        _remember(paths, journal)
        supervisor.run()
        notify("STOPPING=1")
        journal.note(LoggedEvent.TEAMD_STOPPED)


def _correct_home() -> None:
    """Set HOME if it is missing or relative: the SDK and other libraries rely on it."""
    if not Path(os.environ.get("HOME", "")).is_absolute():
        os.environ.pop("HOME", None)
    if home_folder() is None:
        os.environ["HOME"] = _NO_HOME


@contextmanager
def _claimed(paths: TeamPaths, mask: Mask) -> Iterator[tuple[int, Journal]]:
    """Hold the lock of a team's supervisor, and open its log; a fatal error is logged there."""
    claim = pidfile.claim(paths)
    journal = Journal(paths.log(TEAMD), TEAMD, mask)
    try:
        yield claim, journal
    except Exception as error:
        journal.error("teamd failed", error)
        raise
    finally:
        with suppress(OSError):  # a pid in the file of an unlocked lock is ignored
            os.ftruncate(claim, 0)
        os.close(claim)


def _mask_standard_error(mask: Mask) -> None:
    """Mask secrets in tracebacks that Python prints to standard error."""
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = MaskedStream(mask, sys.stderr)


def _enter_child(paths: TeamPaths, files: tuple[int, int]) -> None:
    """Set a child's limit on open files, and leave the terminal, which the child may still have."""
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    leave_terminal(paths)  # `teamd start` would wait for the pipe to close


def _remember(paths: TeamPaths, journal: Journal) -> None:
    """Record the place of this team for `teamctl teams --all`."""
    try:
        teams.remember(paths)
    except StoreError as error:  # only that list lacks it
        journal.error("team not noted", error)


def _sweep(paths: TeamPaths, journal: Journal) -> None:
    """Remove temporary files of processes that were killed."""
    try:
        if swept := directories.sweep(paths):
            journal.note("swept", files=[str(path) for path in swept])
    except StoreError as error:  # they only take space
        journal.error("not swept", error)
