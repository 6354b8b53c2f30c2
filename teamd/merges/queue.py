"""The file of the merge queue: changed by one writer at a time, and replaced as a whole.

As on the board, mail about a change is first recorded with the change (`untold`), then put into the
inboxes, and then removed from the record. So after a kill it is delivered exactly once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from teamd.board import rules
from teamd.board.files import UnknownTask
from teamd.copies.copy_status import name_files
from teamd.copies.move_branch import NotLanded
from teamd.errors import NotAMessage, StoreError, TeamError
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.messages import TEAMD, Message

if TYPE_CHECKING:
    from teamd.board.board import Board


MOST_KILLS: Final = 20  # in a row; then the work itself must be killing git or its check
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
        return self not in (MergeState.WAITING, MergeState.CHECKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Work of a teammate that is to be merged.

    Attributes:
        task: the id of its task; may be empty.
        commit: the teammate's; a ref in the person's repository keeps it meanwhile.
        title: one line.
        when: the time of its last change of state, in seconds since the epoch.
        why: the reason why it waits or was not merged; for merged work, the files left out.
        key: the claim of the check that added it, so that a repeated call adds it once.
        kills: how often git or its check was killed, maybe by the work itself.
        onto: the tip that it was last merged onto.
        merge: the resulting merge commit.
        passed: whether `merge` passed the check, so that the branch may move to it.
        landing: whether the branch is being moved, or was when the process was killed.
        left_out: a sentence about files that were not merged; may be empty.
        note: for its task, which must be reopened; empty if it need not be.
        untold: mail about this state that has not been put into inboxes yet.
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
    """The content of the queue.

    Attributes:
        all: in the order in which they were added.
        last: the last id that was assigned.
        vouched: the last merge whose history holds nothing but merges of teamd and commits that the
            remote had; empty until one was pushed.
    """

    all: tuple[Entry, ...] = ()
    last: int = 0
    vouched: str = ""

    @property
    def open(self) -> list[Entry]:
        """The entries that are still to be merged."""
        return [entry for entry in self.all if not entry.state.finished]

    def find(self, entry_id: str) -> Entry | None:
        return next((entry for entry in self.all if entry.id == entry_id), None)

    def encode(self) -> bytes:
        """The content of the file."""
        entries = [*map(_plain, self.all)]
        numbers = {"format": _FORMAT, "last": self.last, "vouched": self.vouched}
        document = {**numbers, "queue": entries}
        return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Entries:
        """Read a file.

        Raises:
            ValueError: it is not a queue, or from a later version.
        """
        try:
            found = json.loads(content)
            if found["format"] != _FORMAT:
                raise ValueError("of another version")
            entries = tuple(map(_entry, found["queue"]))
            return cls(entries, int(found["last"]), str(found.get("vouched", "")))
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


_SHORT: Final = 12
_MOST_LISTED: Final = 10


def tracking(branch: str) -> str:
    """Return the name of a branch's tip in a copy."""
    return f"origin/{branch}"


def conflict(entry: Entry, into: str, files: Sequence[str]) -> Message:
    """Return the mail about a conflict."""
    why = f"it conflicts with what is there in: {', '.join(map(repr, files))}"
    return _about(entry, into, why, "resolve the conflicts")


def failed(
    entry: Entry, into: str, ended: str, output: str, *, others: Sequence[str] = ()
) -> Message:
    """Return the mail about a check that failed.

    Args:
        entry: as it was checked.
        into: the branch.
        ended: how the check ended, in a sentence.
        output: the end of its output.
        others: the subjects of merges since the teammate's work began.
    """
    why = f"merged with what is there it does not pass the check: {ended}"
    said = f"The end of its output:\n\n{output}" if output else "It wrote nothing."
    if others:
        listed = "\n".join(f"- {one}" for one in others[:_MOST_LISTED])
        said = f"Merged there since your work began, newest first:\n{listed}\n\n{said}"
    return _about(entry, into, why, "mend it", said)


def refused(entry: Entry, into: str, why: str) -> Message:
    """Return the mail about work that cannot be merged."""
    return _about(entry, into, why, "mend it")


def describe_left_out(entry: Entry, files: Sequence[str]) -> str:
    """Return a sentence about protected files that were not merged; empty if there are none."""
    if not files:
        return ""
    return f"left out, as protected: {name_files(files)}; `teamctl merge {entry.teammate}` takes it"


