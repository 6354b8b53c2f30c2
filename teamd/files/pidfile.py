"""The pid file of a team's supervisor: whether a supervisor runs, and its process."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, Final

from teamd import __version__
from teamd.errors import NoTeamd, StoreError, TeamError, translate_os_errors
from teamd.files import files, locks
from teamd.files.paths import TeamPaths
from teamd.process_id import Identity

_PATIENCE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.02


class AlreadyRunning(TeamError):
    """Another supervisor already serves this team."""

    def __init__(self, paths: TeamPaths, pid: int | None) -> None:
        process = f" (pid {pid})" if pid else ""
        super().__init__(
            f"a teamd{process} already runs for {paths.root}; `teamd stop` ends it, "
            "`teamd restart` replaces it"
        )
        self.pid = pid


def claim(paths: TeamPaths) -> int:
    """Become the team's only supervisor for as long as the returned descriptor is open.

    The kernel releases the claim when the process ends, for whatever reason.

    Raises:
        AlreadyRunning: another supervisor runs; the error names its pid.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (fd := locks.try_lock(paths.supervisor)) is None:
        # `teamd stop` holds the lock for a moment to test whether it is free.
        there = _named(paths)
        if time.monotonic() > deadline and not (there and there.ending):
            raise AlreadyRunning(paths, there.pid if there else None)
        time.sleep(_PAUSE_SECONDS)
    with translate_os_errors(paths.supervisor):
        _sign(fd)
    return fd


def stands(claim: int, paths: TeamPaths) -> bool:
    """Return whether this process still has its claim; repair the file if others changed it.

    Raises:
        StoreError: the file cannot be read or repaired.
    """
    with translate_os_errors(paths.supervisor):
        if not locks.stands_under(claim, paths.supervisor):
            return False
        if files.read_descriptor(claim) != _signature():
            _sign(claim)
    return True


def supervisor(paths: TeamPaths) -> Identity | None:
    """Return the process that serves this team; `None` if there is none.

    A process that the file names but that does not hold the lock is not the supervisor.
    """
    named = _named(paths)
    if named is None or not named.alive:
        return None
    return named if locks.is_held_by(named.pid, paths.supervisor) else None


def find_other_version(paths: TeamPaths) -> str | None:
    """Return the version of the running teamd if it is not this program's, otherwise `None`.

    It is empty for a teamd from before versions were recorded.
    """
    version = str(_read(paths).get("version", ""))
    return None if version == __version__ or supervisor(paths) is None else version


def is_teamd_down(paths: TeamPaths) -> bool:
    """Return whether certainly no process serves this team; `False` if that cannot be read."""
    try:
        return supervisor(paths) is None
    except StoreError:
        return False


def check(paths: TeamPaths) -> Identity:
    """Return the process that serves this team.

    Raises:
        NoTeamd: no process serves it.
    """
    there = supervisor(paths)
    if there is None:
        raise NoTeamd(paths.root)
    return there


def _signature() -> bytes:
    me = Identity.own()
    facts = {"pid": me.pid, "started": me.started, "version": __version__}
    return json.dumps(facts).encode() + b"\n"


def _sign(fd: int) -> None:
    os.ftruncate(fd, 0)  # in place, since the lock is on this inode
    os.pwrite(fd, _signature(), 0)


def _named(paths: TeamPaths) -> Identity | None:
    """Return the process that the file names; `None` for a partly written or foreign file."""
    found = _read(paths)
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        return Identity(pid=int(found["pid"]), started=float(found["started"]))
    return None


def _read(paths: TeamPaths) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(files.read(paths.supervisor) or b"")
        return found if isinstance(found, dict) else {}
    return {}
