"""The way from a sender to the inboxes of receivers: who may be written to, and what to warn of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from teamd.errors import BadName
from teamd.protocol import ALL, LEAD, TEAMD, USER, Message
from teamd.states import Status
from teamd.store.mailbox import Mailbox
from teamd.store.roster import Roster

if TYPE_CHECKING:
    from teamd.store.paths import TeamPaths

_WARNINGS = {
    Status.SHUTDOWN: "is shut down; the message waits until it is spawned again",
    Status.FAILED: "has failed; the message waits until it is spawned again",
    Status.PAUSED: "is paused; the message waits until it goes on",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """One message on its way: to whom, and what its sender should know."""

    to: str
    warning: str | None = None


class Post:
    """Sends mail within one team.

    Args:
        paths: the team.
        durable: whether mail is on disk when a call returns.
        max_bytes: of one message.
    """

    def __init__(self, paths: TeamPaths, *, durable: bool, max_bytes: int) -> None:
        self._paths = paths
        self._roster = Roster(paths)
        self._durable = durable
        self._max_bytes = max_bytes

    def send(self, message: Message) -> Sent:
        """Put a message into its receiver's inbox.

        Raises:
            UnknownTeammate: nobody has that name; nothing is written.
            BadName: the supervisor's own inbox takes no mail.
            NotAMessage: too long, or with a NUL.
            StoreError: it could not be written.
        """
        to, warning = self._receiver(message.to)
        self.mailbox(to).put(replace(message, to=to))
        return Sent(to, warning)

    def broadcast(self, message: Message) -> list[Sent]:
        """Send to every member but the sender and those that are shut down."""
        receivers = [
            member
            for member in self._roster.read().members
            if member.status is not Status.SHUTDOWN
            and member.name.lower() != message.sender.lower()
        ]
        for member in receivers:
            self.mailbox(member.name).put(replace(message, to=member.name))
        return [Sent(member.name) for member in receivers]

    def person(self) -> str:
        """The name of the person's inbox: `lead`, or `user` while there is an agent that leads."""
        return self._roster.read().person

    def obstacle(self, name: str) -> str | None:
        """Why mail would wait in the inbox of `name` right now, in a sentence.

        Raises:
            UnknownTeammate: nobody has that name.
        """
        return self._receiver(name)[1]

    def inbox(self, name: str) -> Mailbox:
        """The mailbox of a name that may have one.

        Raises:
            UnknownTeammate: nobody has that name.
        """
        return self.mailbox(self._receiver(name)[0])

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of that very name, whether the roster knows it or not."""
        return Mailbox(self._paths, name, durable=self._durable, max_bytes=self._max_bytes)

    def _receiver(self, name: str) -> tuple[str, str | None]:
        """The name as it is written in the roster, and a warning if its bearer does not read."""
        team = self._roster.read()
        plain = name.removesuffix(f"@{team.name}")
        if plain.lower() == USER or (plain.lower() == LEAD and team.person == LEAD):
            return team.person, None
        if plain.lower() in (TEAMD, ALL):
            raise BadName(name, "it takes no mail; send to a teammate, or use broadcast")
        member = team.get(plain)
        words = _WARNINGS.get(member.status)
        return member.name, f"{member.name} {words}" if words else None
