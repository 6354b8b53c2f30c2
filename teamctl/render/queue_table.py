"""The merge queue as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from teamctl.render import output, tables
from teamctl.render.tables import Cell, FittedTable
from teamd.overview.standstill import find_unmerged

if TYPE_CHECKING:
    from teamd.merges.queue import Entry  # loads git's parts, which `top` needs in one tab only

EMPTY_QUEUE: Final = "the queue is empty; `teamctl queue add NAME` adds to it"
NOT_MERGING: Final = "no teamd runs, so nothing is merged; `teamd start` starts it"
SHORT_COMMIT: Final = 12
_HEADINGS: Final = ("ID", "STATE", "TEAMMATE", "TASK", "COMMIT", "SINCE", "WHY")
_COLOURS: Final = {
    "checking": "green",
    "merged": "cyan",
    "waiting": "yellow",
    "conflict": "red",
    "failed": "red",
}


def queue_table(entries: Sequence[Entry]) -> FittedTable:
    return tables.make_table(_HEADINGS, map(_row, entries), ("ID",))


def queue_notes(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a line for each teammate whose last entry was not merged: the next step."""
    for entry in find_unmerged(entries):
        then = f"`teamctl queue add {entry.teammate}` queues it again"
        if entry.task:
            then = f"it joins the queue again once {entry.teammate} completes task {entry.task}"
        yield f"{entry.teammate} was told how to repair {entry.id}; {then}"


def _row(entry: Entry) -> list[str | Cell]:
    state = str(entry.state), _COLOURS[entry.state]
    since, commit = output.ago(entry.when), entry.commit[:SHORT_COMMIT]
    return [entry.id, state, entry.teammate, entry.task or "-", commit, since, entry.why or "-"]
