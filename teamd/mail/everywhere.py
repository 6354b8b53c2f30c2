"""A broadcast to the members of all hosts, as far as they can be reached."""

from __future__ import annotations

from dataclasses import dataclass, replace

from teamd.errors import TeamError
from teamd.mail.routing import MailRouter, Sent
from teamd.messages import Message
from teamd.team.states import Status


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
