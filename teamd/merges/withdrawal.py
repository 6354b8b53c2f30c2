"""Takes out of the queue what was discarded."""

from __future__ import annotations

from teamd.copies.discarded import DISCARDED, now_in_refs
from teamd.copies.record import Copy
from teamd.copies.source import Source
from teamd.errors import StoreError, TeamError
from teamd.merges import joining
from teamd.merges.entry import Entry
from teamd.merges.queue import Queue


def withdraw(queue: Queue, copy: Copy, source: Source, kept: str) -> list[Entry]:
    """Take all of a teammate's entries out of the queue that are not merged.

    Args:
        queue: of the team.
        copy: the teammate's, which was reset.
        source: the person's repository.
        kept: the ref that keeps what was in the copy; a commit that it does not hold is kept too.

    Returns:
        What was taken out.
    """
    taken = []
    for entry in queue.read().open:
        if entry.teammate != copy.name:
            continue
        if not (kept.startswith(DISCARDED) and source.holds(entry.commit, within=kept)):
            source.move_ref(f"{copy.discarded}/{now_in_refs()}-{entry.id}", entry.commit)
        try:
            taken.append(joining.remove(queue, entry.id, source))
        except StoreError:
            raise
        except TeamError:  # it was merged, or removed by somebody else, meanwhile
            continue
    return taken
