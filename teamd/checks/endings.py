"""How an entry of the merge queue ends: its branch moved, or back with its teammate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from teamd.copies import landing, record
from teamd.copies.confined import confined_git
from teamd.copies.onto import pathspecs
from teamd.copies.source import GitKilled, Source
from teamd.errors import StoreError, TeamError
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.merges import joining, news
from teamd.merges.entry import MOST_KILLS, Entry, MergeState
from teamd.merges.queue import Queue
from teamd.messages import Message

# Arguments: the name in the copy, the tip. The copy borrows the objects.
# A git that was killed here has left its lock; one that lives holds it for milliseconds.
_SHOW: Final = """\
set -- "refs/remotes/$1" "$2"
git -c core.filesRefLockTimeout=1000 update-ref -m queue "$@" && exit
rm -f "$(git rev-parse --git-path "$1.lock")"
git update-ref -m queue "$@"
"""
_LONGEST_WHY: Final = 500


@dataclass(frozen=True, slots=True)
class Endings:
    """Ends entries.

    Attributes:
        into: the branch that is merged into.
        protect: patterns of what checks take from the base.
    """

    queue: Queue
    source: Source
    into: str
    protect: tuple[str, ...]

    @property
    def _paths(self) -> TeamPaths:
        return self.queue.board.paths

    def land(self, entry: Entry) -> None:
        """Move the branch to a merge that passed the check, unless somebody has removed the entry.

        Raises:
            NotLanded: the person has work in the way.
            TeamError: the branch has moved meanwhile, or cannot be.
        """
        move = partial(landing.land, self.source, self.into, entry.onto, entry.merge)
        if self.queue.land(entry.id, move):
            self.note_merged(entry)

    def note_merged(self, entry: Entry) -> None:
        """End an entry whose merge is in the branch; unless something was left out, its base moves.

        That comes first: a kill in between leaves an entry that is ended once more.
        """
        if not entry.left_out:
            with locks.locked(record.lock_file(self._paths, entry.teammate)):
                copy = record.find(self._paths, entry.teammate)
                if copy is not None and self._may_be_base(entry, copy.base):
                    self.source.pin(copy.address, entry.commit)
                    record.with_base(self._paths, copy, entry.commit)
        self.finish(entry, MergeState.MERGED, entry.left_out)

    def _may_be_base(self, entry: Entry, base: str) -> bool:
        """Return whether checks may take what is protected from a commit that was merged.

        It has that as the base before, or as what was merged: never as its author would like it.
        """
        if not self.source.holds(base, within=entry.commit):
            return False
        if not self.protect:
            return True
        patterns = pathspecs(self.protect)
        own = self.source.differences(base, entry.commit, *patterns)
        return not {*own}.intersection(
            self.source.differences(entry.merge, entry.commit, *patterns)
        )

    def give_back(self, entry: Entry, state: MergeState, why: str, mail: Message) -> None:
        """Give work back to its teammate, whose copy learns of the tip before it is told."""
        self._show_tip(entry)
        self.finish(entry, state, why, mail)

    def finish(
        self, entry: Entry, state: MergeState, why: str, mail: Message | None = None
    ) -> None:
        """End an entry; its task is open again where there is mail about it."""
        note = f"not merged into {self.into}: {why} (queue {entry.id})" if mail else ""
        short = why[:_LONGEST_WHY]
        task_note = note[:_LONGEST_WHY] if entry.task else ""
        self.queue.finish(entry.id, state, short, mail=mail, note=task_note)
        joining.forget(self._paths, self.source, entry.id)

    def _show_tip(self, entry: Entry) -> None:
        with locks.locked(record.lock_file(self._paths, entry.teammate)):
            copy = record.find(self._paths, entry.teammate)
            if copy is None:
                return
            self.source.pin_shown(copy.address, entry.onto)
            try:
                with confined_git(self._paths, copy.folder, copy.origin, writable=True) as git:
                    git.do(_SHOW, news.tracking(self.into), entry.onto)
            except StoreError:
                raise
            except GitKilled:
                if entry.kills < MOST_KILLS:
                    raise
            except TeamError:  # its teammate broke the copy: it hears of the rest all the same
                return
