"""Changes to the roster: gathered while the supervisor works, written once a round.

The supervisor is the only writer of the roster, and this its only pen.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from teamd.clocks import Deadline
from teamd.errors import DamagedRoster, StoreError, TeamError
from teamd.protocol import LEAD, TEAMD, Message, new_id
from teamd.remedies import again
from teamd.states import Status
from teamd.store.roster import COLOURS, Member, Team

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from teamd.identity import Identity
    from teamd.journal import Journal
    from teamd.store.post import Post
    from teamd.store.roster import Roster

_MOST_UNTOLD: Final = 100
_TELL_AGAIN_SECONDS: Final = 5.0


class Register:
    """The roster as the supervisor knows and keeps it.

    Attributes:
        team: what it says, with all that is still to be written.
    """

    def __init__(
        self,
        *,
        roster: Roster,
        post: Post,
        journal: Journal,
        team_name: str,
        log_of: Callable[[str], Path],
    ) -> None:
        self._log_of = log_of
        self._roster = roster
        self._post = post
        self._journal = journal
        self._untold: list[Message] = []
        self._tell_again = Deadline.after(0.0)
        self._changes: list[Callable[[Team], Team]] = []
        self._seen: object = None
        roster.make_durable()  # the writer before may have been killed before it had
        self.team = roster.update(lambda team: replace(team, name=team_name))

    def change(self, name: str, **values: Any) -> None:
        """Change a member from the next `publish` on."""
        self._apply(lambda team: _changed(team, name, values))

    def admit(
        self,
        name: str,
        role: str,
        model: str | None,
        *,
        plan: bool | None = None,
        spawned_by: str | None = None,
    ) -> None:
        """Add a member or give it a new role and model; it is at work from now on.

        Args:
            name: the member's.
            role: its role.
            model: its own, if any.
            plan: whether it works by plan; `None` for as before.
            spawned_by: the address of an agent of another team that wants it.
        """
        self._apply(
            lambda team: _admitted(team, name, role, model, plan=plan, spawned_by=spawned_by)
        )

    def restore(self, name: str, before: Member | None) -> None:
        """Take an admission back.

        Args:
            name: the member's.
            before: what it was; `None` where it was none.
        """
        self._apply(lambda team: team.without(name) if before is None else team.with_member(before))

    def publish(self) -> None:
        """Write what has changed, if anything has, and send what the lead has still to be told.

        Raises:
            StoreError: it cannot be written now; the changes are kept for the next try.
        """
        if self._tell_again.left <= 0:
            self._tell()
        if not self._changes:
            return
        try:
            removed = self._roster.version() is None  # what it said is known here
            self.team = self._roster.update(
                lambda team: self.team if removed else self._with_changes(team)
            )
        except DamagedRoster as error:  # somebody edited it; what it said is known here
            kept = self._roster.replace_damaged(self.team)
            self._journal.warn("roster rebuilt", reason=str(error), kept=str(kept))
            self.tell_lead(
                f"{error.path} was damaged ({error.why}): it was written anew, and what stood "
                f"there is kept in {kept}"
            )
        self._changes = []

    def look_again(self) -> None:
        """Take note of what others have changed in it; of a damaged one the next writer tells."""
        version = self._roster.version()
        if version is None or version == self._seen:
            return
        with suppress(StoreError):
            self.team = self._with_changes(self._roster.read())
            self._seen = version

    def check(self) -> None:
        """See that the roster can be changed, before anything depends on it.

        Raises:
            StoreError: it was made by a newer version, or cannot be read.
        """
        try:
            self._roster.read()
        except DamagedRoster:
            return  # mended by the next `publish`

    def awaited(self, name: str) -> None:
        """A teammate is about to have a process; whatever it had before is gone."""
        self.change(name, pid=None, started=None, since=time.time(), reason=None)

    def begun(self, name: str, process: Identity) -> None:
        """A teammate has a process now."""
        since = time.time()
        self.change(name, pid=process.pid, started=process.started, since=since, reason=None)

    def ended(self, name: str) -> None:
        """A teammate has no process any more, as was wanted."""
        self.change(name, pid=None, started=None, since=None)

    def crashed(self, name: str, reason: str) -> None:
        """A teammate has no process for a moment, and is started again."""
        self._journal.warn("crashed", name=name, reason=reason)
        self.change(name, pid=None, started=None, since=None, reason=f"{reason}; starting again")

    def hindered(self, name: str, reason: str) -> None:
        """A teammate cannot go on for trouble with its files, and is tried again and again."""
        self.tell_lead(
            f"{name} cannot go on: {reason}, several times in a row; it is started again every few "
            f"seconds. Its log is {self._log_of(name)}, and `teamctl doctor` names damaged files",
            to=self._above(name),
        )

    def failed(self, name: str, reason: str) -> None:
        """A teammate has crashed too often, or for good, and is given up."""
        self._journal.warn("failed", name=name, reason=reason)
        self.change(name, status=Status.FAILED, pid=None, started=None, since=None, reason=reason)
        self.tell_lead(
            f"{name} has failed: {reason}; its log is {self._log_of(name)}, and {again(name)} "
            "lets it go on",
            to=self._above(name),
        )

    def stuck(self, name: str, reason: str, *, restart: bool) -> None:
        """A teammate's process shows no sign of life, and is ended now or left to a person."""
        self._journal.warn("stuck", name=name, reason=reason)
        self.change(name, reason=reason)
        remedy = "it is killed and started again"
        if not restart:
            remedy = f"`teamctl shutdown {name} --force` ends it, {again(name)} then"
            remedy += " lets it go on"
        text = f"{name} is stuck: {reason}; its log is {self._log_of(name)}, and {remedy}"
        self.tell_lead(text, to=self._above(name))

    def relieved(self, name: str) -> None:
        """It does so again."""
        self._journal.note("not stuck any more", name=name)
        self.change(name, reason=None)

    def tell_lead(self, text: str, *, to: str = LEAD, key: str = "") -> None:
        """Send the lead a line, now or as soon as it can be written.

        Args:
            text: the line.
            to: who leads.
            key: of the request that it answers: the line is read once, however often it is sent.
        """
        message_id = f"{key}-answer" if key else new_id()
        text = self._post.paths.addressed(text)
        self._untold.append(Message(id=message_id, sender=TEAMD, to=to, content=text))
        for dropped in self._untold[:-_MOST_UNTOLD]:
            self._journal.warn("lead not told", text=dropped.content)
        del self._untold[:-_MOST_UNTOLD]
        if self._tell_again.left <= 0:
            self._tell()

    def _tell(self) -> None:
        """Send what is owed; who cannot be reached now holds up nobody else."""
        waiting, self._untold = self._untold, []
        unreachable: set[str] = set()
        for message in waiting:
            try:
                if message.to not in unreachable:
                    self._post.notify(message)
                    continue
            except StoreError as error:  # a locked inbox, a full disk: a later `publish` tries
                self._journal.error("lead not told yet", error, text=message.content)
                self._tell_again = Deadline.after(_TELL_AGAIN_SECONDS)
                unreachable.add(message.to)
            except TeamError as error:  # its team is gone, say
                self._journal.error("lead not told", error, text=message.content)
                continue
            self._untold.append(message)

    def _above(self, name: str) -> str:
        try:
            return self._post.above(name)
        except StoreError:  # a folder of teams that cannot be read, say
            return LEAD

    def _apply(self, change: Callable[[Team], Team]) -> None:
        self._changes.append(change)
        self.team = change(self.team)

    def _with_changes(self, team: Team) -> Team:
        for change in self._changes:
            team = change(team)
        return team


def _changed(team: Team, name: str, values: dict[str, Any]) -> Team:
    member = team.find(name)
    return team if member is None else team.with_member(replace(member, **values))


def _admitted(
    team: Team,
    name: str,
    role: str,
    model: str | None,
    *,
    plan: bool | None,
    spawned_by: str | None,
) -> Team:
    member = team.find(name) or Member(
        name=name,
        agent_id=f"{name}@{team.name}",
        role=role,
        status=Status.WORKING,
        color=COLOURS[len(team.members) % len(COLOURS)],
    )
    admitted = replace(
        member,
        role=role,
        model=model,
        status=Status.WORKING,
        reason=None,
        spawned_by=spawned_by,
    )
    return team.with_member(admitted if plan is None else replace(admitted, plan=plan))