def _about(entry: Entry, into: str, why: str, deed: str, more: str = "") -> Message:
    tip = tracking(into)
    what = f"task {entry.task}" if entry.task else f"your work {entry.title!r}"
    then = f"set task {entry.task} to completed again; it is in progress until then"
    if not entry.task:
        then = f"tell lead, who queues it with `teamctl queue add {entry.teammate}`"
    text = (
        f"The commit {entry.commit[:_SHORT]} for {what} was not merged into {into}: {why}. "
        f"The tip of {into} is in your copy as {tip}: `git merge {tip}`, {deed}, commit, and "
        f"{then}."
    )
    summary = f"queue {entry.id}: not merged into {into}"
    extra = {"summary": summary, "task_id": entry.task, "queue_id": entry.id}
    content = "\n\n".join(filter(None, (text, more)))
    return Message(
        sender=TEAMD,
        to=entry.teammate,
        content=content.replace("\0", "\ufffd"),
        extra={key: value for key, value in extra.items() if value},
    )


_LISTED_SECONDS: Final = 86_400.0  # how long finished entries are listed
_LANDING_SECONDS: Final = 600.0  # to move a branch that is checked out, with its files


class UnknownEntry(TeamError):
    """An id that no entry has."""

    def __init__(self, wanted: str, there: Entries) -> None:
        ids = ", ".join(entry.id for entry in there.open)
        super().__init__(
            f"nothing in the queue has the id {wanted!r}; "
            + (f"there are: {ids}" if ids else "`teamctl queue add NAME` adds what NAME committed")
        )


def read(paths: TeamPaths) -> Entries:
    """Return the queue, read without a lock.

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
            f"{paths.queue} is damaged ({error}); move it away, and add its open entries again"
        ) from error


@dataclass(frozen=True, slots=True)
class Queue:
    """The merge queue of a team.

    Attributes:
        board: with `teamd` as its user, which reopens tasks whose work was not merged.
    """

    board: Board

    def read(self) -> Entries:
        return read(self.board.paths)

    def add(self, entry: Entry, keep: Callable[[str], None]) -> Entry:
        """Append an entry, unless there is one with the same key or commit.

        Args:
            entry: without an id, which it gets here.
            keep: called with the id first; adds a ref that keeps the commit.
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
            return self._put(replace(there, all=(*there.all, made), last=there.last + 1), made)

    def remove(self, entry_id: str) -> Entry:
        """Remove an entry, even while it is being checked.

        Raises:
            TeamError: it does not exist, or is finished.
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

    def vouch(self, merge: str) -> None:
        """Record a merge, see `Entries.vouched`."""
        with self._writing() as there:
            self._write(replace(there, vouched=merge))

    def note(self, entry_id: str, **changes: Any) -> Entry | None:
        """Change an open entry; `None` if it was removed."""
        with self._writing() as there:
            return self._change(there, entry_id, changes)

    def land(self, entry_id: str, move: Callable[[], None]) -> bool:
        """Move the branch under the lock of the queue; return false if the entry was removed.

        Raises:
            TeamError: from `move`.
        """
        with self._writing() as there:
            entry = self._change(there, entry_id, {"landing": True})
            if entry is None:
                return False
            try:
                move()
            except NotLanded:  # after other errors the move may be half done, and is repaired first
                with suppress(StoreError):
                    self._change(there, entry_id, {"landing": False})
                raise
            return True

    def finish(
        self, entry_id: str, state: MergeState, why: str, *, mail: Message | None, note: str = ""
    ) -> Entry | None:
        """End an entry and send the mail about it; `None` if it was removed.

        Args:
            entry_id: the entry.
            state: the final state.
            why: for people.
            mail: for the teammate.
            note: for its task, which is reopened; empty to leave the task alone.
        """
        untold = () if mail is None else (mail,)
        with self._writing() as there:
            return self._change(
                there, entry_id, {"state": state, "why": why, "note": note, "untold": untold}
            )

    def unless_open(self, entry_id: str, action: Callable[[], None]) -> None:
        """Call `action` under the lock of the queue, unless the entry is open."""
        with self._writing() as there:
            entry = there.find(entry_id)
            if entry is None or entry.state.finished:
                action()

    def flush(self) -> None:
        """Send the mail that killed writers have left unsent."""
        if any(_owes(entry) for entry in self.read().all):
            with self._writing():  # sends it
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
        """Reopen its task and put its mail into inboxes, then remove both from the record."""
        told = _with(there, replace(entry, untold=(), note=""))
        with suppress(StoreError):  # a later writer tries again
            self._reopen(entry)
            for message in entry.untold:
                with suppress(NotAMessage):  # above a limit that was lowered since
                    self.board.post.mailbox(message.to).put(message)
            self._write(told)
            return told
        return there

    def _reopen(self, entry: Entry) -> None:
        if entry.note:
            with suppress(UnknownTask):
                self.board.apply(entry.task, partial(rules.reopen, note=entry.note))


def _owes(entry: Entry) -> bool:
    return bool(entry.untold or entry.note)


def _with(there: Entries, entry: Entry) -> Entries:
    known = there.find(entry.id)
    changed = (entry if one.id == entry.id else one for one in there.all)
    return replace(there, all=tuple(changed) if known else (*there.all, entry))
