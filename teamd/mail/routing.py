"""Route mail from senders to inboxes: check the receiver, and warn if it does not read mail now."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from teamd.errors import (
    BadName,
    InboxFull,
    StoreError,
    TeamError,
    UnknownHost,
    UnknownTeam,
    UnknownTeammate,
)
from teamd.files import locks
from teamd.files.find_team import all_teams, finish
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostAddress
from teamd.mail.mailbox import Mailbox
from teamd.masking import may_be_masked
from teamd.messages import ALL, LEAD, MAX_INBOX_BYTES, MAX_MESSAGE_BYTES, TEAMD, USER, Message
from teamd.team.roster import Roster
from teamd.team.states import Status

if TYPE_CHECKING:
    from teamd.hosts.far import FarHosts


_NOTICE_SECONDS: Final = 0.5
RESERVE: Final = 2  # teamd's own messages may fill this many times the normal inbox limit
_WARNINGS = {
    Status.SHUTDOWN: "is shut down; the message waits until it is spawned again",
    Status.FAILED: "has failed; the message waits until it is spawned again",
    Status.PAUSED: "is paused; the message waits until it goes on",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent.

    Attributes:
        to: the receiver; `name@team` in another team, `name@team@host` on another host.
        warning: a sentence for the sender, such as that the receiver is paused.
    """

    to: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class MailRouter:
    """Sends mail from the members of one team to members of this team, other teams and hosts.

    Attributes:
        paths: the senders' team.
        durable: whether mail is on disk when a call returns.
        max_bytes: of one message.
        max_inbox_bytes: the mail that may wait for one receiver.
        patience_seconds: how long to wait for the lock of an inbox.
        hosts: the other hosts; `None` if this host is not named in [hosts].
        roster: the team's roster, if the caller has read it already.
    """

    paths: TeamPaths
    _: KW_ONLY
    durable: bool
    max_bytes: int
    max_inbox_bytes: int = MAX_INBOX_BYTES
    patience_seconds: float = locks.TIMEOUT_SECONDS
    hosts: FarHosts | None = None
    roster: InitVar[Roster | None] = None
    _roster: Roster = field(init=False, repr=False, compare=False)

    def __post_init__(self, roster: Roster | None) -> None:
        object.__setattr__(self, "_roster", roster or Roster(self.paths))

    def send(self, message: Message) -> Sent:
        """Put a message into its receiver's inbox.

        Raises:
            UnknownTeammate: no member has that name; nothing is written.
            UnknownTeam: no local team has the name after the `@`.
            BadName: the supervisor's own inbox does not accept mail.
            NotAMessage: the message is too long or contains a NUL.
            UnknownHost: no host of this team has the name after the second `@`.
            InboxFull: too much mail is waiting for the receiver.
            StoreError: the message could not be written, or too much waits for its host.
        """
        if "@" in message.to:
            return self._send_away(message)
        sent = Sent(*self.receiver(message.to))
        if sent.to != message.to:
            message = replace(message, to=sent.to)
        # This comes last, because a sender who gets an error sends the message again.
        self.mailbox(sent.to).put(message)
        return sent

    def _send_away(self, message: Message) -> Sent:
        """Send to an address that names a team (maybe this one) or a host."""
        if (far := self.far(message.to)) is not None:
            self.other_hosts().put(far, message, max_bytes=self.max_bytes)
            return Sent(str(far), self.other_hosts().warn(far))
        there, sent = self._way(message.to)
        message = self._as_read(there, sent, message)
        there.mailbox(message.to).put(message)
        return sent

    def check_id(self, message: Message) -> None:
        """Check that the sender has not used the id for another text: both would be delivered.

        Raises:
            TeamError: the id was used for another text; or as for `send`.
        """
        from teamd.mail.outbox_mail import texts_crossing  # noqa: PLC0415 -- the same
        from teamd.mail.trace import texts_sent  # noqa: PLC0415 -- only for ids that senders choose

        if (far := self.far(message.to)) is not None:
            sent, read = Sent(str(far)), Message.decode(message.encode(), to=str(far))
            before = texts_crossing(self.paths, far, read.sender, read.id)
        else:
            there, sent = self._way(message.to)
            message = self._as_read(there, sent, message)
            read = Message.decode(message.encode(), to=message.to)
            before = texts_sent(there.paths, read.to, read.sender, read.id)
        if not all(may_be_masked(read.content, text) for text in before):
            what = f"{sent.to} was sent another text with the id {read.id!r}"
            raise TeamError(f"{what}; repeat that text, or use another --id for this one")

    def _as_read(self, there: MailRouter, sent: Sent, message: Message) -> Message:
        """Return a message with sender and receiver as the receiver's team sees them."""
        to, sender = sent.to.partition("@")[0], message.sender
        if there is not self and "@" not in sender:
            sender = f"{sender}@{self._roster.team_name()}"
        changed = (sender, to) != (message.sender, message.to)
        return replace(message, sender=sender, to=to) if changed else message

    def notify(self, message: Message) -> Sent:
        """Send a message from teamd itself, see `for_notices`; raises the same errors as `send`."""
        return self.for_notices().send(message)

    def for_notices(self) -> MailRouter:
        """Return a router for teamd's own messages: larger limits and a short lock timeout."""
        return replace(
            self,
            max_bytes=max(self.max_bytes, MAX_MESSAGE_BYTES),
            max_inbox_bytes=RESERVE * self.max_inbox_bytes,
            patience_seconds=_NOTICE_SECONDS,
        )

    def at(self, address: str) -> tuple[MailRouter, str]:
        """Return the router of the receiver's team, and the receiver's name in that team.

        Raises:
            UnknownTeam: no local team has the name after the `@`.
            BadName: the address names another host.
        """
        if self.far(address) is not None:
            raise BadName(address, "it is on another host; only mail and commands go there")
        name, at, place = address.partition("@")
        place = place.partition("@")[0]  # it may be followed by this host's name
        if not at or place.lower() == self._roster.team_name().lower():
            return self, name
        teams = {_name(paths): paths for paths in all_teams(self.paths.home)}
        there = next((team for own, team in teams.items() if own.lower() == place.lower()), None)
        if there is None:
            self._check_no_host(name, place)
            raise UnknownTeam(place, teams)
        return replace(self, paths=finish(there), hosts=None), name

    def far(self, address: str) -> HostAddress | None:
        """Return the address of a member on another host; `None` for one on this host.

        Raises:
            BadName: it is not an address, names another team, or this host is not in [hosts].
            UnknownHost: no host of this team has that name.
        """
        if "@" not in address.partition("@")[2]:
            return None
        hosts = self.other_hosts(address)
        return hosts.parse(address, self._roster.team_name())

    def address(self, address: str) -> str:
        """Return the name as in the roster, followed by team and host if they differ from ours."""
        far = self.far(address)
        return self._way(address)[1].to if far is None else str(far)

    def above(self, name: str) -> str:
        """Return the address to which a member of this team reports, see `Roster.above`."""
        address = self._roster.above(name)
        try:
            return self.address(address) if "@" in address else address
        except (BadName, UnknownHost, UnknownTeam, UnknownTeammate):
            return LEAD  # the other team was removed

    def broadcast(self, message: Message) -> list[Sent]:
        """Send to every member except the sender and members that are shut down.

        Raises:
            StoreError: some inboxes are full, and the others have the message; or a write failed.
        """
        receivers = [
            member
            for member in self._roster.read().members
            if member.status is not Status.SHUTDOWN
            and member.name.lower() != message.sender.lower()
        ]
        full = []
        for member in receivers:
            try:
                self.mailbox(member.name).put(replace(message, to=member.name))
            except InboxFull as error:
                full.append(str(error))
        if full:
            raise StoreError(f"{'; '.join(full)}; the other receivers have the message")
        return [Sent(member.name) for member in receivers]

    def team_name(self) -> str:
        """Return the team's name."""
        return self._roster.team_name()

    def person(self) -> str:
        """Return the person's inbox: `user` while an agent leads the team, else `lead`."""
        return self._roster.person()

    def persons(self) -> list[Mailbox]:
        """Return the person's inboxes, with the current one last."""
        return [self.mailbox(name) for name in self._roster.read().person_inboxes]

    def inbox(self, address: str) -> Mailbox:
        """Return the mailbox of a valid receiver.

        Raises:
            UnknownTeammate: no member has that name.
        """
        there, name = self.at(address)
        return there.mailbox(there.receiver(name)[0])

    def _way(self, address: str) -> tuple[MailRouter, Sent]:
        """Return the router of the receiver's team, and the result that `send` would return."""
        there, name = self.at(address)
        to, warning = there.receiver(name)
        return there, Sent(to if there is self else f"{to}@{_name(there.paths)}", warning)

    def mailbox(self, name: str) -> Mailbox:
        """Return the mailbox of exactly this name, without consulting the roster."""
        return Mailbox(
            self.paths,
            name,
            durable=self.durable,
            max_bytes=self.max_bytes,
            max_inbox_bytes=self.max_inbox_bytes,
            patience_seconds=self.patience_seconds,
            granted=lambda: MAX_MESSAGE_BYTES,  # messages sent before the limit was lowered
        )

    def other_hosts(self, address: str = "") -> FarHosts:
        """Return the other hosts; `address` only serves the error.

        Raises:
            TeamError: this host is not named in [hosts].
        """
        if self.hosts is None:
            why = "this host has no name in [hosts]; `teamctl help hosts` tells how to give one"
            raise BadName(address, why) if address else TeamError(why)
        return self.hosts

    def _check_no_host(self, name: str, place: str) -> None:
        """Refuse an address that has a host in place of a team, and suggest the full address."""
        if self.hosts is not None and place.lower() in (self.hosts.name, *self.hosts.known()):
            full = f"{name}@{self._roster.team_name()}@{place.lower()}"
            raise BadName(f"{name}@{place}", f"{place} is a host, not a team; write {full}")

    def receiver(self, name: str) -> tuple[str, str | None]:
        """Return the name as in the roster, and a warning if that member does not read mail now."""
        lower = name.lower()
        if lower == USER:
            return self.person(), None
        if lower in (TEAMD, ALL):
            raise BadName(name, "it cannot receive mail; send to a teammate, or use broadcast")
        # Only one lookup, because the member may be removed before the next.
        member = self._roster.find(name)
        if lower == LEAD and (member is None or member.status is Status.SHUTDOWN):
            return LEAD, None  # the person
        member = member or self._roster.get(name)
        words = _WARNINGS.get(member.status)
        return member.name, f"{member.name} {words}" if words else None


def _name(paths: TeamPaths) -> str:
    return paths.own_name or Roster(paths).team_name()


@dataclass(frozen=True, slots=True)
class FarBroadcast:
    """The result of a broadcast to other hosts.

    Attributes:
        sent: the messages on their way to other hosts.
        missed: hosts and addresses that were not reached, with the reason.
    """

    sent: tuple[Sent, ...]
    missed: dict[str, str]


def broadcast_far(post: MailRouter, message: Message) -> FarBroadcast:
    """Send to the members of each other host that are not shut down, by that host's last roster.

    Unreachable hosts are skipped: their members may have changed by the time they return.

    Raises:
        BadName: this host is not named in [hosts].
    """
    hosts, team = post.other_hosts(), post.team_name()
    sent: list[Sent] = []
    missed: dict[str, str] = {}
    for host in hosts.known():
        if (why := hosts.obstacle(host)) is not None:
            missed[host] = why
            continue
        for member in hosts.members(host):
            if member.status is Status.SHUTDOWN:
                continue
            to = f"{member.name}@{team}@{host}"
            try:
                sent.append(post.send(replace(message, to=to)))
            except TeamError as error:  # for example a full outbox; continue with the others
                missed[to] = str(error)
    return FarBroadcast(tuple(sent), missed)
