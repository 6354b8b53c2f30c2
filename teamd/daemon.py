"""`teamd start`: claims a team and supervises it until a signal says to stop."""

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
from teamd.supervisor.fork import (
    CheckStart,
    ChildProgram,
    ChildStart,
    become_subreaper,
    lift_descriptor_limit,
)
from teamd.supervisor.live_settings import LiveSettings
from teamd.team import teams

_NO_HOME: Final = "/nonexistent"  # Debian's name for the home of users without one


def agent_program(settings: LiveSettings, mask: Mask) -> ChildProgram:
    """Return what the children run; what is slow to load of it is loaded before the first fork.

    Args:
        settings: followed by each child that is forked from now on.
        mask: learns the secrets of the settings before each fork.
    """
    beat_seconds = settings.heartbeats.beat_seconds  # for good: the watchdogs expect no other
    teammate = TeammateProcess(
        settings.paths, lambda: settings.now, settings.accepted_bytes, beat_seconds, mask
    )

    def run(start: ChildStart) -> int:
        return teammate.live(
            start.name, start.bell, start.slots, start.heartbeat, hibernates=start.hibernates
        )

    def load() -> None:
        from teamd.checks import checker, merger  # noqa: F401, PLC0415 -- for `check` and `merge`
        from teamd.copies import clone  # noqa: F401, PLC0415 -- for who makes working copies

        teammate.load()

    def check(start: CheckStart) -> int:
        from teamd.checks.checker import Checker  # noqa: PLC0415 -- see `load`

        probe = teammate.probe_sandbox()
        checker = Checker(paths=settings.paths, settings=settings.now, probe=probe, mask=mask)
        return checker.run(start.task, start.claim)

    def merge() -> int:
        from teamd.checks.merger import Merger  # noqa: PLC0415 -- the same

        probe, now = teammate.probe_sandbox(), settings.now
        return Merger.of(settings.paths, now, probe, mask).run()

    def post() -> int:
        from teamd.postman.start import become_postman  # noqa: PLC0415 -- only where it is wanted

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
        try_first_steps=teammate.try_first_steps,
    )


def serve(
    paths: TeamPaths,
    settings_file: Path,
    *,
    ready: Callable[[], None],
    prepare: Callable[[LiveSettings], ChildProgram] | None = None,
) -> None:
    """Supervise a team until a signal says to stop.

    Args:
        paths: created at need.
        settings_file: may be missing.
        ready: called once, when requests are served and the first fork has worked.
        prepare: makes what the children run, otherwise teammates.

    Raises:
        TeamError: the settings are wrong, no model's server can be reached as the environment is,
            another supervisor runs, files cannot be written, locks exclude nobody, no teammate can
            begin on this machine.
    """
    _correct_home()
    settings = LiveSettings(paths, settings_file)
    teams.check_own_name(paths, settings.now.team.name, settings_file)
    if settings.now.model.script is None:
        check_connection(settings.now.model.base_url)
    paths.create()
    locks.check(paths.root)  # where they exclude nobody, nothing here is safe
    mask = Mask(*credentials.known_secrets())
    _mask_standard_error(mask)
    with _claimed(paths, mask) as (claim, journal):
        program = prepare(settings) if prepare else agent_program(settings, mask)
        # Loaded while the sandbox is tried.
        from teamd.supervisor.build import build_supervisor  # noqa: PLC0415
        from teamd.supervisor.supervisor import ServiceWatchdog  # noqa: PLC0415

        _sweep(paths, journal)
        settings.note_waiting(journal)
        become_subreaper()
        program = _detached(paths, program, lift_descriptor_limit())
        seconds = (watchdog_seconds() or 2 * SLOW_SECONDS) / 2
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
    """Keep libraries from a home in the current folder, and the SDK from having none: it fails."""
    if not Path(os.environ.get("HOME", "")).is_absolute():
        os.environ.pop("HOME", None)
    if home_folder() is None:
        os.environ["HOME"] = _NO_HOME


@contextmanager
def _claimed(paths: TeamPaths, mask: Mask) -> Iterator[tuple[int, Journal]]:
    """Hold the lock of a team's supervisor, and its log: an error that ends it stands there."""
    claim = pidfile.claim(paths)
    journal = Journal(paths.log(TEAMD), TEAMD, mask)
    try:
        yield claim, journal
    except Exception as error:
        journal.error("teamd failed", error)
        raise
    finally:
        with suppress(OSError):  # a name that stays is of one that holds the lock no more
            os.ftruncate(claim, 0)
        os.close(claim)


def _mask_standard_error(mask: Mask) -> None:
    """Keep secrets out of what Python prints when all else fails; it goes to a file."""
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = MaskedStream(mask, sys.stderr)


def _detached(paths: TeamPaths, program: ChildProgram, files: tuple[int, int]) -> ChildProgram:
    """Return a program whose children leave the terminal: they may be forked before `ready`.

    Their commands have the limit on open files that whoever started this gave.
    """

    def leave() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        leave_terminal(paths)  # it would outlive whoever waits for the start

    def run(start: ChildStart) -> int:
        leave()
        return program.run(start)

    def check(start: CheckStart) -> int:
        leave()
        return program.check(start)

    def merge() -> int:
        leave()
        return program.merge()

    def post() -> int:
        leave()
        return program.post()

    def try_first_steps(bell: int) -> None:
        leave()
        if program.try_first_steps is not None:
            program.try_first_steps(bell)

    tried = program.try_first_steps and try_first_steps
    return replace(program, run=run, check=check, merge=merge, post=post, try_first_steps=tried)


def _remember(paths: TeamPaths, journal: Journal) -> None:
    """Note where this team is, for `teamctl teams --all`."""
    try:
        teams.remember(paths)
    except StoreError as error:  # a list lacks it, no more
        journal.error("team not noted", error)


def _sweep(paths: TeamPaths, journal: Journal) -> None:
    """Remove what earlier processes left when they were killed."""
    try:
        if swept := directories.sweep(paths):
            journal.note("swept", files=[str(path) for path in swept])
    except StoreError as error:  # it takes space, no more: the team is served all the same
        journal.error("not swept", error)
