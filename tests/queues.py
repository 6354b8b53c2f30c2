"""Teammates with working copies and a merge queue; the test acts in their place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from teamd.checks.checker import own_board
from teamd.checks.merger import Merger
from teamd.masking import Mask
from teamd.merges import enqueue, queue
from teamd.merges.queue import Queue
from teamd.sandbox.probe import probe
from teamd.settings import Settings, parse
from tests.children import ForkedChild, forked
from tests.e2e.harness import Project
from tests.repositories import copy_project, git, make_repository
from tests.waiting import wait_until

CHECK = "sh check.sh"
# It passes unless two words that do not go together stand in files; and says what it saw.
SCRIPT = "cat *.txt > all; ! { grep -q left all && grep -q right all; } || { echo both; exit 1; }\n"


class Yard:
    """A project with a queue.

    It has no teamd, unless the test starts one: `empty` does its work.

    Attributes:
        folder: the person's repository, in which `check.sh` is the check.
    """

    def __init__(self, project: Project, *names: str, settings: str = "") -> None:
        self.project = project
        self.folder = project.folder
        copy_project(self.folder, *names, make=_make_checked)
        project.ask_no_service(settings or f'[merge]\ncheck = "{CHECK}"\n')
        project.enlist(*names, worktree=True)

    @property
    def settings(self) -> Settings:
        file = self.folder / "team.toml"
        return parse(file.read_bytes(), path=file)

    def copy(self, name: str) -> Path:
        return self.project.paths.copy(name)

    def commit(self, name: str, message: str = "work", **files: str) -> str:
        """Commit files, as a teammate does it; names have `.txt` behind them."""
        for file, text in files.items():
            (self.copy(name) / f"{file}.txt").write_text(text)
        git(self.copy(name), "add", "--all")
        git(self.copy(name), "commit", "--quiet", "--allow-empty", "-m", message)
        return git(self.copy(name), "rev-parse", "HEAD")

    def add(self, name: str) -> str:
        """Queue a teammate's commits as the command does; return the id."""
        return enqueue.add(self._queue, name, self.settings).id

    @contextmanager
    def emptied(self) -> Iterator[ForkedChild]:
        """Run the queue's process in the background during the block."""
        with forked(self._run_merger) as process:
            yield process
            assert process.stdout.read() == "it ended\n"

    def empty(self) -> dict[str, dict[str, Any]]:
        """Run that process to its end; the entries, by id."""
        with self.emptied():
            pass
        return self.stored()

    def _run_merger(self) -> None:
        Merger.of(self.project.paths, self.settings, probe(), Mask()).run()
        print("it ended")  # noqa: T201 -- for `emptied`

    @property
    def _queue(self) -> Queue:
        return Queue(own_board(self.project.paths, self.settings))

    def entries(self) -> dict[str, dict[str, Any]]:
        """The entries that the command shows as JSON, by id."""
        shown = queue.read(self.project.paths).all
        return {entry.id: json.loads(json.dumps(entry.to_json())) for entry in shown}

    def stored(self) -> dict[str, dict[str, Any]]:
        """The entries of the file, by id."""
        file = self.project.paths.queue
        found = json.loads(file.read_bytes())["queue"] if file.exists() else []
        return {entry["id"]: entry for entry in found}

    def wait(self, entry_id: str, state: str, *, seconds: float = 30.0) -> dict[str, Any]:
        wait_until(
            lambda: self.stored().get(entry_id, {}).get("state") == state,
            timeout_seconds=seconds,
            what=f"{entry_id} is {state}",
        )
        return self.entries()[entry_id]

    def heard(self, name: str) -> str:
        """All mail that a teammate has got, read or not."""
        read = (record["messages"] for record in self.project.records(name, "mail"))
        told = (one["content"] for messages in read for one in messages)
        lines = map(json.loads, self.project.mail(name).splitlines())
        return "\n\n".join([*told, *(line["content"] for line in lines if "content" in line)])

    def wait_heard(self, name: str, words: str) -> None:
        """Wait until a teammate has got mail with these words."""
        wait_until(lambda: words in self.heard(name), what=f"{name} hears {words!r}")

    def git(self, *words: str) -> str:
        """Run git in the person's repository."""
        return git(self.folder, *words)

    def leftovers(self) -> list[str]:
        """Leftovers that a run should have removed."""
        paths = self.project.paths
        places = [paths.checks / "queue", paths.work / ".merging", *paths.homes.glob("check.*")]
        places += [*paths.work.glob(".scratch-*"), self.folder / ".git" / "index.lock"]
        refs = self.git("for-each-ref", "--format=%(refname)", "refs/teamd/queue").split()
        return [*(str(place) for place in places if place.exists()), *refs]

    def merges(self, branch: str = "team/main") -> list[str]:
        """The subjects of merged commits, oldest first."""
        between = f"main..{branch}"
        return self.git("log", "--reverse", "--first-parent", "--format=%s", between).splitlines()


def _make_checked(folder: Path) -> None:
    make_repository(folder)
    (folder / "check.sh").write_text(SCRIPT)
    git(folder, "add", "check.sh")
    git(folder, "commit", "--quiet", "-m", "check")


# Two halves of a pair do not go together; it says which pair that is. Where a kill hits one program
# of the pipe, the whole check ends as killed: the rest would find no pair, and pass.
PAIRS_CHECK = (
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
        return not self.changes and not self.entry

    def go_on(self) -> None:
        """Make the next change, or retry one that was not merged."""
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
