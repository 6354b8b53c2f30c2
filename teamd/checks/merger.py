"""The process that empties the merge queue: it merges, checks, and moves the branch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from teamd.board.rules import describe
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.checks.checker import own_board
from teamd.checks.commands import NOT_STARTED, CheckKilled, Tail, run_commands
from teamd.checks.places import CheckShells, CleanClone, NoPlace, empty
from teamd.copies import merge, move_branch, push, record
from teamd.copies.copy_status import name_files
from teamd.copies.forbidden import CommitGate, Forbidden
from teamd.copies.merge import pathspecs
from teamd.copies.sandboxed_git import open_sandboxed_git, remove_scratch
from teamd.copies.source import GitKilled, Head, Source, read_head
from teamd.errors import StoreError, TeamError
from teamd.files import files, locks
from teamd.files.locks import InstanceLock
from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.merges import enqueue, queue
from teamd.merges.queue import MOST_KILLS, Entry, MergeState, Queue
from teamd.messages import TEAMD, Message
from teamd.sandbox.build import remove_cgroups
from teamd.sandbox.probe import Probe
from teamd.settings import Settings
from teamd.team.roster import Roster
from teamd.team.states import ChildExit


class Unfit(Exception):
    """Work that goes back to its teammate.

    Args:
        state: the new state of the entry.
        why: for people.
        mail: for the teammate.
    """

    def __init__(self, state: MergeState, why: str, mail: Message) -> None:
        super().__init__(why)
        self.state, self.why, self.mail = state, why, mail


@dataclass(kw_only=True)
class MergeMaker:
    """Makes merge commits, without moving a ref to them.

    Attributes:
        source: the person's repository.
        settings: those in force.
    """

    paths: TeamPaths
    source: Source
    settings: Settings

    @cached_property
    def head(self) -> Head:
        """The format and place of the person's repository's objects."""
        return read_head(self.source)

    @property
    def command(self) -> str:
        """The check of merges.

        Raises:
            TeamError: the settings no longer name one.
        """
        found = self.settings.merge.check or self.settings.tasks.check
        if not found:
            raise TeamError("there is no longer a check; set [merge] check in team.toml")
        return found

    def make(self, entry: Entry) -> merge.MergeOutcome:
        """Merge an entry onto its tip.

        Raises:
            Unfit: it cannot be merged.
            TeamError: it cannot be merged now.
        """
        into = self.settings.merge.into
        if entry.kills >= MOST_KILLS:
            why = f"git or its check was killed, or could not be started, {MOST_KILLS} times"
            raise self._refused(entry, why)
        try:
            made = merge.merge_onto(self.paths, self.source, self.head, self._wanted(entry))
        except merge.Unmergeable as error:
            raise self._refused(entry, str(error)) from error
        if made.conflicts:
            why = f"conflicts in {name_files(made.conflicts)}"
            mail = queue.conflict(entry, into, made.conflicts)
            raise Unfit(MergeState.CONFLICT, why, mail)
        if not made.commit:
            raise self._refused(entry, queue.describe_left_out(entry, made.left_out))
        try:
            gate = CommitGate(self.paths, self.settings, self.source)
            copy = record.find(self.paths, entry.teammate)
            gate.check(entry.teammate, made.commit, entry.onto, copy.base if copy else "")
        except Forbidden as error:
            raise self._refused(entry, str(error)) from error
        return made

    def _refused(self, entry: Entry, why: str) -> Unfit:
        mail = queue.refused(entry, self.settings.merge.into, why)
        return Unfit(MergeState.FAILED, why, mail)

    def _wanted(self, entry: Entry) -> merge.MergeRequest:
        task = f"Task: {entry.task}\n" if entry.task else ""
        check = " ".join(self.command.split())
        trailers = f"Teammate: {entry.teammate}\n{task}Check: {check}\n"
        return merge.MergeRequest(
            tip=entry.onto,
            commit=entry.commit,
            message=f"Merge team/{entry.teammate}: {entry.title}\n\n{trailers}",
            name="teamd",
            email=f"teamd@{Roster(self.paths).team_name()}",
            protect=self.settings.tasks.protect,
        )


# Arguments: the name in the copy, the tip. The copy borrows the objects. A git that was killed has
# left its lock; a living one holds it for milliseconds.
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
        into: the target branch.
        protect: patterns of the paths that checks take from the base.
    """

    queue: Queue
    source: Source
    into: str
    protect: tuple[str, ...]

    @property
    def _paths(self) -> TeamPaths:
        return self.queue.board.paths

    def land(self, entry: Entry) -> bool:
        """Move the branch to a merge that passed the check, unless the entry was removed.

        Raises:
            NotLanded: the person's work is in the way.
            TeamError: the branch has moved meanwhile, or cannot be moved.
        """
        move = partial(move_branch.fast_forward, self.source, self.into, entry.onto, entry.merge)
        return self.queue.land(entry.id, move)

    def note_merged(self, entry: Entry, not_pushed: str) -> None:
        """End an entry whose merge is in the branch.

        If all files were merged, the base of the copy moves first. A kill in between leaves an open
        entry, which is ended once more.

        Args:
            entry: the entry.
            not_pushed: the sentence that the branch could not be pushed, for the person as well.
        """
        if not entry.left_out:
            with locks.locked(record.lock_file(self._paths, entry.teammate)):
                copy = record.find(self._paths, entry.teammate)
                if copy is not None and self._may_be_base(entry, copy.base):
                    self.source.pin(copy.address, entry.commit)
                    record.with_base(self._paths, copy, entry.commit)
        self.finish(entry, MergeState.MERGED, "; ".join(filter(None, (entry.left_out, not_pushed))))
        if not_pushed:
            self._tell_person(f"{self.into} has {entry.teammate}'s work, but was {not_pushed}")

    def _may_be_base(self, entry: Entry, base: str) -> bool:
        """Return whether checks may take the protected files from a commit that was merged.

        They must be as in the base or as in the merge, not as the commit's author changed them.
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

    def _tell_person(self, text: str) -> None:
        post = self.queue.board.post
        with suppress(TeamError):  # such as a full inbox: the queue shows the sentence
            post.notify(Message(sender=TEAMD, to=post.person(), content=text))

    def give_back(self, entry: Entry, state: MergeState, why: str, mail: Message) -> None:
        """Return work to its teammate; its copy gets the tip before the mail is sent."""
        self._show_tip(entry)
        self.finish(entry, state, why, mail)

    def finish(
        self, entry: Entry, state: MergeState, why: str, mail: Message | None = None
    ) -> None:
        """End an entry; if there is mail about it, its task is reopened."""
        note = f"not merged into {self.into}: {why} (queue {entry.id})" if mail else ""
        short = why[:_LONGEST_WHY]
        task_note = note[:_LONGEST_WHY] if entry.task else ""
        self.queue.finish(entry.id, state, short, mail=mail, note=task_note)
        enqueue.forget(self._paths, self.source, entry.id)

    def _show_tip(self, entry: Entry) -> None:
        with locks.locked(record.lock_file(self._paths, entry.teammate)):
            copy = record.find(self._paths, entry.teammate)
            if copy is None:
                return
            self.source.pin_shown(copy.address, entry.onto)
            try:
                with open_sandboxed_git(
                    self._paths, copy.folder, copy.origin, writable=True
                ) as git:
                    git.do(_SHOW, queue.tracking(self.into), entry.onto)
            except StoreError:
                raise
            except GitKilled:
                if entry.kills < MOST_KILLS:
                    raise
            except TeamError:  # the teammate broke its copy; the mail is sent all the same
                return


PLACE: Final = "queue"  # the name of its lock, clone and home; not a task id
_MOST_LISTED: Final = 10


@dataclass(frozen=True, kw_only=True)
class Merger:
    """Empties the queue, in a process forked for that.

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
        return cls(
            queue=Queue(own_board(paths, settings)), settings=settings, probe=probe, mask=mask
        )

    def run(self) -> int:
        """Empty the queue, as the main function of a process; return the exit code."""
        try:
            lock = InstanceLock(self._paths.check_lock(PLACE))  # never two at a time
            lock.check()
            with closing(asyncio.new_event_loop()) as loop:
                asyncio.set_event_loop(loop)
                self._clean()
                loop.run_until_complete(self._work())
                self._clean()
            swept = enqueue.sweep(self.queue, self._source)
        except CheckKilled:
            return ChildExit.CRASHED
        except StoreError:
            return ChildExit.IO
        except TeamError:  # such as a missing git, which the queue shows
            return ChildExit.CRASHED
        return ChildExit.STOPPED if swept else ChildExit.CRASHED  # to be started again

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
        """Remove the leftovers of this run, or of one that was killed."""
        name = self._paths.checker_name(PLACE)
        remove_cgroups(self._paths, [name])
        empty(self._paths.homes / name)
        empty(self._paths.check_place(PLACE))
        remove_scratch(self._paths)
        merge.remove_left(self._paths)
        with suppress(TeamError):  # such as a missing repository, which the entry reports
            move_branch.clear_ref_locks(self._source, move_branch.ref_of(self._into))

    async def _work(self) -> None:
        """Merge the entries one after the other, until none is left that can be merged."""
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
                if not isinstance(error, move_branch.InTheWay):
                    return  # the others would fail in the same way
                held.add(entry.id)

    def _next(self, held: Container[str]) -> Entry | None:
        """Return the first entry that can be merged; drop entries whose task was reopened.

        Args:
            held: the ids of entries that cannot be merged now.
        """
        for entry in self.queue.read().open:
            if entry.id in held:
                continue
            task = self._task(entry)
            if task is None or task.status is TaskStatus.COMPLETED:
                return entry
            if task.claim != entry.key:  # otherwise the task is about to be completed
                enqueue.remove(self.queue, entry.id, self._source)
        return None

    def _task(self, entry: Entry) -> Task | None:
        """Return the task for whose completion an entry waits."""
        return self.queue.board.read_one(entry.task) if entry.key else None

    async def _step(self, entry: Entry) -> None:
        """Process an entry to its end, unless the branch has moved meanwhile."""
        source = self._source
        tip = move_branch.find_tip(source, self._into)
        passed = entry.passed and bool(source.find(entry.merge))  # `git gc` may have removed it
        if passed and source.holds(entry.merge, within=tip):  # killed after the move
            await self._end_merged(entry)
        elif source.holds(entry.commit, within=tip):
            self._endings.finish(entry, MergeState.MERGED, "it was there already")
        else:
            if passed and entry.landing:  # killed during the move
                move_branch.repair_half_moved(source, self._into, entry.onto, entry.merge)
                self.queue.note(entry.id, landing=False)
            move_branch.check_ready(source, self._into)
            if not (passed and entry.onto == tip):
                begun = self._begin(entry, tip)
                entry = entry if begun is None else await self._merge(begun)
            if entry.passed and entry.onto == tip and self._endings.land(entry):
                await self._end_merged(entry)

    async def _end_merged(self, entry: Entry) -> None:
        """Push the branch if the settings say so, then end the entry; after a kill, repeat both."""
        remote, failed = self.settings.merge.push, ""
        vouched = self.queue.read().vouched in (entry.onto, entry.merge)
        if vouched:
            self.queue.vouch(entry.merge)
        if remote:
            self.queue.note(entry.id, why=f"merged; being pushed to {remote}")
            try:
                await self._push(entry, remote, vouched=vouched)
                self.queue.vouch(entry.merge)
            except StoreError:
                raise
            except TeamError as error:
                again = f"`teamctl push {self._into}` pushes it from your terminal"
                failed = f"not pushed to {remote}: {error}; {again}"
        self._endings.note_merged(entry, failed)

    async def _push(self, entry: Entry, remote: str, *, vouched: bool) -> None:
        """Push a merge; if its tip is not vouched for, the remote must have that tip.

        An agent in the shared folder can move the branch to a commit of its own.

        Raises:
            TeamError: it was not pushed.
        """
        after = "" if vouched else entry.onto
        source, into = self._source, self._into
        ready = push.prepare_commit(self._paths, source, entry.merge, remote, into, after=after)
        try:
            await push.run_beside(self._paths, source, ready)
        except push.NotShown as error:
            if vouched:
                raise
            raise TeamError("it has commits that teamd did not merge") from error

    def _begin(self, entry: Entry, tip: str) -> Entry | None:
        reset = {"merge": "", "passed": False, "landing": False, "why": "", "left_out": ""}
        return self.queue.note(entry.id, state=MergeState.CHECKING, onto=tip, **reset)

    async def _merge(self, entry: Entry) -> Entry:
        """Merge an entry onto the tip and check it; return its new state."""
        try:
            made = self._maker.make(entry)
            await self._prove(entry, made.commit)
        except Unfit as unfit:
            self._endings.give_back(entry, unfit.state, unfit.why, unfit.mail)
            return entry
        left_out = queue.describe_left_out(entry, made.left_out)
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
            mail = queue.failed(entry, self._into, ended, output.text(), others=others)
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
        """Return the subjects of merges since the work of an entry began, newest first."""
        between = f"{entry.commit}..{entry.onto}"
        most = f"--max-count={_MOST_LISTED}"
        said = self._source.ask("log", "--first-parent", "--merges", "--format=%s", most, between)
        return said.splitlines()
