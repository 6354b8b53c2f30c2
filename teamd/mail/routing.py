"""The way from a sender to the inboxes of receivers: who may be written to, and what to warn of."""

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
from teamd.hosts.address import HostAddress
from teamd.mail.mailbox import Mailbox
from teamd.masking import may_be_masked
from teamd.messages import ALL, LEAD, MAX_INBOX_BYTES, MAX_MESSAGE_BYTES, TEAMD, USER, Message
from teamd.team.roster import Roster
from teamd.team.states import Status

if TYPE_CHECKING:
    from teamd.hosts.far import FarHosts


_NOTICE_SECONDS: Final = 0.5
RESERVE: Final = 2  # times what others may fill of an inbox, the program's own lines may
_WARNINGS = {
    Status.SHUTDOWN: "is shut down; the message waits until it is spawned again",
    Status.FAILED: "has failed; the message waits until it is spawned again",
    Status.PAUSED: "is paused; the message waits until it goes on",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """One message on its way.

    Attributes:
        to: the receiver; `name@team` for one of another team, `name@team@host` on another host.
        warning: what its sender should know.
    """

    to: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class MailRouter:
    """Sends mail from the members of one team to others, of this and other teams and hosts.

    Attributes:
        paths: the senders' team.
        durable: whether mail is on disk when a call returns.
        max_bytes: of one message.
        max_inbox_bytes: of all that waits for one receiver.
        patience_seconds: how long to wait for the lock of an inbox.
        hosts: the other hosts; `None` where this one has no name among them.
        roster: of the team, where its sender has read it already.
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
            UnknownTeammate: nobody has that name; nothing is written.
            UnknownTeam: no team here has the name behind the `@`.
            BadName: the supervisor's own inbox takes no mail.
            NotAMessage: too long, or with a NUL.
            UnknownHost: no host of this team has the name behind the second `@`.
            InboxFull: too much waits for the receiver already.
            StoreError: it could not be written, or too much waits for its host.
        """
        if "@" in message.to:
            return self._send_away(message)
        sent = Sent(*self.receiver(message.to))
        if sent.to != message.to:
            message = replace(message, to=sent.to)
        # The last that can fail: whoever is told of a failure sends it again.
        self.mailbox(sent.to).put(message)
        return sent

    def _send_away(self, message: Message) -> Sent:
        """Send to somebody whose address names a team, maybe this one, or a host."""
        if (far := self.far(message.to)) is not None:
            self.other_hosts().put(far, message, max_bytes=self.max_bytes)
            return Sent(str(far), self.other_hosts().warn(far))
        there, sent = self._way(message.to)
        message = self._as_read(there, sent, message)
        there.mailbox(message.to).put(message)
        return sent

    def check_id(self, message: Message) -> None:
        """Check that its sender gave a message's id to no other text: both would be delivered.

        Raises:
            TeamError: it did; or as for `send`.
        """
        from teamd.mail.crossing import texts_crossing  # noqa: PLC0415 -- the same
        from teamd.mail.trace import texts_sent  # noqa: PLC0415 -- only for ids of the sender's own

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
            raise TeamError(f"{what}; repeat that text, or take another --id for this one")

    def _as_read(self, there: MailRouter, sent: Sent, message: Message) -> Message:
        """Return a message with the names by which its receiver, of that post, reads it."""
        to, sender = sent.to.partition("@")[0], message.sender
        if there is not self and "@" not in sender:
            sender = f"{sender}@{self._roster.team_name()}"
        changed = (sender, to) != (message.sender, message.to)
        return replace(message, sender=sender, to=to) if changed else message

    def notify(self, message: Message) -> Sent:
        """Send a line of teamd's own, see `for_notices`; raises what `send` does."""
        return self.for_notices().send(message)

    def for_notices(self) -> MailRouter:
        """The post for lines of teamd's own: no limits of the settings, and no long wait."""
        return replace(
            self,
            max_bytes=max(self.max_bytes, MAX_MESSAGE_BYTES),
            max_inbox_bytes=RESERVE * self.max_inbox_bytes,
            patience_seconds=_NOTICE_SECONDS,
        )

    def at(self, address: str) -> tuple[MailRouter, str]:
        """The post of the receiver's team, and the receiver's name there.

        Raises:
            UnknownTeam: no team here has the name behind the `@`.
            BadName: it names another host.
        """
        if self.far(address) is not None:
            raise BadName(address, "it is on another host; only mail and commands go there")
        name, at, place = address.partition("@")
        place = place.partition("@")[0]  # behind that stands the name of this host
        if not at or place.lower() == self._roster.team_name().lower():
            return self, name
        teams = {_name(paths): paths for paths in all_teams(self.paths.home)}
        there = next((team for own, team in teams.items() if own.lower() == place.lower()), None)
        if there is None:
            self._check_no_host(name, place)
            raise UnknownTeam(place, teams)
        return replace(self, paths=finish(there), hosts=None), name

    def far(self, address: str) -> HostAddress | None:
        """The address of somebody on another host; `None` for one on this.

        Raises:
            BadName: it is no address, of another team, or this host has no name among hosts.
            UnknownHost: no host of this team has that name.
        """
        if "@" not in address.partition("@")[2]:
            return None
        hosts = self.other_hosts(address)
        return hosts.parse(address, self._roster.team_name())

    def address(self, address: str) -> str:
        """The name as the roster has it; with its team and host, where those are others."""
        far = self.far(address)
        return self._way(address)[1].to if far is None else str(far)

    def above(self, name: str) -> str:
        """The address to which a member of this team reports, see `Roster.above`."""
        address = self._roster.above(name)
        try:
            return self.address(address) if "@" in address else address
        except (BadName, UnknownHost, UnknownTeam, UnknownTeammate):
            return LEAD  # the other team is gone

    def broadcast(self, message: Message) -> list[Sent]:
        """Send to every member but the sender and those that are shut down.

        Raises:
            StoreError: an inbox is full, and the others have it; or it could not be written.
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
        """What the team is called."""
        return self._roster.team_name()

    def person(self) -> str:
        """The name of the person's inbox: `lead`, or `user` while there is an agent that leads."""
        return self._roster.person()

    def persons(self) -> list[Mailbox]:
        """The person's inboxes, the one for what comes now last.

        Before it comes what was left in the other one by an agent that leads no more.
        """
        person = self.person()
        return [self.mailbox(name) for name in dict.fromkeys((USER, person))]

    def inbox(self, address: str) -> Mailbox:
        """The mailbox of a name that may have one.

        Raises:
            UnknownTeammate: nobody has that name.
        """
        there, name = self.at(address)
        return there.mailbox(there.receiver(name)[0])

    def _way(self, address: str) -> tuple[MailRouter, Sent]:
        """The post of the receiver's team, and what `send` would return."""
        there, name = self.at(address)
        to, warning = there.receiver(name)
        return there, Sent(to if there is self else f"{to}@{_name(there.paths)}", warning)

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of that very name, whether the roster knows it or not."""
        return Mailbox(
            self.paths,
            name,
            durable=self.durable,
            max_bytes=self.max_bytes,
            max_inbox_bytes=self.max_inbox_bytes,
            patience_seconds=self.patience_seconds,
            granted=lambda: MAX_MESSAGE_BYTES,  # what was sent before the limit was lowered
        )

    def other_hosts(self, address: str = "") -> FarHosts:
        """The other hosts; the address is of whom they are asked for, if it is of anybody.

        Raises:
            TeamError: this one has no name among them.
        """
        if self.hosts is None:
            why = "this host has no name in [hosts]; `teamctl help hosts` tells how to give one"
            raise BadName(address, why) if address else TeamError(why)
        return self.hosts

    def _check_no_host(self, name: str, place: str) -> None:
        """Refuse an address that names a host where a team is to stand, and say how to."""
        if self.hosts is not None and place.lower() in (self.hosts.name, *self.hosts.known()):
            full = f"{name}@{self._roster.team_name()}@{place.lower()}"
            raise BadName(f"{name}@{place}", f"{place} is a host, not a team; write {full}")

    def receiver(self, name: str) -> tuple[str, str | None]:
        """The name as it is written in the roster, and a warning if its bearer does not read."""
        lower = name.lower()
        if lower == USER:
            return self.person(), None
        if lower in (TEAMD, ALL):
            raise BadName(name, "it takes no mail; send to a teammate, or use broadcast")
        member = self._roster.find(name)  # one look: it may be removed by the next
        if lower == LEAD and (member is None or member.status is Status.SHUTDOWN):
            return LEAD, None  # the person
        member = member or self._roster.get(name)
        words = _WARNINGS.get(member.status)
        return member.name, f"{member.name} {words}" if words else None


def _name(paths: TeamPaths) -> str:
    return paths.own_name or Roster(paths).team_name()


@dataclass(frozen=True, slots=True)
class FarBroadcast:
    """What became of it.

    Attributes:
        sent: to whom on other hosts.
        missed: what was not reached and why, by the name of a host or an address.
    """

    sent: tuple[Sent, ...]
    missed: dict[str, str]


def broadcast_far(post: MailRouter, message: Message) -> FarBroadcast:
    """Send to every member of each other host that is not shut down, by its last roster.

    Nothing is sent to a host that nothing reaches now: who is there by then is not known.

    Raises:
        BadName: this host has no name among hosts.
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
            except TeamError as error:  # its outbox is full, say: the others get it
                missed[to] = str(error)
    return FarBroadcast(tuple(sent), missed)
