"""All links of this host: created on demand, and independent of each other."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from teamd.errors import StoreError, TeamError
from teamd.files.files import DAMAGED
from teamd.hosts.cursor import CursorFile
from teamd.hosts.outbox import Outbox
from teamd.hosts.outbox_file import DamagedOutbox
from teamd.hosts.outbox_repair import find_aside
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import Report, Views
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, NAME, TEAMD, Message
from teamd.postman.incoming import Incoming, Receiver
from teamd.postman.link import Link
from teamd.postman.outgoing import WINDOW_LINES, Outgoing

_MOST: Final = 1000  # limits the memory that a broker with invented host names can use
OUTBOX_WAS_DAMAGED: Final = "the file of what waits for it was damaged"
_FAULT: Final = (
    "mail from it or to it meets a fault of this program and is tried again and again; "
    "`teamctl logs postman` has it"
)
_RETRY_SECONDS: Final = 3.0
_MOST_REPORTS: Final = 10  # by mail within an hour; the view keeps more
_REPORTS_SECONDS: Final = 3600.0


@dataclass(slots=True)
class Links:
    """The links of this host.

    Attributes:
        outbox: returns the outbox for a host.
        post: sends the person mail about unresolved problems.
        durable: whether cursors are on disk before lines are confirmed.
    """

    name: str
    outbox: Callable[[str], Outbox]
    receiver: Receiver
    views: Views
    post: MailRouter
    journal: Journal
    durable: bool
    _links: dict[str, Link] = field(default_factory=dict)
    _out: list[tuple[str, bytes]] = field(default_factory=list)
    _up: bool = False
    _trouble: dict[str, float] = field(default_factory=dict)  # hosts with errors, and when to retry

    @property
    def hosts(self) -> set[str]:
        return set(self._links)

    def without_outbox(self, hosts: AbstractSet[str] | None) -> set[str]:
        """Return the hosts that have no outbox now, among these or, for `None`, all with a link."""
        return {
            host for host in (self._links if hosts is None else hosts)
            if not self._outbox_path(host).exists()
        }  # fmt: skip

    def _outbox_path(self, host: str) -> Path:
        """Return the path of an outbox; the link's copy is faster than building the path."""
        if (link := self._links.get(host)) is not None:
            return link.outgoing.outbox.path
        return HostPlaces(self.post.paths).outbox(host)

    def start(self, hosts: Iterable[str]) -> None:
        """Create the links with known hosts; report damaged outboxes."""
        for host in hosts:
            if self._find(host, 0.0) is not None:
                self._tell_damage(host)

    def forget(self, host: str) -> None:
        """Remove the link with a host that was forgotten."""
        link = self._links.pop(host, None)
        if link is not None:
            link.close()
        self._trouble.pop(host, None)

    def connected(self, now: float) -> None:
        """Handle a new connection to the broker."""
        self._up = True
        for host, link in self._links.items():
            self._try(host, now, partial(link.connected, now))

    def disconnected(self) -> None:
        """Handle the loss of the connection."""
        self._up = False
        for link in self._links.values():
            link.disconnected()

    def woken(self, host: str, now: float) -> None:
        """Handle the return of a host."""
        link = self._find(host, now)
        if link is not None:
            self._try(host, now, partial(link.woken, now))

    def round(
        self, changed: set[str] | None, mail: Iterable[tuple[str, bytes]], now: float
    ) -> None:
        """Do all pending work.

        Args:
            changed: the names of changed outbox files; `None` if unknown.
            mail: frames, each with its sender's host.
            now: by the clock `elapsed`.
        """
        self._look(changed, now)
        self._hear(mail, now)
        for host, link in self._links.items():
            if self._trouble.get(host, math.inf) <= now:
                del self._trouble[host]
                self._try(host, now, partial(link.look, now))
            self._try(host, now, partial(link.due, now))

    def _look(self, changed: set[str] | None, now: float) -> None:
        """Read changed outboxes, and look for damaged ones that were set aside."""
        names = set(HostPlaces(self.post.paths).known() if changed is None else changed)
        aside = changed is None or any(DAMAGED in name for name in names)
        for host in sorted({name.partition(".")[0] for name in names}):
            if (link := self._find(host, now)) is not None:
                self._try(host, now, partial(link.look, now))
                if aside:
                    self._tell_damage(host)

    def _hear(self, mail: Iterable[tuple[str, bytes]], now: float) -> None:
        """Process frames.

        Those that came together from a host form a batch, up to its maximum size.
        """
        came: defaultdict[str, list[bytes]] = defaultdict(list)
        for host, payload in mail:
            came[host].append(payload)
        for host, payloads in came.items():
            if (link := self._find(host, now)) is not None:
                for payload in payloads:
                    self._try(host, now, partial(link.heard, payload, now))
        for host, link in self._links.items():
            if host in came or link.pending:
                self._try(host, now, partial(link.finish, now))

    def sent(self) -> list[tuple[str, bytes]]:
        """Return and clear the frames to send, each with its host."""
        out, self._out = self._out, []
        return out

    def due_seconds(self, now: float) -> float:
        """Return the seconds until `round` has work without an event."""
        dues = [link.due_seconds(now) for link in self._links.values()]
        return min([*dues, *(due - now for due in self._trouble.values())], default=math.inf)

    def _try(self, host: str, now: float, act: Callable[[], None]) -> None:
        """Call `act` on a link; errors are retried later and do not affect other links."""
        try:
            act()
        except DamagedOutbox as error:
            self._repair(host, error, now)
        except StoreError as error:
            if host not in self._trouble:
                self.journal.error("link held up", error, host=host)
            self._trouble[host] = now + _RETRY_SECONDS
        except Exception as error:  # noqa: BLE001 -- a bug must hold up only one link
            self._trouble[host] = now + _RETRY_SECONDS
            self.journal.error("link failed", error, host=host)
            self.report(host, _FAULT)

    def _repair(self, host: str, error: DamagedOutbox, now: float) -> None:
        """Repair a damaged outbox, and schedule the next read."""
        if not self._links[host].outgoing.is_current:  # already repaired, here or by a sender
            self._trouble[host] = now
            return
        try:
            repaired = self.outbox(host).repair()
        except StoreError as trouble:
            self.journal.error("outbox not repaired", trouble, host=host)
            repaired = False
        if repaired:
            self._tell_damage(host)
        else:
            self.report(host, f"nothing goes there: {error}")
        self._trouble[host] = now if repaired else now + _RETRY_SECONDS

    def _tell_damage(self, host: str) -> None:
        """Report damaged outboxes that were kept, unless that was reported before."""
        told = {one.text for one in self.views.get(host).reports}
        for kept in find_aside(HostPlaces(self.post.paths).outbox(host)):
            text = (
                f"{OUTBOX_WAS_DAMAGED}; it is kept as {kept}, and what could be read goes on: "
                "messages in it that cannot be read are lost, and commands to that host"
            )
            if text not in told:
                self.report(host, text)

    def _find(self, host: str, now: float) -> Link | None:
        """Return the link with a host, created if needed; `None` for an invalid host."""
        if host in self._links:
            return self._links[host]
        if host == self.name or not NAME.fullmatch(host) or len(self._links) >= _MOST:
            return None
        try:
            link = self._links[host] = self._make(host)
        except StoreError as error:
            self.journal.error("no link", error, host=host)
            return None
        if self._up:
            self._try(host, now, partial(link.connected, now))
        return link

    def _make(self, host: str) -> Link:
        places, report = HostPlaces(self.post.paths), partial(self.report, host)
        confirmed = CursorFile(places.confirmed(host), durable=False)
        received = CursorFile(places.received(host), durable=self.durable)
        incoming = Incoming(host, received, self.receiver, window=WINDOW_LINES, report=report)
        outgoing = Outgoing(self.outbox(host), confirmed, report=report)
        return Link(outgoing, incoming, lambda frame: self._out.append((host, frame)))

    def report(self, host: str, what: str) -> None:
        """Report an unresolved problem: to the log, to the view, and by mail to the person.

        Another host can trigger any number of reports, so the mails are limited.
        """
        now, reports = time.time(), self.views.get(host).reports
        if reports and reports[-1].text == what:
            return
        self.journal.warn("report", host=host, what=what)
        self.views.report(host, Report(now, what))
        late = sum(now - one.time < _REPORTS_SECONDS for one in reports)
        if late >= _MOST_REPORTS:
            return
        more = " Further ones within the hour stand in `teamctl hosts` only."
        text = f"About the host {host}: {what}.{more if late == _MOST_REPORTS - 1 else ''}"
        try:
            self.post.notify(Message(sender=TEAMD, to=LEAD, content=text))
        except TeamError as error:
            self.journal.error("not told", error, host=host)
