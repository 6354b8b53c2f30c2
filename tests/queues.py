"""Teammates with working copies and a merge queue, for tests: the test does what they would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
from tests.projects import copy_project
from tests.repositories import git, make_repository
from tests.waiting import wait_until

CHECK = "sh check.sh"
# It passes unless two words that do not go together stand in files; and says what it saw.
SCRIPT = "cat *.txt > all; ! { grep -q left all && grep -q right all; } || { echo both; exit 1; }\n"


class Yard:
    """A project with a queue.

    It has no teamd, unless the test starts one: `empty` does what that would have done.

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
        """What team.toml says now."""
        file = self.folder / "team.toml"
        return parse(file.read_bytes(), path=file)

    def copy(self, name: str) -> Path:
        """The working copy of a teammate."""
        return self.project.paths.copy(name)

    def commit(self, name: str, message: str = "work", **files: str) -> str:
        """Commit files, as a teammate does it; names have `.txt` behind them."""
        for file, text in files.items():
            (self.copy(name) / f"{file}.txt").write_text(text)
        git(self.copy(name), "add", "--all")
        git(self.copy(name), "commit", "--quiet", "--allow-empty", "-m", message)
        return git(self.copy(name), "rev-parse", "HEAD")

    def add(self, name: str) -> str:
        """Queue what a teammate has committed, as the command does; the id."""
        return enqueue.add(self._queue, name, self.settings).id

    @contextmanager
    def emptied(self) -> Iterator[ForkedChild]:
        """Run the process that teamd forks for the queue, beside what is done meanwhile."""
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
        """What the command shows as JSON, by id."""
        shown = queue.read(self.project.paths).all
        return {entry.id: json.loads(json.dumps(entry.to_json())) for entry in shown}

    def stored(self) -> dict[str, dict[str, Any]]:
        """What the file says, by id."""
        file = self.project.paths.queue
        found = json.loads(file.read_bytes())["queue"] if file.exists() else []
        return {entry["id"]: entry for entry in found}

    def wait(self, entry_id: str, state: str, *, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until an entry is in a state."""
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
        return "\n\n".join([*told, *(line["content"] for line in lines)])

    def wait_heard(self, name: str, words: str) -> None:
        """Wait until a teammate has got mail with these words."""
        wait_until(lambda: words in self.heard(name), what=f"{name} hears {words!r}")

    def git(self, *words: str) -> str:
        """Run git in the person's repository."""
        return git(self.folder, *words)

    def leftovers(self) -> list[str]:
        """What an ended run should have removed."""
        paths = self.project.paths
        places = [paths.checks / "queue", paths.work / ".merging", *paths.homes.glob("check.*")]
        places += [*paths.work.glob(".scratch-*"), self.folder / ".git" / "index.lock"]
        refs = self.git("for-each-ref", "--format=%(refname)", "refs/teamd/queue").split()
        return [*(str(place) for place in places if place.exists()), *refs]

    def merges(self, branch: str = "team/main") -> list[str]:
        """The subjects of what the queue has merged, oldest first."""
        between = f"main..{branch}"
        return self.git("log", "--reverse", "--first-parent", "--format=%s", between).splitlines()


def _make_checked(folder: Path) -> None:
    make_repository(folder)
    (folder / "check.sh").write_text(SCRIPT)
    git(folder, "add", "check.sh")
    git(folder, "commit", "--quiet", "-m", "check")
