"""The first fork of a start, which shows whether teammates can start on this machine."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from teamd.errors import TeamError, explain_limit
from teamd.supervisor.fork import Child, fork
from teamd.team.states import ChildExit

_TRIAL_SECONDS: Final = 20.0  # less than a start may take, see `service`
_MOST_BYTES: Final = 4096


class CannotBegin(TeamError):
    """Something on this machine keeps every teammate from its first step."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no teammate can begin here: {why}; `teamctl doctor` checks the machine")


def try_fork(steps: Callable[[int], None], *, close: Iterable[int]) -> None:
    """Fork a process that tries a teammate's first steps, and wait for its end.

    Args:
        steps: gets the reading end of a bell, as a teammate does.
        close: the descriptors that are the parent's alone.

    Raises:
        TeamError: no process could be forked, or the steps failed; says why.
    """
    reader, writer = os.pipe()
    try:
        child = fork(lambda bell: _take_steps(steps, bell, writer), close=(*close, reader))
    except OSError as error:
        os.close(reader)
        raise explain(error) from error
    finally:
        os.close(writer)
    try:
        _wait(child, reader)
        said = os.read(reader, _MOST_BYTES).decode(errors="replace")
    finally:
        os.close(reader)
    _, status = os.waitpid(child.identity.pid, 0)
    os.close(child.bell)
    code = os.waitstatus_to_exitcode(status)
    if said:
        raise TeamError(said)
    if code:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise CannotBegin(f"its process {how}")


def explain(error: Exception) -> TeamError:
    """Return the sentence about an error that keeps teammates from beginning."""
    if isinstance(error, TeamError):
        return error
    if (limit := explain_limit(error)) is not None:
        return TeamError(f"no teammate can begin here: {limit}")
    said = " ".join(str(error).split())
    return CannotBegin(f"{type(error).__name__}: {said}" if said else type(error).__name__)


def _take_steps(steps: Callable[[int], None], bell: int, report: int) -> int:
    try:
        steps(bell)
    except Exception as error:  # noqa: BLE001 -- the child's edge: the parent raises it again
        os.write(report, str(explain(error)).encode(errors="replace")[:_MOST_BYTES])
        return ChildExit.CRASHED
    return ChildExit.STOPPED


def _wait(child: Child, report: int) -> None:
    """Wait until the process has reported or ended; kill it after `_TRIAL_SECONDS`."""
    if not select.select([report], [], [], _TRIAL_SECONDS)[0]:
        child.signal(signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child.identity.pid, 0)
        os.close(child.bell)
        raise CannotBegin(f"its first steps took more than {_TRIAL_SECONDS:g} s")
