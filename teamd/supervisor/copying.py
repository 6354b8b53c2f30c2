"""The working copies that are being made: each by a process, since a large one takes seconds."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from teamd.copies.clone import make_copy
from teamd.errors import ExitCode, TeamError
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.supervisor.fork import Child, fork

_MOST_BYTES: Final = 1 << 15  # less than a pipe takes without a reader


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOutcome:
    """The end of the making of a copy.

    Attributes:
        error: why there is none; empty where there is one.
        killed: whether something may be left of it.
        lacks: what is not in it, in a sentence.
    """

    error: str = ""
    killed: bool = False
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class _Making:
    """A copy that is being made, and who waits for it."""

    child: Child
    outcome: int
    then: Callable[[CopyOutcome], None]


@dataclass(slots=True)
class CopyMakers:
    """The processes that make working copies.

    Attributes:
        paths: the team.
        private: returns the supervisor's own descriptors, which no child may keep.
    """

    paths: TeamPaths
    journal: Journal
    private: Callable[[], Iterable[int]]
    _begun: bool = False
    _stopped: bool = False
    _waiting: list[Callable[[], None]] = field(default_factory=list)
    _makings: dict[str, _Making] = field(default_factory=dict)

    def check(self, name: str) -> None:
        """See that no copy is being made for a teammate.

        Raises:
            TeamError: one is.
        """
        if name.lower() in map(str.lower, self._makings):
            raise TeamError(f"a working copy for {name} is being made; try again in a moment")

    def make(self, name: str, team: str, folder: Path, then: Callable[[CopyOutcome], None]) -> None:
        """Begin to make a copy of a folder; `then` is called when that has ended."""
        if not self._begun:
            self._waiting.append(lambda: self.make(name, team, folder, then))
            return
        try:
            self._fork(name, team, folder, then)
        except OSError as error:
            then(CopyOutcome(error=f"no process could be forked: {error.strerror}"))

    def begin(self) -> None:
        """Make those that were to be made before: a process forked then would hold `ready` back."""
        self._begun = True
        waiting, self._waiting = self._waiting, []
        for make in waiting:
            make()

    def _fork(
        self, name: str, team: str, folder: Path, then: Callable[[CopyOutcome], None]
    ) -> None:
        reader, writer = os.pipe()
        others = [one.outcome for one in self._makings.values()]
        try:
            child = fork(
                lambda _: self._run(name, team, folder, writer),
                close=(*self.private(), *others, reader),
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self.journal.note("working copy begun", name=name, pid=child.identity.pid)
        self._makings[name] = _Making(child, reader, then)

    def reap(self) -> list[Callable[[], None]]:
        """Take note of every maker that has ended.

        Returns:
            What goes on now with each; of one that was killed first what it started is to end.
        """
        ended: list[Callable[[], None]] = []
        for name, making in list(self._makings.items()):
            if (code := making.child.reap()) is None:
                continue
            del self._makings[name]
            outcome = _read(making.outcome, code)
            if outcome.killed and self._stopped:
                outcome = replace(outcome, error="teamd was stopped; start it, and spawn it again")
            self.journal.note("working copy ended", name=name, error=outcome.error)
            ended.append(partial(making.then, outcome))
        return ended

    def stop(self) -> None:
        """Kill all makers; what they leave half made is removed by the next one."""
        self._stopped = True
        for making in self._makings.values():
            making.child.signal(signal.SIGKILL)

    def pids(self) -> set[int]:
        """Return the pids of all makers."""
        return {making.child.identity.pid for making in self._makings.values()}

    def _run(self, name: str, team: str, folder: Path, writer: int) -> int:
        try:
            found = {"lacks": make_copy(self.paths, name, team, folder).lacks}
        except TeamError as error:
            found = {"error": str(error)}
        os.write(writer, json.dumps(found)[:_MOST_BYTES].encode())
        return ExitCode.DONE


def _read(outcome: int, code: int) -> CopyOutcome:
    try:
        found: dict[str, Any] = json.loads(os.read(outcome, _MOST_BYTES))
        return CopyOutcome(**found)
    except (ValueError, TypeError):
        why = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return CopyOutcome(
            killed=True,
            error=f"no working copy was made: its process {why}; `teamctl logs teamd` may say why",
        )
    finally:
        os.close(outcome)
