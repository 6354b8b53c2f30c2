"""The process that empties the merge queue: it merges, checks, and moves the branch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from teamd.board.proofs import describe
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.checks.board import own_board
from teamd.checks.commands import NOT_STARTED, CheckKilled, Tail, run_commands
from teamd.checks.endings import Endings
from teamd.checks.making import MergeMaker, Unfit
from teamd.checks.places import CleanClone, NoPlace, empty
from teamd.checks.shells import CheckShells
from teamd.copies import landing, mending, onto
from teamd.copies.confined import remove_scratch
from teamd.copies.source import GitKilled, Source
from teamd.errors import StoreError, TeamError
from teamd.files import files
from teamd.files.locks import InstanceLock
from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.merges import joining, news
from teamd.merges.entry import Entry, MergeState
from teamd.merges.queue import Queue
from teamd.sandbox.build import remove_cgroups
from teamd.sandbox.probe import Probe
from teamd.settings import Settings
from teamd.states import ChildExit

PLACE: Final = "queue"  # the name that its lock, clone and home go by; no task's
_MOST_LISTED: Final = 10


@dataclass(frozen=True, kw_only=True)
class Merger:
    """Empties the queue after it was forked.

    Attributes:
        queue: of the team.
        settings: those in force at the fork.
        probe: whether this machine can make a sandbox.
        mask: keeps secrets out of the output of checks.
    """

    queue: Queue
    settings: Settings
    probe: Probe
    mask: Mask

    @classmethod
    def of(cls, paths: TeamPaths, settings: Settings, probe: Probe, mask: Mask) -> Merger:
        """Return the merger of a team."""
        return cls(
            queue=Queue(own_board(paths, settings)), settings=settings, probe=probe, mask=mask
        )

    def run(self) -> int:
        """Be the process that merges; return the exit code."""
        try:
            lock = InstanceLock(self._paths.check_lock(PLACE))  # never two at a time
            lock.check()
            with closing(asyncio.new_event_loop()) as loop:
                asyncio.set_event_loop(loop)
                self._clean()
                loop.run_until_complete(self._work())
                self._clean()
            swept = joining.sweep(self.queue, self._source)
        except CheckKilled:
            return ChildExit.CRASHED
        except StoreError:
            return ChildExit.IO
        except TeamError:  # git is gone: that stands in the queue
            return ChildExit.CRASHED
        return ChildExit.STOPPED if swept else ChildExit.CRASHED  # it is tried again in a while

    @property
    def _paths(self) -> TeamPaths:
        return self.queue.board.paths

    @property
    def _into(self) -> str:
        return self.settings.merge.into

    @cached_property
    def _source(self) -> Source:
        return Source.of(self.settings.team.workspace, [self._paths.work])

    @cached_property
    def _maker(self) -> MergeMaker:
        return MergeMaker(paths=self._paths, source=self._source, settings=self.settings)

    @cached_property
    def _endings(self) -> Endings:
        return Endings(self.queue, self._source, self._into, self.settings.tasks.protect)

    def _clean(self) -> None:
        """Remove what a run leaves, this one or another that was killed."""
        name = self._paths.checker_name(PLACE)
        remove_cgroups(self._paths, [name])
        empty(self._paths.homes / name)
        empty(self._paths.check_place(PLACE))
        remove_scratch(self._paths)
        onto.remove_left(self._paths)
        with suppress(TeamError):  # of a repository that is gone the entry says so
            mending.clear_ref_locks(self._source, landing.ref_of(self._into))

    async def _work(self) -> None:
        """Merge what waits, one after the other, until nothing is left that can be."""
        self.queue.flush()
        held: set[str] = set()
        while (entry := self._next(held)) is not None:
            try:
                await self._step(entry)
            except StoreError:
                raise
            except GitKilled as error:
                self.queue.note(entry.id, kills=entry.kills + 1)
                raise CheckKilled(str(error)) from error
            except TeamError as error:
                why = " ".join(str(error).split())
                self.queue.note(entry.id, state=MergeState.WAITING, why=why)
                if not isinstance(error, landing.InTheWay):
                    return  # nothing goes on before that is mended
                held.add(entry.id)

    def _next(self, held: Container[str]) -> Entry | None:
        """Return the first entry that can be merged; one whose task is open again is dropped.

        Args:
            held: the ids of those that cannot be merged now.
        """
        for entry in self.queue.read().open:
            if entry.id in held:
                continue
            task = self._task(entry)
            if task is None or task.status is TaskStatus.COMPLETED:
                return entry
            if task.claim != entry.key:  # otherwise it is about to be completed
                joining.remove(self.queue, entry.id, self._source)
        return None

    def _after(self, entry: Entry, commit: str) -> Entry | None:
        """Return the entry that is merged onto the merge of this one, should that pass."""
        for one in self.queue.read().open:
            task = None if one.id == entry.id else self._task(one)
            if one.id != entry.id and (task is None or task.status is TaskStatus.COMPLETED):
                return replace(one, onto=commit)
        return None

    def _task(self, entry: Entry) -> Task | None:
        """Return the task whose completion an entry waits for."""
        return self.queue.board.read_one(entry.task) if entry.key else None

    async def _step(self, entry: Entry) -> None:
        """Bring an entry one step further: to its end, unless the branch has moved meanwhile."""
        source = self._source
        tip = landing.find_tip(source, self._into)
        passed = entry.passed and bool(source.find(entry.merge))  # nothing keeps it from `git gc`
        if passed and source.holds(entry.merge, within=tip):  # killed behind that
            self._endings.note_merged(entry)
        elif source.holds(entry.commit, within=tip):
            self._endings.finish(entry, MergeState.MERGED, "it was there already")
        else:
            if passed and entry.landing:  # killed in the middle of it
                landing.mend(source, self._into, entry.onto, entry.merge)
                self.queue.note(entry.id, landing=False)
            landing.check_ready(source, self._into)
            if not (passed and entry.onto == tip):
                begun = self._begin(entry, tip)
                entry = entry if begun is None else await self._merge(begun)
            if entry.passed and entry.onto == tip:
                self._endings.land(entry)

    def _begin(self, entry: Entry, tip: str) -> Entry | None:
        anew = {"merge": "", "passed": False, "landing": False, "why": "", "left_out": ""}
        return self.queue.note(entry.id, state=MergeState.CHECKING, onto=tip, **anew)

    async def _merge(self, entry: Entry) -> Entry:
        """Merge an entry onto the tip, and check it; return it as it is then."""
        try:
            made = self._maker.make(entry)
            async with self._maker.making(self._after(entry, made.commit)):
                await self._prove(entry, made.commit)
        except Unfit as unfit:
            self._endings.give_back(entry, unfit.state, unfit.why, unfit.mail)
            return entry
        left_out = news.describe_left_out(entry, made.left_out)
        facts = {"merge": made.commit, "passed": True, "left_out": left_out}
        return self.queue.note(entry.id, **facts) or entry

    async def _prove(self, entry: Entry, commit: str) -> None:
        """Check the merge commit.

        Raises:
            Unfit: it does not pass.
        """
        output = Tail(self.mask)
        attempt = await self._check(entry, commit, output)
        if not attempt.passed:
            ended, others = describe(attempt), self._merged_since(entry)
            mail = news.failed(entry, self._into, ended, output.text(), others=others)
            raise Unfit(MergeState.FAILED, ended, mail)

    async def _check(self, entry: Entry, commit: str, output: Tail) -> Attempt:
        command, name = self._maker.command, self._paths.checker_name(PLACE)
        failed = partial(Attempt, time=time.time(), seconds=0.0, command=command)
        head, members = self._maker.head, [entry.teammate]
        shells = CheckShells.of(name, members, self.settings, self._paths, self.probe)
        place = CleanClone(
            folder=self._paths.check_place(PLACE),
            make_shell=shells.of_clone(head.origin),
            make_walled_shell=shells.of_clone(head.origin).walled,
            commit=commit,
            base=entry.onto,
            base_objects=head.origin.objects,
            shallow=files.read(head.shallow) or b"",
        )
        try:
            async with place.opened() as there:
                seconds = self.settings.tasks.check_seconds
                return await run_commands(there.shell, [command], seconds=seconds, output=output)
        except NoPlace as error:
            return failed(status=NOT_STARTED, why=str(error))
        except CheckKilled:
            self.queue.note(entry.id, kills=entry.kills + 1)
            raise
        finally:
            remove_cgroups(self._paths, [name])

    def _merged_since(self, entry: Entry) -> list[str]:
        """Return what was merged since the work of an entry began, newest first."""
        between = f"{entry.commit}..{entry.onto}"
        most = f"--max-count={_MOST_LISTED}"
        said = self._source.ask("log", "--first-parent", "--merges", "--format=%s", most, between)
        return said.splitlines()
