"""All links of one host: made as hosts are heard of, each held up by nothing but itself."""

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

_MOST: Final = 1000  # a broker that invents names fills no memory
OUTBOX_WAS_DAMAGED: Final = "the file of what waits for it was damaged"
_FAULT: Final = (
    "mail from it or to it meets a fault of this program and is tried again and again; "
    "`teamctl logs postman` has it"
)
_RETRY_SECONDS: Final = 3.0
_MOST_REPORTS: Final = 10  # by mail, within an hour; a view keeps more of them
_REPORTS_SECONDS: Final = 3600.0


@dataclass(slots=True)
class Links:
    """The links of the host with this name.

    Attributes:
        outbox: returns the one of a host.
        post: tells the person what could not be made good.
        durable: whether cursors are on disk before anything is confirmed.
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
    _trouble: dict[str, float] = field(default_factory=dict)  # hosts, and when to look again

    @property
    def hosts(self) -> set[str]:
        """The names of the other hosts."""
        return set(self._links)

    def without_outbox(self, hosts: AbstractSet[str] | None) -> set[str]:
        """Return which of these hosts have no outbox now; of all that have a link, for `None`."""
        return {
            host for host in (self._links if hosts is None else hosts)
            if not self._outbox_path(host).exists()
        }  # fmt: skip

    def _outbox_path(self, host: str) -> Path:
        """Return the path of an outbox: to put one together takes longer than to look there."""
        if (link := self._links.get(host)) is not None:
            return link.outgoing.outbox.path
        return HostPlaces(self.post.paths).outbox(host)

    def start(self, hosts: Iterable[str]) -> None:
        """Make the links with hosts that are known of; tell of damage that was met meanwhile."""
        for host in hosts:
            if self._find(host, 0.0) is not None:
                self._tell_damage(host)

    def forget(self, host: str) -> None:
        """Give up the link with a host of which nothing is kept any more."""
        link = self._links.pop(host, None)
        if link is not None:
            link.close()
        self._trouble.pop(host, None)

    def connected(self, now: float) -> None:
        """Take note of a connection to the broker."""
        self._up = True
        for host, link in self._links.items():
            self._try(host, now, partial(link.connected, now))

    def disconnected(self) -> None:
        """Take note that there is none."""
        self._up = False
        for link in self._links.values():
            link.disconnected()

    def woken(self, host: str, now: float) -> None:
        """Take note that a host is there again."""
        link = self._find(host, now)
        if link is not None:
            self._try(host, now, partial(link.woken, now))

    def round(
        self, changed: set[str] | None, mail: Iterable[tuple[str, bytes]], now: float
    ) -> None:
        """Do all there is to be done.

        Args:
            changed: names of files of outboxes that have changed; `None` where a look must tell.
            mail: frames, each with the host that sent it.
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
        """Look at the outboxes that have changed, and for damaged ones that were put aside."""
        names = set(HostPlaces(self.post.paths).known() if changed is None else changed)
        aside = changed is None or any(DAMAGED in name for name in names)
        for host in sorted({name.partition(".")[0] for name in names}):
            if (link := self._find(host, now)) is not None:
                self._try(host, now, partial(link.look, now))
                if aside:
                    self._tell_damage(host)

    def _hear(self, mail: Iterable[tuple[str, bytes]], now: float) -> None:
        """Take note of frames; what came together of a host is a batch, if it is no more."""
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
        """Return the frames to be sent since the last call, each with its host."""
        out, self._out = self._out, []
        return out

    def due_seconds(self, now: float) -> float:
        """Return the seconds until `round` has something to do by itself."""
        dues = [link.due_seconds(now) for link in self._links.values()]
        return min([*dues, *(due - now for due in self._trouble.values())], default=math.inf)

    def _try(self, host: str, now: float, act: Callable[[], None]) -> None:
        """Do something with a link; what fails is tried again, and holds up no other link."""
        try:
            act()
        except DamagedOutbox as error:
            self._repair(host, error, now)
        except StoreError as error:
            if host not in self._trouble:
                self.journal.error("link held up", error, host=host)
            self._trouble[host] = now + _RETRY_SECONDS
        except Exception as error:  # noqa: BLE001 -- a link's edge: a fault of ours holds up one host
            self._trouble[host] = now + _RETRY_SECONDS
            self.journal.error("link failed", error, host=host)
            self.report(host, _FAULT)

    def _repair(self, host: str, error: DamagedOutbox, now: float) -> None:
        """Have what is left of an outbox go on; it is looked at again at once."""
        if not self._links[host].outgoing.is_current:  # that was done, here or by a sender
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
        """Tell of damaged outboxes that were kept, by whoever met them, unless that was told."""
        told = {one.text for one in self.views.get(host).reports}
        for kept in find_aside(HostPlaces(self.post.paths).outbox(host)):
            text = (
                f"{OUTBOX_WAS_DAMAGED}; it is kept as {kept}, and what could be read goes on: "
                "messages in it that cannot be read are lost, and commands to that host"
            )
            if text not in told:
                self.report(host, text)

    def _find(self, host: str, now: float) -> Link | None:
        """Return the link with a host, made if need be; `None` for what is no other host."""
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
        """Say what could not be made good: to the log, to faces, and to the person by mail.

        A host can make this say things for as long as it likes: not all of it is mail.
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
