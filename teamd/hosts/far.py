"""The other hosts from a sender's view: which are known, and mail to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final

from teamd.clocks import time_of_day
from teamd.errors import BadName, NotAMessage, UnknownHost
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.outbox import MAX_OUTBOX_BYTES, Outbox
from teamd.hosts.places import HostAddress, HostPlaces, parse_address
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.hosts.view import HostState, HostView, Report, postman_runs, read_views
from teamd.messages import Message
from teamd.settings.schema import HostSettings
from teamd.team.states import Status

_ASLEEP: Final = {
    Status.SHUTDOWN: "is shut down; the message waits there until it is spawned again",
    Status.FAILED: "has failed; the message waits there until it is spawned again",
    Status.PAUSED: "is paused; the message waits there until it goes on",
}
NO_POSTMAN: Final = "no postman runs here"
_CONTENT: Final = ("id", "type", "from", "content", "timestamp", "summary")


@dataclass(frozen=True, slots=True)
class FarHosts:
    """The other hosts of a team.

    Attributes:
        name: the name of this host.
        max_bytes: the size limit of each outbox.
        durable: whether queued mail is on disk when a call returns.
        named: hosts named in the settings, whether or not they have connected.
        settings: `[hosts]`, for commands to other hosts.
    """

    paths: TeamPaths
    name: str
    _: KW_ONLY
    max_bytes: int = MAX_OUTBOX_BYTES
    durable: bool = True
    named: frozenset[str] = frozenset()
    settings: HostSettings = field(default_factory=HostSettings)

    @classmethod
    def of(cls, paths: TeamPaths, settings: HostSettings, *, durable: bool) -> FarHosts | None:
        """Return a team's other hosts by its settings.

        `None` if [hosts] does not name this host.
        """
        if settings.name is None:
            return None
        named = frozenset(host for hosts in settings.allow.values() for host in hosts)
        return cls(
            paths, settings.name, max_bytes=settings.outbox_bytes, durable=durable, named=named,
            settings=settings,
        )  # fmt: skip

    def known(self) -> list[str]:
        """Return the names of all other hosts, from the settings, views and files."""
        seen = (view.name for view in read_views(self.paths))
        found = {*HostPlaces(self.paths).known(), *seen, *self.named}
        return sorted(found - {self.name.lower()})

    def check(self, host: str) -> str:
        """Return a host's name in its normal spelling.

        Raises:
            UnknownHost: no known host has the name.
        """
        known = self.known()
        if host.lower() not in known:
            raise UnknownHost(host, known)
        return host.lower()

    def parse(self, text: str, team: str) -> HostAddress | None:
        """Return the address of a member on another host, with that host's spelling of the name.

        It is `None` for a member on this host.

        Args:
            text: an address with two `@`.
            team: the name of this team.

        Raises:
            BadName: it is not a valid address, or names another team.
            UnknownHost: no host has that name.
        """
        address = parse_address(text)
        if address is None:
            raise BadName(text, "an address on another host is NAME@TEAM@HOST")
        if address.host == self.name.lower():
            return None
        host = self.check(address.host)
        if address.team.lower() != team.lower():
            ours = f"{address.name}@{team}@{host}"
            raise BadName(text, f"mail to other hosts reaches only the team {team!r}: write {ours}")
        member = self.member(host, address.name)
        return HostAddress(address.name if member is None else member.name, team, host)

    def roster(self, host: str) -> FarRoster | None:
        """Return a host's last roster."""
        return rosters.read(HostPlaces(self.paths).roster(host))

    def member(self, host: str, name: str) -> FarMember | None:
        """Return a member by its host's last roster."""
        roster = self.roster(host)
        return None if roster is None else roster.find(name)

    def members(self, host: str) -> Iterator[FarMember]:
        """Yield the members in a host's last roster."""
        roster = self.roster(host)
        yield from () if roster is None else roster.members

    def view(self, host: str) -> HostView:
        """Return the last known state of a host."""
        return next(
            (one for one in read_views(self.paths) if one.name == host), HostView(name=host)
        )

    def views(self) -> list[HostView]:
        """Return the states of all other hosts.

        Without a running postman none counts as reachable.
        """
        runs = postman_runs(self.paths)  # first, because it corrects the view and then locks
        seen = {one.name: one for one in read_views(self.paths)}
        found = [seen.get(host, HostView(name=host)) for host in self.known()]
        return found if runs else [_unwatched(one) for one in found]

    def describe_solitude(self) -> str:
        """Return a sentence for a host that knows no other, with the reason if there is one."""
        why = self.view(self.name.lower()).why if postman_runs(self.paths) else ""
        said = f"this host is {self.name}; no other was heard of yet"
        return f"{said}: {why}" if why else said

    def own_reports(self) -> tuple[Report, ...]:
        """Return unresolved problems of this host itself, such as another host of the same name."""
        return self.view(self.name.lower()).reports

    def obstacle(self, host: str) -> str | None:
        """Return why a host is unreachable, in a few words; `None` if it may be reachable."""
        if not postman_runs(self.paths):
            return f"{NO_POSTMAN}; `teamd start` starts it, `teamctl doctor` says more"
        return describe_absence(self.view(host))

    def warn(self, address: HostAddress) -> str | None:
        """Return a warning for the sender of a message, in a sentence, or `None`."""
        if (why := self.obstacle(address.host)) is not None:
            return f"queued for {address.host}: {why}"
        member = self.member(address.host, address.name)
        words = None if member is None else _ASLEEP.get(member.status)
        return f"{address} {words}" if words else None

    def put(self, address: HostAddress, message: Message, *, max_bytes: int) -> None:
        """Queue a message for another host; it is durable when this returns, and arrives once.

        Args:
            address: the receiver.
            message: the message; only its keys in `_CONTENT` are sent.
            max_bytes: the size limit of a message.

        Raises:
            NotAMessage: the message is too long or contains a NUL.
            StoreError: too much is waiting for the host, or the message could not be written.
        """
        size = len(message.encode())
        if size > max_bytes:
            raise NotAMessage(
                f"a message of {size} bytes is over the limit of {max_bytes}; "
                "commit the text with git, and send branch and commit"
            )
        said = message.to_json()
        content: dict[str, Any] = {key: value for key, value in said.items() if key in _CONTENT}
        outbox = Outbox(self.paths, address.host, self.durable, self.max_bytes)
        outbox.append(to=address.name, team=address.team, message=content)


def _unwatched(view: HostView) -> HostView:
    if view.state is HostState.NEVER:
        return replace(view, why=NO_POSTMAN)
    since = None if view.state is HostState.REACHABLE else view.since
    return replace(
        view, state=HostState.UNREACHABLE, since=since, why=NO_POSTMAN, round_trip_ms=None
    )


def describe_absence(view: HostView) -> str | None:
    """Return why a host is unreachable, in a few words; `None` if it is reachable."""
    match view.state:
        case HostState.REACHABLE:
            return None
        case HostState.NEVER:
            return "it was never heard of yet" + (f" ({view.why})" if view.why else "")
    since = "" if view.since is None else f" since {time_of_day(view.since)}"
    return f"unreachable{since}" + (f" ({view.why})" if view.why else "")
