"""Changes to the roster: gathered while the supervisor works, written once a round.

This is the only module that writes the roster while a supervisor runs.
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
from teamd.process_id import Identity
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.states import Status

_NO_PROCESS: Final[dict[str, None]] = {"pid": None, "started": None, "since": None}
_MOST_UNTOLD: Final = 100
_TELL_AGAIN_SECONDS: Final = 5.0
_WRITE_AGAIN_SECONDS: Final = 1.0
# From a change to its write, which waits for the disk: what comes meanwhile is written with it, and
# a teammate that reports and then asks for a slot has that before.
_REST_SECONDS: Final = 0.005


class RosterWriter:
    """The roster as the supervisor knows it.

    Attributes:
        team: the members, with all changes that are still to be written. They are those to what
            stands in the file, as far as is known.
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
        self._foreign = True  # what stands there was not written here
        self._rest = Deadline.after(0.0)
        self._new = True  # the changes: no time is set yet for their write
        self.team = self._file = self._roster.update(lambda team: replace(team, name=team_name))

    @property
    def retry_seconds(self) -> float | None:
        """The seconds until what waits is written, or sent to the lead; `None` for nothing."""
        waits = [self._tell_again.left] * bool(self._untold) + [self._rest.left] * self.behind
        return max(0.0, min(waits)) if waits else None

    @property
    def behind(self) -> bool:
        """Whether there are changes that wait for a write."""
        return bool(self._changes)

    def publish_soon(self) -> None:
        """Do as `publish` in a moment, with what comes until then; call it again after that.

        Raises:
            StoreError: it cannot be written now; the changes are kept for the next try.
        """
        if self._changes and self._new:
            self._new, self._rest = False, Deadline.after(max(_REST_SECONDS, self._rest.left))
        elif self._rest.left <= 0:
            self.publish()

    def change(self, name: str, **values: Any) -> None:
        """Change a member from the next `publish` on; another reason lasts as long as it says.

        Who is shut down is paused no more.
        """
        if "reason" in values:
            values = {"until": None, "remedy": None, **values}
        values["status_since"] = time.time()
        if values.get("status") is Status.SHUTDOWN:
            values = {"paused_by": None, **values}
            self._hand_over_mail(name)
        self._apply(lambda team: _changed(team, name, values))

    def admit(self, name: str, role: str, **values: Any) -> None:
        """Add a member, or change what it is; it is at work from now on."""
        values |= {"role": role, "status": Status.WORKING}
        values |= dict.fromkeys(("reason", "remedy", "until", "paused_by"))
        values |= {"status_since": time.time(), "restarts": 0}
        self._hand_over_mail(name)
        self._apply(lambda team: _changed(_enrolled(team, name, role), name, values))

    def _hand_over_mail(self, name: str) -> None:
        """Bring it to the disk what mail is done with where another one reads that inbox now.

        That of the lead is an agent's, or the person's. Whoever had the mail would know what a
        power cut gives back; the other one does not.
        """
        if name.lower() != LEAD:
            return
        paths = self._post.paths
        with suppress(StoreError):  # nobody waits for a disk that has failed
            for path in (paths.inbox(LEAD), paths.taken(LEAD)):
                files.make_durable(path)

    def remove(self, name: str) -> None:
        """Take a member out of the roster from the next `publish` on."""
        self._apply(lambda team: team.without(name))

    def restore(self, name: str, before: Member | None) -> None:
        """Undo an admission; `before` is `None` for a name that was no member."""
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
        self._rest = Deadline.after(_WRITE_AGAIN_SECONDS)  # unless it succeeds
        try:
            removed = self._roster.version() is None  # what it said is known here
            self.team = self._file = self._roster.update(
                lambda team: self.team if removed else self._with_changes(team)
            )
        except DamagedRoster as error:  # somebody edited it; what it said is known here
            kept = self._roster.replace_damaged(self.team)
            self._journal.warn("roster rebuilt", reason=str(error), kept=str(kept))
            self.tell_lead(
                f"{error.path} was damaged ({error.why}): it was written anew, and what stood "
                f"there is kept in {kept}"
            )
        self._changes, self._new, self._rest = [], True, Deadline.after(0.0)

    def refresh(self) -> bool:
        """Read what others have changed, and return whether anything was.

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
        """Check that the roster can be changed, before anything depends on it.

        Raises:
            StoreError: it was made by a newer version, or cannot be read.
        """
        with suppress(DamagedRoster):  # the next `publish` repairs it
            self._roster.read()

    def awaited(self, name: str) -> None:
        """Record that a teammate is about to have a process; the one it had before is gone."""
        self.change(name, pid=None, started=None, since=time.time(), reason=None)

    def begun(self, name: str, process: Identity, sandbox: str) -> None:
        """Record that a teammate has a process now, and what stands around its commands."""
        self.change(name, since=time.time())
        self.hibernates(name, process, sandbox)

    def hibernates(self, name: str, process: Identity, sandbox: str) -> None:
        """Record that a teammate goes on in another process, as if nothing had happened."""
        values = {"pid": process.pid, "started": process.started, "sandbox": sandbox}
        self.change(name, **values, reason=None)

    def describe(self, sandbox: str) -> None:
        """Record what stands around the commands of the team."""
        self._apply(lambda team: replace(team, sandbox=sandbox))

    def ended(self, name: str) -> None:
        """Record that a teammate has no process any more, as was wanted."""
        self.change(name, **_NO_PROCESS)

    def crashed(self, name: str, reason: str) -> None:
        """Record that a teammate has no process for a moment, and starts again."""
        self._journal.warn(LoggedEvent.CRASHED, name=name, reason=reason)
        member = self.team.find(name)
        restarts = member.restarts + 1 if member is not None else 0
        self.change(name, **_NO_PROCESS, reason=f"{reason}; starting again", restarts=restarts)

    def hindered(self, name: str, reason: str) -> None:
        """Report that a teammate has trouble with its files, and is tried again and again."""
        self.tell_lead(
            f"{name} cannot go on: {reason}, several times in a row; it is started again every few "
            f"seconds. Its log is {self._log_of(name)}, and `teamctl doctor` names damaged files",
            to=self._leader(name),
        )

    def failed(self, name: str, reason: str) -> None:
        """Record and report that a teammate has crashed too often, or for good, and is given up."""
        self._journal.warn(LoggedEvent.FAILED, name=name, reason=reason)
        self.change(name, **_NO_PROCESS, status=Status.FAILED, reason=reason)
        self.tell_lead(
            f"{name} has failed: {reason}; its log is {self._log_of(name)}, and "
            f"{respawn_command(name)} lets it go on",
            to=self._leader(name),
        )

    def stuck(self, name: str, reason: str, *, restart: bool) -> None:
        """Record and report that a teammate misses heartbeats; it is killed or left to a person."""
        self._journal.warn(LoggedEvent.STUCK, name=name, reason=reason)
        self.change(name, reason=reason)
        remedy = "it is killed and started again"
        if not restart:
            remedy = f"`teamctl shutdown {name} --force` ends it, {respawn_command(name)} then"
            remedy += " lets it go on"
        text = f"{name} is stuck: {reason}; its log is {self._log_of(name)}, and {remedy}"
        self.tell_lead(text, to=self._leader(name))

    def relieved(self, name: str) -> None:
        """Record that a stuck teammate sends heartbeats again."""
        self._journal.note("not stuck any more", name=name)
        self.change(name, reason=None)

    def tell_lead(self, text: str, *, to: str = LEAD, key: str = "") -> None:
        """Send whoever leads a line, now or as soon as it can be written.

        With the id of a request as `key` the line is read once, however often it is sent.
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
        """Send what is owed; a receiver that cannot be reached now holds up no other."""
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

    def _leader(self, name: str) -> str:
        with suppress(StoreError):  # a folder of teams that cannot be read, say
            return self._post.above(name)
        return LEAD

    def _apply(self, change: Callable[[Team], Team]) -> None:
        self._changes.append(change)
        self.team = change(self.team)

    def _with_changes(self, team: Team) -> Team:
        if team is self._file:  # nobody else has changed it
            return self.team
        self._foreign = True
        for change in self._changes:
            team = change(team)
        return team


def _changed(team: Team, name: str, values: dict[str, Any]) -> Team:
    """Return the team with a changed member; its status is as old as its last change of status."""
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
