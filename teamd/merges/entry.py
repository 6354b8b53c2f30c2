"""An entry of the merge queue: what its file says. Raw JSON of entries exists only here."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from teamd.errors import TeamError
from teamd.messages import Message

MOST_KILLS: Final = 20  # in a row: then it is the work that ends git or its check
_FORMAT: Final = 1


class MergeState(StrEnum):
    """The progress of an entry."""

    WAITING = "waiting"
    CHECKING = "checking"  # it is merged onto the tip, and the check runs
    MERGED = "merged"
    CONFLICT = "conflict"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        """Return whether nothing is left to do."""
        return self not in (MergeState.WAITING, MergeState.CHECKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Work of a teammate that is to be merged.

    Attributes:
        task: that it is for; empty for none.
        commit: the teammate's; a ref in the person's repository keeps it meanwhile.
        title: what it is, on one line.
        when: it came to its state, in seconds since the epoch.
        why: it waits, or was not merged; of one that was merged, what was left out.
        key: what made it, so that a repeated call makes no second one.
        kills: how often somebody has ended git or its check, maybe the work itself.
        onto: the tip that it was last merged onto.
        merge: the commit that this made.
        passed: whether `merge` passed the check, so that the branch may move to it.
        landing: whether the branch is being moved; still so if that was killed.
        left_out: of the work, in a sentence; empty for nothing.
        note: what its task says from now on, which is to be opened again; empty for nothing.
        untold: mail about this very state that has yet to be put into inboxes.
    """

    id: str
    teammate: str
    task: str = ""
    commit: str
    title: str = ""
    state: MergeState = MergeState.WAITING
    when: float = 0.0
    why: str = ""
    key: str = ""
    kills: int = 0
    onto: str = ""
    merge: str = ""
    passed: bool = False
    landing: bool = False
    left_out: str = ""
    note: str = ""
    untold: tuple[Message, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The entry as people see it."""
        return {
            "id": self.id,
            "teammate": self.teammate,
            "task": self.task or None,
            "state": str(self.state),
            "commit": self.commit,
            "merge": self.merge if self.state is MergeState.MERGED else None,
            "when": self.when,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Entries:
    """A look at the queue.

    Attributes:
        all: in the order in which they came.
        last: the last id that was given.
    """

    all: tuple[Entry, ...] = ()
    last: int = 0

    @property
    def open(self) -> list[Entry]:
        """Those that are to be merged."""
        return [entry for entry in self.all if not entry.state.finished]

    def find(self, entry_id: str) -> Entry | None:
        """Return the one with that id."""
        return next((entry for entry in self.all if entry.id == entry_id), None)

    def encode(self) -> bytes:
        """The content of the file."""
        document = {"format": _FORMAT, "last": self.last, "queue": [*map(_plain, self.all)]}
        return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Entries:
        """Read a file.

        Raises:
            ValueError: it is no queue, or one of a later version.
        """
        try:
            found = json.loads(content)
            if found["format"] != _FORMAT:
                raise ValueError("of another version")
            return cls(tuple(map(_entry, found["queue"])), int(found["last"]))
        except (TypeError, KeyError, AttributeError, RecursionError, TeamError) as error:
            raise ValueError(f"no queue: {error}") from error


def _plain(entry: Entry) -> dict[str, Any]:
    found = {one.name: getattr(entry, one.name) for one in fields(Entry)}
    return {**found, "untold": [message.to_json() for message in entry.untold]}


def _entry(found: dict[str, Any]) -> Entry:
    untold = tuple(map(_message, found["untold"]))
    known = {one.name: found[one.name] for one in fields(Entry) if one.name in found}
    return Entry(**{**known, "state": MergeState(found["state"]), "untold": untold})


def _message(found: dict[str, Any]) -> Message:
    return Message.decode(json.dumps(found).encode(), to=found["to"])
