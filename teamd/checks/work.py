"""The place of a check whose task's owner has a working copy: a clean clone of what it committed.

What it has not committed is committed first, as it would do that: in its copy, with the rights of
its commands. All that git does there it does in a sandbox, whatever stands around commands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from teamd.checks.places import CleanClone, NoPlace, OpenPlace, commit_work
from teamd.checks.shells import CheckShells
from teamd.copies import record
from teamd.copies.clone import settle
from teamd.copies.record import Copy
from teamd.errors import TeamError
from teamd.files import files, locks
from teamd.files.paths import TeamPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedWork:
    """A clean clone of what a teammate has committed by then.

    Attributes:
        name: the teammate's.
        subject: of the commit that it gets if it has uncommitted work.
        folder: for the clone alone.
        shells: make what starts commands.
        protect: patterns of paths that the clone has from the base of the copy.
    """

    paths: TeamPaths
    name: str
    subject: str
    folder: Path
    shells: CheckShells
    protect: tuple[str, ...] = ()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenPlace]:
        """Commit what there is, and clone it, see `CheckPlace`."""
        with locks.locked(record.lock_file(self.paths, self.name)):  # merging and discarding wait
            copy = self._find_copy()
            commit = await self._commit(copy)
        shells = self.shells.of_clone(copy.origin)
        clone = CleanClone(
            folder=self.folder,
            make_shell=shells,
            make_walled_shell=shells.walled,
            commit=commit,
            repository=copy.folder,
            base=copy.base,
            base_objects=copy.origin.objects,
            shallow=files.read(copy.origin.objects.parent / "shallow") or b"",
            protect=self.protect,
        )
        async with clone.opened() as place:
            yield place

    def _find_copy(self) -> Copy:
        try:
            return settle(self.paths, record.get(self.paths, self.name))
        except TeamError as error:
            raise NoPlace(str(error)) from error

    async def _commit(self, copy: Copy) -> str:
        with closing(self.shells.of_copy(copy)) as shell:
            return await commit_work(
                shell,
                copy.folder,
                self.subject,
                name=copy.name,
                email=copy.email,
                branch=copy.branch,
                base=copy.base,
            )
