"""The cost of a long task: input tokens that are paid in full; `-m tests.bench.tokens`.

The strict server keeps a prompt cache like the real one, and reports for each request the cached
tokens that it read. All other tokens, including those written to the cache, count as paid in full.
No call may be made twice. There is no other program to compare with: the cost of using an SDK
depends on the caller's own breakpoints, and without any, all tokens are paid in full.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.ruler import options, table
from tests.e2e.harness import Project, opened
from tests.e2e.stories import demands
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say
from tests.waiting import wait_until

_SAID: Final = "All as expected. " * 60  # in each turn: can be summarised, but not cleared
_TASK: Final = "Read note.txt again and again, until you are told that it is enough."
_WAIT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A task and its conditions.

    Attributes:
        limit: the share in percent.
        context_tokens: the model's context; if it is small, the conversation is compacted.
        disturbed: whether teamd is restarted in the middle, and the conversation compacted once.
    """

    name: str
    limit: float
    context_tokens: int = 200_000
    disturbed: bool = False


class Task:
    """A model that has a teammate call a tool so many times.

    Attributes:
        done: the number of calls made.
        summaries: the number of requested summaries.
    """

    def __init__(self, calls: int, pause_at: int) -> None:
        self._calls, self._pause_at = calls, pause_at
        self.done = self.summaries = 0

    def __call__(self, asked: Asked) -> Answer:
        if demands(asked):
            self.summaries += 1
            return say(f"I have read it {self.done} times; all as expected.")
        if self.done == self._calls:
            return say("That was enough.")
        self.done += 1
        if self.done == self._pause_at:
            return say(_SAID, calls=[("bash", {"command": "touch begun; sleep 60"})])
        page = {"path": "note.txt", "limit": 1000 + self.done}  # calls must differ
        return say(_SAID, calls=[("read_file", page)])


def measure(case: Case, calls: int) -> tuple[list[str], bool]:
    """Return the row of a task, and whether it took exactly as many requests as needed."""
    with (
        tempfile.TemporaryDirectory() as root,
        opened(Path(root), context_tokens=case.context_tokens) as project,
    ):
        task = Task(calls, calls // 2 if case.disturbed else 0)
        project.stage.act("ann", task)
        project.write("note.txt", "A line.\n")
        project.write("team.toml", _settings(case))
        project.start()
        project.do("teamctl", "spawn", "ann", "coder", _TASK)
        if case.disturbed:
            wait_until((project.folder / "begun").exists, timeout_seconds=_WAIT_SECONDS)
            project.restart()
        wait_until(
            lambda: project.records("ann", "ended"), timeout_seconds=_WAIT_SECONDS, what="the end"
        )
        project.wait_for("ann", "idle")
        assert task.summaries == case.disturbed, f"{task.summaries} summaries"
        return _row(case, project, calls + 1 + task.summaries)


def _settings(case: Case) -> str:
    return (
        f'[model]\ncontext_tokens = {case.context_tokens}\n[tools]\nsandbox = "off"\n'
        "[limits]\ncalls_per_wake = 1000\n"
    )


def _row(case: Case, project: Project, needed: int) -> tuple[list[str], bool]:
    asked, refused = project.asked("ann"), project.refusals()
    usages = [one.message["usage"] for one in asked if one.message is not None]
    read = sum(usage["cache_read_input_tokens"] for usage in usages)
    written = sum(usage["cache_creation_input_tokens"] for usage in usages)
    full = written + sum(usage["input_tokens"] for usage in usages)
    share = f"{100 * full / (full + read):.2f}"
    counts = (f"{len(asked)} of {needed}", f"{len(refused)}", f"{full + read:,}")
    return [case.name, share, f"{case.limit:g}", *counts], len(asked) == needed and not refused


def main() -> int:
    """Print the table; return 1 if a request was refused or unnecessary."""
    calls = 20 if options(__doc__).short else 100
    cases = (
        Case(name="undisturbed", limit=3),
        Case(
            name="a restart and a compaction",
            limit=5,
            context_tokens=8_000 if calls < 100 else 24_000,
            disturbed=True,
        ),
    )
    rows, right = zip(*(measure(case, calls) for case in cases), strict=True)
    head = [
        "the task",
        "% in full",
        "limit %",
        "requests of those needed",
        "refused",
        "input tokens",
    ]
    print(table(f"Input tokens paid in full, {calls} turns", [head, *rows]))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
