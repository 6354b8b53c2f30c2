"""The processes of all teammates, to look at."""

from __future__ import annotations

from typing import Final

from teamd.process_id import Identity
from teamd.supervisor.lifecycle import Life, State

_ENDING: Final = (State.STOPPING, State.KILLED)


class Lives:
    """The lives of teammates by their names."""

    __slots__ = ()
    _lives: dict[str, Life]

    def process(self, name: str) -> Identity | None:
        """Return the process of a teammate, if it has one."""
        life = self._lives.get(name)
        return life.child.identity if life is not None and life.child is not None else None

    def believes(self, name: str, pid: object, started: object) -> bool:
        """Return whether a report is of a teammate's process, or of the one it hibernated from."""
        former = self._lives[name].former if name in self._lives else None
        known = filter(None, (self.process(name), former))
        return any((one.pid, one.started) == (pid, started) for one in known)

    def state(self, name: str) -> State:
        """Return the state of a teammate's process."""
        life = self._lives.get(name)
        return State.ABSENT if life is None else life.state

    def ending(self, name: str) -> bool:
        """Return whether a teammate's process is being ended."""
        return self.state(name) in _ENDING

    def active(self) -> list[str]:
        """Return the names of those that have a process, or are about to have one again."""
        return [life.name for life in self._lives.values() if life.state is not State.ABSENT]

    def pids(self) -> set[int]:
        """Return the pids of all processes."""
        return {life.child.identity.pid for life in self._lives.values() if life.child is not None}

    def _life(self, name: str) -> Life:
        return self._lives.setdefault(name, Life(name))
