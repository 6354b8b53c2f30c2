"""The file of the merge queue: changed by one writer at a time, and replaced as a whole.

As on the board, who has to hear of a change is written down with the change (`untold`), put into
the inboxes, and then taken out again, so that a kill makes neither two of it nor none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from teamd.board import proofs
from teamd.board.files import UnknownTask
from teamd.copies.landing import NotLanded
from teamd.errors import NotAMessage, StoreError, TeamError
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.merges.entry import Entries, Entry, MergeState
from teamd.messages import Message

if TYPE_CHECKING:
    from teamd.board.board import Board

_LISTED_SECONDS: Final = 86_400.0  # for so long after its end
_LANDING_SECONDS: Final = 600.0  # a branch that is checked out moves with its files


class UnknownEntry(TeamError):
    """An id that no entry has."""

    def __init__(self, wanted: str, there: Entries) -> None:
        ids = ", ".join(entry.id for entry in there.open)
        super().__init__(
            f"nothing in the queue has the id {wanted!r}; "
            + (f"there are: {ids}" if ids else "`teamctl queue add NAME` adds what NAME committed")
        )


def read(paths: TeamPaths) -> Entries:
    """Return the queue as it is, read without any lock.

    Raises:
        StoreError: it cannot be read.
    """
    content = files.read(paths.queue)
    if content is None:
        return Entries()
    try:
        return Entries.decode(content)
    except ValueError as error:
        raise StoreError(
            f"{paths.queue} is damaged ({error}); move it away, and add again what waited in it"
        ) from error


@dataclass(frozen=True, slots=True)
class Queue:
    """The merge queue of a team.

    Attributes:
        board: in the hands of `teamd`: a task whose work was not merged is open again.
    """

    board: Board

    def read(self) -> Entries:
        """Return the queue as it is, see `read`."""
        return read(self.board.paths)

    def add(self, entry: Entry, keep: Callable[[str], None]) -> Entry:
        """Add an entry behind all others; the same key, or commit, twice makes one.

        Args:
            entry: whose id is given here.
            keep: is called with the id first, and keeps the commit.
        """
        with self._writing() as there:
            for other in there.all:
                same = other.commit == entry.commit and other.teammate == entry.teammate
                again = other.key == entry.key if entry.key else same and not other.state.finished
                if again:
                    files.make_durable(self.board.paths.queue)
                    return other
            made = replace(entry, id=str(there.last + 1), when=time.time())
            keep(made.id)
            return self._put(Entries((*there.all, made), there.last + 1), made)

    def remove(self, entry_id: str) -> Entry:
        """Take an entry out, also one that is being checked.

        Raises:
            TeamError: there is none, or it is finished.
        """
        wanted = entry_id.strip().removeprefix("#")
        with self._writing() as there:
            entry = there.find(wanted)
            if entry is None:
                raise UnknownEntry(entry_id, there)
            if entry.state.finished:
                raise TeamError(
                    f"{wanted} has left the queue: it is {entry.state}; `teamctl queue` lists it "
                    "for a day"
                )
            self._write(replace(there, all=tuple(one for one in there.all if one is not entry)))
            return entry

    def note(self, entry_id: str, **changes: Any) -> Entry | None:
        """Change what is known of an open entry; `None` where somebody has taken it out."""
        with self._writing() as there:
            return self._change(there, entry_id, changes)

    def land(self, entry_id: str, move: Callable[[], None]) -> bool:
        """Move the branch, unless somebody has taken the entry out; nobody can meanwhile.

        Raises:
            TeamError: whatever `move` raises.
        """
        with self._writing() as there:
            entry = self._change(there, entry_id, {"landing": True})
            if entry is None:
                return False
            try:
                move()
            except NotLanded:  # otherwise something may be half done: that is mended first
                with suppress(StoreError):
                    self._change(there, entry_id, {"landing": False})
                raise
            return True

    def finish(
        self, entry_id: str, state: MergeState, why: str, *, mail: Message | None, note: str = ""
    ) -> Entry | None:
        """End an entry, and tell who has to hear of it; `None` where it was taken out.

        Args:
            entry_id: the entry's.
            state: that it comes to.
            why: for people.
            mail: about it.
            note: for its task, which is opened again; empty where it stays as it is.
        """
        untold = () if mail is None else (mail,)
        with self._writing() as there:
            return self._change(
                there, entry_id, {"state": state, "why": why, "note": note, "untold": untold}
            )

    def unless_open(self, entry_id: str, deed: Callable[[], None]) -> None:
        """Do something unless there is an open entry of that id; none comes meanwhile."""
        with self._writing() as there:
            entry = there.find(entry_id)
            if entry is None or entry.state.finished:
                deed()

    def flush(self) -> None:
        """Tell what writers that were killed had not told yet."""
        if any(_owes(entry) for entry in self.read().all):
            with self._writing():  # whoever writes tells first
                pass

    @contextmanager
    def _writing(self) -> Iterator[Entries]:
        paths = self.board.paths
        directories.make_safe_directory(paths.tasks)
        with locks.locked(paths.queue_lock, timeout_seconds=_LANDING_SECONDS):
            there = self.read()
            for entry in there.all:
                if _owes(entry):
                    files.make_durable(paths.queue)
                    there = self._told(there, entry)
            yield there

    def _change(self, there: Entries, entry_id: str, changes: dict[str, Any]) -> Entry | None:
        old = there.find(entry_id)
        if old is None or old.state.finished:
            return None
        new = replace(old, **changes)
        if new.state is not old.state:
            new = replace(new, when=time.time())
        return self._put(_with(there, new), new)

    def _put(self, there: Entries, entry: Entry) -> Entry:
        self._write(there)
        return (self._told(there, entry).find(entry.id) or entry) if _owes(entry) else entry

    def _write(self, there: Entries) -> None:
        before = time.time() - _LISTED_SECONDS
        kept = (one for one in there.all if not (one.state.finished and one.when < before))
        files.replace(self.board.paths.queue, replace(there, all=tuple(kept)).encode())

    def _told(self, there: Entries, entry: Entry) -> Entries:
        """Open its task again and put what is untold into the inboxes, then forget it."""
        told = _with(there, replace(entry, untold=(), note=""))
        with suppress(StoreError):  # a later writer tells
            self._reopen(entry)
            for message in entry.untold:
                with suppress(NotAMessage):  # over a limit that was lowered: never to be told
                    self.board.post.mailbox(message.to).put(message)
            self._write(told)
            return told
        return there

    def _reopen(self, entry: Entry) -> None:
        if entry.note:
            with suppress(UnknownTask):
                self.board.apply(entry.task, partial(proofs.reopened, note=entry.note))


def _owes(entry: Entry) -> bool:
    return bool(entry.untold or entry.note)


def _with(there: Entries, entry: Entry) -> Entries:
    known = there.find(entry.id)
    changed = (entry if one.id == entry.id else one for one in there.all)
    return replace(there, all=tuple(changed) if known else (*there.all, entry))
