"""The processes that do one piece of work each, beside the teammates: checks, merges, mail."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from teamd.supervisor.checkers import Checkers
from teamd.supervisor.mergers import Mergers
from teamd.supervisor.postmen import Postmen


@dataclass(frozen=True, slots=True)
class Workers:
    """All of them."""

    checkers: Checkers
    mergers: Mergers
    postmen: Postmen

    @property
    def all(self) -> tuple[Checkers, Mergers, Postmen]:
        """One after the other."""
        return (self.checkers, self.mergers, self.postmen)

    def begin(self) -> None:
        """Fork those at once that need nothing of what the supervisor is about to load."""
        self.postmen.look()

    def note(self, names: Collection[str] | None) -> None:
        """Take note of files of the board that have changed; `None` where only a look can tell."""
        for one in self.all:
            one.note(names)

    def look(self) -> None:
        """Fork those that there is work for, and end those whose work nobody wants any more."""
        for one in self.all:
            one.look()

    def reap(self) -> list[int]:
        """Take note of processes that have ended; return their exit codes."""
        return [code for one in self.all for code in one.reap()]

    def kill_all(self) -> None:
        """Kill every process at once; another one begins its work again."""
        for one in self.all:
            one.kill_all()

    def close(self) -> None:
        """End all of them, and fork no more."""
        for one in self.all:
            one.close()

    def pids(self) -> set[int]:
        """Return the pids of all processes."""
        return {pid for one in self.all for pid in one.pids()}

    def next_due_seconds(self) -> float:
        """Return the seconds until `look` has something to do."""
        return min(one.next_due_seconds() for one in self.all)
