"""The environment of one teammate: its conversation, and its links to the rest of the team."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from teamd.agent.approvals import OwnShutdown, Plans
from teamd.agent.call_slots import CallSlots
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.permissions import Permissions
from teamd.agent.wakeup import Wakeup
from teamd.agent.work import Presence, Reporter
from teamd.approvals.store import Approvals
from teamd.budget.ledger import Ledger
from teamd.errors import StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.journal import Journal, LoggedEvent
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.masking import Mask
from teamd.messages import LEAD, TEAMD, Message
from teamd.process_id import Identity
from teamd.sandbox import WITHOUT
from teamd.sandbox.policy import Origin
from teamd.sandbox.probe import Probe
from teamd.settings import Settings
from teamd.team.activity import read_activity
from teamd.team.roster import Roster
from teamd.tools.push import Pushes
from teamd.tools.workspace import Workspace
from teamd.transcript.file import Transcript


@dataclass(slots=True)
class Pause:
    """The pause that a person or the lead has asked for, if any."""

    name: str
    roster: Roster
    _why: str | None = None

    def why(self) -> str | None:
        """Return why the teammate rests, as a sentence; `None` if it may work."""
        with suppress(StoreError):  # a damaged roster is soon repaired with the same contents
            member = self.roster.find(self.name)
            self._why = None if member is None else member.pause
        return self._why


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One teammate's name, files and settings, and the parts that its loop and its tools share.

    Attributes:
        check: raises if the team directory has been replaced; called before each write.
        slots: the slots for model calls, which the supervisor grants.
        granted_bytes: returns the size of the longest message that the senders' settings now allow.
        probe: tells whether this machine can make a sandbox.
        ledger: limits and costs of the team's model calls.
        roster: the members of the team.
        mask: keeps secrets out of the model's input and of written files.
        origin: the source of its working copy; `None` for a teammate in the shared folder.
        goes_on: whether its last process ended to hibernate: its temporary files are still needed.
        at_end: callbacks for the end of the loop, however it ends.
    """

    name: str
    paths: TeamPaths
    settings: Settings
    journal: Journal
    wakeup: Wakeup
    slots: CallSlots
    check: Callable[[], None]
    granted_bytes: Callable[[], int]
    probe: Probe
    ledger: Ledger
    roster: Roster
    mask: Mask = field(default_factory=Mask)
    origin: Origin | None = None
    goes_on: bool = False
    at_end: ExitStack = field(default_factory=ExitStack)

    @property
    def leads(self) -> bool:
        """True for the lead agent: decided by its name, never by a request."""
        return self.name == LEAD

    @property
    def role(self) -> str:
        """The teammate's role; empty if it is not in the team."""
        member = self.roster.find(self.name)
        return "" if member is None else member.role

    @property
    def project(self) -> Path:
        """The person's folder, where roles, skills and instructions are."""
        return self.settings.team.workspace if self.origin is None else self.origin.folder

    @property
    def durable(self) -> bool:
        """Whether writes of mail and of the conversation wait until they are on disk."""
        return self.settings.mail.durability == "disk"

    @cached_property
    def post(self) -> MailRouter:
        """The mail router of this team."""
        return self.post_in(self.paths)

    @cached_property
    def hosts(self) -> FarHosts | None:
        """The other hosts of the team; `None` if this host has no name in it."""
        if self.settings.hosts.name is None:
            return None
        return FarHosts.of(self.paths, self.settings.hosts, durable=self.durable)

    @cached_property
    def conversation(self) -> Conversation:
        """The teammate's own conversation; its subagents have theirs."""
        path = self.paths.transcript(self.name)
        return Conversation(Transcript(path, durable=self.durable, check=self.check))

    @cached_property
    def mailbox(self) -> Mailbox:
        """The teammate's inbox, which it alone reads."""
        return Mailbox(
            self.paths,
            self.name,
            durable=self.durable,
            max_bytes=self.settings.mail.max_message_bytes,
            granted=self.granted_bytes,
            tell=lambda why: self.journal.warn(LoggedEvent.MAIL_REJECTED, reason=why),
            check=self.check,
        )

    @cached_property
    def approvals(self) -> Approvals:
        """The plans, permissions and shutdowns that are requested in this team."""
        return Approvals(self.paths, self.post)

    @cached_property
    def reporter(self) -> Reporter:
        """Sends reports to the supervisor and the lead."""
        supervisor = Mailbox(self.paths, TEAMD, durable=False)
        return Reporter(self.name, Identity.own(), self.conversation, supervisor, self.post)

    @cached_property
    def presence(self) -> Presence:
        """The teammate's current activity, as others see it."""
        path = self.paths.activity(self.name)
        before = read_activity(path)
        context = None if before is None else before.context
        return Presence(path, Identity.own(), self.mask, context)

    @cached_property
    def plans(self) -> Plans:
        """The teammate's plans."""
        return Plans(self.name, self.conversation, self.approvals, self.roster)

    @cached_property
    def permissions(self) -> Permissions:
        """The teammate's permissions."""
        tools, root = self.settings.tools, self.settings.team.workspace
        return Permissions(
            name=self.name,
            rules=self.settings.permissions,
            ask_seconds=tools.ask_seconds,
            approvers=tools.approvers,
            workspace=Workspace(
                root, hidden=self.paths.off_limits(root), home=self.paths.home_of(self.name)
            ),
            approvals=self.approvals,
            paths=self.paths,
            journal=self.journal,
            person=self.post.person,
            secret=lambda: self.conversation.opened.secret,
            settle=self.conversation.settle,
            pushes=self.pushes,
        )

    @cached_property
    def pushes(self) -> Pushes | None:
        """The teammate's pushes; `None` if its commands reach the network, so that git can push."""
        tools, shared = self.settings.tools_of(self.name, self.role), None
        if self.origin is None:
            shared = self.settings.team.workspace
            if tools.sandbox in WITHOUT or tools.network or tools.hosts:
                return None
        return Pushes(
            name=self.name,
            paths=self.paths,
            settings=self.settings,
            approvals=self.approvals,
            journal=self.journal,
            tell=self._tell_person,
            shared=shared,
        )

    def _tell_person(self, text: str) -> None:
        message = Message(sender=TEAMD, to=self.post.person(), content=text)
        try:
            self.post.notify(message)
        except TeamError as error:  # such as a full inbox: the log and the model have it
            self.journal.error("the person was not told", error)

    @cached_property
    def shutdown(self) -> OwnShutdown:
        """The teammate's side of its own shutdown."""
        return OwnShutdown(self.name, self.conversation, self.approvals, self.reporter)

    @cached_property
    def pause(self) -> Pause:
        return Pause(self.name, self.roster)

    def post_in(self, paths: TeamPaths) -> MailRouter:
        """Return the mail router of a team."""
        return MailRouter(
            paths,
            durable=self.durable,
            max_bytes=self.settings.mail.max_message_bytes,
            max_inbox_bytes=self.settings.mail.max_inbox_bytes,
            hosts=self.hosts if paths == self.paths else None,
            roster=self.roster if paths == self.paths else None,
        )
