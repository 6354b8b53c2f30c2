"""Teammates with working copies and a merge queue, for tests: the test does what they would."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from teamd.copies.clone import make_copy
from tests.repositories import git, make_repository
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.harness import Project

CHECK = "sh check.sh"
# It passes unless two words that do not go together stand in files; and says what it saw.
SCRIPT = "cat *.txt > all; ! { grep -q left all && grep -q right all; } || { echo both; exit 1; }\n"


class Yard:
    """A project with a queue.

    Attributes:
        folder: the person's repository, in which `check.sh` is the check.
    """

    def __init__(self, project: Project, *names: str, settings: str = "") -> None:
        self.project = project
        self.folder = project.folder
        make_repository(self.folder)
        (self.folder / "check.sh").write_text(SCRIPT)
        git(self.folder, "add", "check.sh")
        git(self.folder, "commit", "--quiet", "-m", "check")
        project.ask_no_service(settings or f'[merge]\ncheck = "{CHECK}"\n')
        project.enlist(*names, worktree=True)
        for name in names:
            make_copy(project.paths, name, "default", self.folder)

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
        """Queue what a teammate has committed; the id."""
        said = self.project.do("teamctl", "queue", "add", name, "--json")
        return str(json.loads(said)["id"])

    def entries(self) -> dict[str, dict[str, Any]]:
        """What the command shows, by id."""
        shown = json.loads(self.project.do("teamctl", "queue", "--json"))["queue"]
        return {entry["id"]: entry for entry in shown}

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
