"""Teammates with many changes for the merge queue, of which some conflict with others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from tests.queues import Yard
from tests.repositories import git

# Two halves of a pair do not go together; it says which pair that is. Where a kill hits one program
# of the pipe, the whole check ends as killed: the rest would find no pair, and pass.
CHECK = (
    "set -o pipefail; bad=$(cat *.txt | { grep -oE '^pair-[0-9]+-[lr]$' || [ $? = 1 ]; } "
    "| sort -u | cut -d- -f2 | uniq -d) || kill -KILL $$; "
    '[ -z "$bad" ] || { echo both of $bad; exit 1; }'
)
CONFLICTS, PAIRS = 0.3, 0.1
TIP = "refs/remotes/origin/"


@dataclass
class Worker:
    """A teammate with changes to make, one after the other.

    Attributes:
        changes: lines to add, each to a file; in a shared one, they conflict.
        entry: of the change that is in the queue.
        failed: entries that did not pass the check.
    """

    yard: Yard
    name: str
    branch: str
    changes: list[tuple[str, str]]
    entry: str = ""
    at: tuple[str, str] = ("", "")
    failed: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether all of its changes have landed."""
        return not self.changes and not self.entry

    def go_on(self) -> None:
        """Make the next change, or try once more what was not merged."""
        if self.entry:
            state = self.yard.stored()[self.entry]["state"]
            if state in ("waiting", "checking"):
                return
            if state != "merged":
                self._mend(state)
                self.entry = self.yard.add(self.name)
                return
            self.entry = ""
        if self.changes:
            self.at = self.changes.pop(0)
            file, line = self.at
            path = self.yard.copy(self.name) / f"{file}.txt"
            old = path.read_text() if path.exists() else ""
            self.yard.commit(self.name, line, **{file: f"{line}\n{old}"})
            self.entry = self.yard.add(self.name)

    def _mend(self, state: str) -> None:
        """Merge the tip, keep the lines of both, and in a pair take the other half."""
        copy, file = self.yard.copy(self.name), f"{self.at[0]}.txt"
        why = self.yard.stored()[self.entry]["why"]
        meant = f"conflicts in {file}" if state == "conflict" else "ended with exit status 1"
        assert meant in why, (self.at, state, why)
        git(copy, "merge", "--quiet", "-m", "with the tip", TIP + self.branch, check=False)
        lines = (copy / file).read_text().splitlines()
        if state == "failed":
            self.failed.append(self.entry)
            mine = self.at[1]
            self.at = (self.at[0], f"{mine}-mended")
            lines = [f"{line}-mended" if line == mine else line for line in lines]
        kept = (line for line in lines if not re.match(r"<<<<|====|>>>>", line))
        (copy / file).write_text("".join(f"{line}\n" for line in kept))
        git(copy, "add", "--all")
        git(copy, "commit", "--quiet", "-m", f"{self.at[1]} once more")


def changes(random: Random, workers: int, each: int) -> list[list[tuple[str, str]]]:
    """Return the changes of each worker: so many conflict, and so many are halves of pairs."""
    made: list[list[tuple[str, str]]] = [[] for _ in range(workers)]
    pairs = max(1, int(workers * each * PAIRS))
    halves = [f"pair-{at}-{side}" for at in range(pairs) for side in "lr"]
    for at, half in enumerate(halves):
        made[at % workers].append((f"own-{at % workers}", half))
    for at, own in enumerate(made):
        while len(own) < each:
            number = len(own)
            shared = random.random() < CONFLICTS
            file = f"shared-{number % 3}" if shared else f"own-{at}-{number}"
            own.append((file, f"change-{at}-{number}"))
        random.shuffle(own)
    return made


def go_on(crew: list[Worker]) -> bool:
    """Have each make its next change, if it can; whether all have landed."""
    for worker in crew:
        worker.go_on()
    return all(worker.done for worker in crew)
