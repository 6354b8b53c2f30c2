"""Changes to the roster: collected while the supervisor works, written once a round.

Only this module writes the roster while a supervisor runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from teamd.clocks import Deadline
from teamd.errors import DamagedRoster, StoreError, TeamError
from teamd.files import files
from teamd.journal import Journal, LoggedEvent
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, TEAMD, Message, new_id, respawn_command
from teamd.overview.notices import describe_member
from teamd.process_id import Identity
from teamd.settings.schema import Settings
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.states import Status

_NO_PROCESS: Final[dict[str, None]] = {"pid": None, "started": None, "since": None}
_MOST_UNTOLD: Final = 100
_TELL_AGAIN_SECONDS: Final = 5.0


class RosterWriter:
    """The roster as the supervisor knows it.

    Attributes:
        team: the members, with all changes that are not written yet.
    """

    def __init__(self, post: MailRouter, journal: Journal, *, team_name: str) -> None:
        self._log_of = post.paths.log
        self._roster = Roster(post.paths)
        self._post = post
        self._journal = journal
        self._untold: list[Message] = []
        self._tell_again = Deadline.after(0.0)
        self._changes: list[Callable[[Team], Team]] = []
        self._seen: object = None
        self._foreign = True  # whether the file was written by others
        self.team = self._file = self._roster.update(lambda team: replace(team, name=team_name))

    @property
    def retry_seconds(self) -> float | None:
        """The seconds until unsent mail is sent again; `None` if there is none."""
        return max(0.0, self._tell_again.left) if self._untold else None

    @property
    def behind(self) -> bool:
        """Whether changes wait to be written."""
        return bool(self._changes)

    def change(self, name: str, **values: Any) -> None:
        """Change a member; `publish` writes it.

        A new reason has no end unless `until` is given. A shutdown ends a pause.
        """
        if "reason" in values:
            values = {"until": None, "remedy": None, **values}
        values["status_since"] = time.time()
        if values.get("status") is Status.SHUTDOWN:
            values = {"paused_by": None, **values}
            self._hand_over_mail(name)
        self._apply(lambda team: _changed(team, name, values))

    def admit(self, name: str, role: str, **values: Any) -> None:
        """Add a member, or give it another role; its status becomes `working`."""
        values |= {"role": role, "status": Status.WORKING}
        values |= dict.fromkeys(("reason", "remedy", "until", "paused_by"))
        values |= {"status_since": time.time(), "restarts": 0}
        self._hand_over_mail(name)
        self._apply(lambda team: _changed(_enrolled(team, name, role), name, values))

    def _hand_over_mail(self, name: str) -> None:
        """Sync the lead's inbox before its reader changes between an agent and the person.

        After a power cut a reader recognizes mail that it has read; a new reader would not.
        """
        if name.lower() != LEAD:
            return
        paths = self._post.paths
        with suppress(StoreError):  # a failed disk must not block the change
            for path in (paths.inbox(LEAD), paths.taken(LEAD)):
                files.make_durable(path)

    def remove(self, name: str) -> None:
        """Remove a member; `publish` writes it."""
        self._apply(lambda team: team.without(name))

    def restore(self, name: str, before: Member | None) -> None:
        """Undo an admission; `before` is the member as it was, or `None`."""
        self._apply(lambda team: team.without(name) if before is None else team.with_member(before))

    def publish(self) -> None:
        """Write the changes, and send mail that could not be sent before.

        Raises:
            StoreError: the roster cannot be written; the changes are kept for the next try.
        """
        if self._untold and self._tell_again.left <= 0:
            self._tell()
        if not self._changes:
            return
        try:
            removed = self._roster.version() is None
            self.team = self._file = self._roster.update(
                lambda team: self.team if removed else self._with_changes(team)
            )
        except DamagedRoster as error:  # edited by hand
            kept = self._roster.replace_damaged(self.team)
            self._journal.warn("roster rebuilt", reason=str(error), kept=str(kept))
            self.tell_lead(
                f"{error.path} was damaged ({error.why}): it was rewritten, and its former "
                f"content is kept in {kept}"
            )
        self._changes = []

    def publish_or_restore(self, name: str, before: Member) -> None:
        """Write the changes of a member at once, or undo them.

        Raises:
            TeamError: the roster cannot be written.
        """
        try:
            self.publish()
        except TeamError:
            self.restore(name, before)
            raise

    def refresh(self) -> bool:
        """Read changes of others; return whether there were any.

        The next `publish` reports a damaged roster.
        """
        version = self._roster.version()
        if version is None or version == self._seen:
            return False
        with suppress(StoreError):
            team = self._roster.read()
            self.team, self._file = self._with_changes(team), team
            self._seen = version
        foreign, self._foreign = self._foreign, False
        return foreign

    def check(self) -> None:
        """Check that the roster can be changed.

        Raises:
            StoreError: it was made by a newer version, or cannot be read.
        """
        with suppress(DamagedRoster):  # the next `publish` repairs it
            self._roster.read()

    def awaited(self, name: str) -> None:
        """Record that a teammate waits for a process, and no longer has its former one."""
        self.change(name, pid=None, started=None, since=time.time(), reason=None)

    def begun(self, name: str, process: Identity, sandbox: str) -> None:
        """Record a teammate's new process and sandbox."""
        self.change(name, since=time.time())
        self.hibernates(name, process, sandbox)

    def hibernates(self, name: str, process: Identity, sandbox: str) -> None:
        """Record that a teammate goes on in another process, without a visible restart."""
        values = {"pid": process.pid, "started": process.started, "sandbox": sandbox}
        self.change(name, **values, reason=None)

    def describe(self, sandbox: str, settings: Settings) -> None:
        """Record which sandbox the team's commands run in, and where its work is merged."""
        merges = settings.team.workspace, settings.merge.into
        self._apply(lambda team: replace(team, sandbox=sandbox, merges=merges))

    def ended(self, name: str) -> None:
        """Record that a teammate's process has ended as requested."""
        self.change(name, **_NO_PROCESS)

    def crashed(self, name: str, reason: str) -> None:
        """Record that a teammate has crashed, and restarts in a moment."""
        self._journal.warn(LoggedEvent.CRASHED, name=name, reason=reason)
        member = self.team.find(name)
        restarts = member.restarts + 1 if member is not None else 0
        self.change(name, **_NO_PROCESS, reason=f"{reason}; starting again", restarts=restarts)

    def hindered(self, name: str, reason: str) -> None:
        """Report that a teammate keeps failing because of its files, and keeps being restarted."""
        self.tell_lead(
            f"{name} cannot go on: {reason}, several times in a row; it is started again every few "
            f"seconds. Its log is {self._log_of(name)}, and `teamctl doctor` names damaged files",
            to=self._leader(name),
        )

    def failed(self, name: str, reason: str) -> None:
        """Record and report that a teammate has crashed too often and is not restarted."""
        self._journal.warn(LoggedEvent.FAILED, name=name, reason=reason)
        self.change(name, **_NO_PROCESS, status=Status.FAILED, reason=reason)
        if (member := self.team.find(name)) is not None:
            (line,) = describe_member(self._post.paths, member).lines
            self.tell_lead(f"{line}; its log is {self._log_of(name)}", to=self._leader(name))

    def stuck(self, name: str, reason: str, *, restart: bool) -> None:
        """Record and report that a teammate misses heartbeats; it is killed if `restart` is set."""
        self._journal.warn(LoggedEvent.STUCK, name=name, reason=reason)
        self.change(name, reason=reason)
        remedy = "it is killed and started again"
        if not restart:
            remedy = f"`teamctl shutdown {name} --force` ends it, {respawn_command(name)} then"
            remedy += " resumes it"
        text = f"{name} is stuck: {reason}; its log is {self._log_of(name)}, and {remedy}"
        self.tell_lead(text, to=self._leader(name))

    def relieved(self, name: str) -> None:
        """Record that a stuck teammate sends heartbeats again."""
        self._journal.note("not stuck any more", name=name)
        self.change(name, reason=None)

    def tell_lead(self, text: str, *, to: str = LEAD, key: str = "") -> None:
        """Send a line to the lead, or to another reader, now or as soon as it can be written.

        With the id of a request as `key`, repeated lines are read once.
        """
        message_id = f"{key}-answer" if key else new_id()
        text = self._post.paths.add_team_option(text)
        self._untold.append(Message(id=message_id, sender=TEAMD, to=to, content=text))
        for dropped in self._untold[:-_MOST_UNTOLD]:
            self._journal.warn("lead not told", text=dropped.content)
        del self._untold[:-_MOST_UNTOLD]
        if self._tell_again.left <= 0:
            self._tell()

    def _tell(self) -> None:
        """Send unsent mail; an unreachable receiver does not delay the others."""
        waiting, self._untold = self._untold, []
        unreachable: set[str] = set()
        for message in waiting:
            try:
                if message.to not in unreachable:
                    self._post.notify(message)
                    continue
            except StoreError as error:  # such as a full disk: a later `publish` tries again
                self._journal.error("lead not told yet", error, text=message.content)
                self._tell_again = Deadline.after(_TELL_AGAIN_SECONDS)
                unreachable.add(message.to)
            except TeamError as error:  # such as a removed team
                self._journal.error("lead not told", error, text=message.content)
                continue
            self._untold.append(message)

    def _leader(self, name: str) -> str:
        with suppress(StoreError):  # a folder of teams that cannot be read, say
            return self._post.above(name)
        return LEAD

    def _apply(self, change: Callable[[Team], Team]) -> None:
        self._changes.append(change)
        self.team = change(self.team)

    def _with_changes(self, team: Team) -> Team:
        if team is self._file:  # others have not changed it
            return self.team
        self._foreign = True
        for change in self._changes:
            team = change(team)
        return team


def _changed(team: Team, name: str, values: dict[str, Any]) -> Team:
    """Return the team with a changed member; `status_since` changes only with the status."""
    member = team.find(name)
    if member is None:
        return team
    changed = replace(member, **values)
    if changed.status is member.status and member.status_since is not None:
        changed = replace(changed, status_since=member.status_since)
    return team.with_member(changed)


def _enrolled(team: Team, name: str, role: str) -> Team:
    """Return the team with a member of that name."""
    there = team.find(name) is not None
    return team if there else team.with_new(name, role=role, status=Status.WORKING)
