"""Makes the merge commits of queued work: that of the next entry while the check of one runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property

from teamd.copies import onto
from teamd.copies.forbidden import CommitGate, Forbidden
from teamd.copies.head import Head, read_head
from teamd.copies.source import Source
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.merges import news
from teamd.merges.entry import MOST_KILLS, Entry, MergeState
from teamd.messages import Message
from teamd.settings import Settings


class Unfit(Exception):
    """Work that goes back to its teammate.

    Args:
        state: of the entry.
        why: for people.
        mail: for the teammate.
    """

    def __init__(self, state: MergeState, why: str, mail: Message) -> None:
        super().__init__(why)
        self.state, self.why, self.mail = state, why, mail


@dataclass(kw_only=True)
class MergeMaker:
    """Makes merge commits, to which no ref leads yet.

    Attributes:
        source: the person's repository.
        settings: those in force.
    """

    paths: TeamPaths
    source: Source
    settings: Settings
    _ahead: dict[onto.Wanted, onto.Onto] = field(default_factory=dict)

    @cached_property
    def head(self) -> Head:
        """How the person's repository keeps its objects."""
        return read_head(self.source)

    @property
    def command(self) -> str:
        """The check that follows.

        Raises:
            TeamError: there is none any more.
        """
        found = self.settings.merge.check or self.settings.tasks.check
        if not found:
            raise TeamError("there is no check any more; set [merge] check in team.toml")
        return found

    def make(self, entry: Entry) -> onto.Onto:
        """Merge an entry onto its tip, unless that was done ahead.

        Raises:
            Unfit: there can be no merge of it.
            TeamError: it cannot be done now.
        """
        made = self._ahead.pop(self._wanted(entry), None)
        self._ahead.clear()
        there = made is not None and self.source.find(made.commit)  # `git gc` knows nothing of it
        return made if made is not None and there else self._make(entry)

    @asynccontextmanager
    async def making(self, entry: Entry | None) -> AsyncIterator[None]:
        """Make the merge of an entry meanwhile; that it cannot be made is told when it is its turn.

        It is wanted where the entry before it passes its check.
        """
        if entry is None:
            yield
            return
        loop = asyncio.get_running_loop()
        made = loop.run_in_executor(None, self._make, entry)
        try:
            yield
        finally:
            with suppress(Unfit, TeamError):
                self._ahead[self._wanted(entry)] = await made

    def _make(self, entry: Entry) -> onto.Onto:
        into = self.settings.merge.into
        if entry.kills >= MOST_KILLS:
            why = f"git or its check was killed, or could not be started, {MOST_KILLS} times"
            raise self._refused(entry, why)
        try:
            made = onto.merge_onto(self.paths, self.source, self.head, self._wanted(entry))
        except onto.Unmergeable as error:
            raise self._refused(entry, str(error)) from error
        if made.conflicts:
            why = f"conflicts in {news.in_short(made.conflicts)}"
            mail = news.conflict(entry, into, made.conflicts)
            raise Unfit(MergeState.CONFLICT, why, mail)
        if not made.commit:
            raise self._refused(entry, news.describe_left_out(entry, made.left_out))
        try:
            gate = CommitGate(self.paths, self.settings, self.source)
            gate.check(entry.teammate, made.commit, entry.onto)
        except Forbidden as error:
            raise self._refused(entry, str(error)) from error
        return made

    def _refused(self, entry: Entry, why: str) -> Unfit:
        mail = news.refused(entry, self.settings.merge.into, why)
        return Unfit(MergeState.FAILED, why, mail)

    def _wanted(self, entry: Entry) -> onto.Wanted:
        task = f"Task: {entry.task}\n" if entry.task else ""
        check = " ".join(self.command.split())
        trailers = f"Teammate: {entry.teammate}\n{task}Check: {check}\n"
        return onto.Wanted(
            tip=entry.onto,
            commit=entry.commit,
            message=f"Merge team/{entry.teammate}: {entry.title}\n\n{trailers}",
            name="teamd",
            email=f"teamd@{self.paths.own_name or self.settings.team.name}",
            protect=self.settings.tasks.protect,
        )
