"""The postman's process: the only one of a team that talks to other hosts.

It sleeps until a file of an outbox or of the roster changes, a frame comes or a deadline passes.
All of a round is done before anything is sent: what came together is written together.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from teamd import clocks
from teamd.errors import NotAMessage, StoreError, TeamError
from teamd.files.watch import watch
from teamd.hosts import rosters
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarRoster
from teamd.hosts.view import HostState, Views
from teamd.postman.broker import Broker
from teamd.postman.certificates import Certificates
from teamd.postman.presence import SILENT_SECONDS
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.files.paths import TeamPaths
    from teamd.files.watch import Watch
    from teamd.journal import Journal
    from teamd.postman.links import Links
    from teamd.postman.presence import HostPresence
    from teamd.settings.hosts import HostSettings

_OFFLINE: Final = "there is no connection to the broker"
_DOUBLE: Final = (
    "two hosts have that name, and mail to it comes to one of them or to both; stop one, and "
    "join it with another token, which `teamctl hosts add NAME` writes"
)
_TRIP_SHARE: Final = 0.5  # by which a round trip must differ to be shown anew


@dataclass(slots=True)
class Postman:
    """Serves one team until it is killed.

    Attributes:
        settings: `[hosts]`, with a name.
        links: with the other hosts.
        views: what faces are told.
        check: raises a `StoreError` where the team directory is no longer this process's.
    """

    paths: TeamPaths
    settings: HostSettings
    journal: Journal
    presence: HostPresence
    links: Links
    views: Views
    check: Callable[[], None]
    _frames: deque[tuple[str, bytes]] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _out: deque[tuple[str, bytes]] = field(default_factory=deque)
    _why: str = ""  # there is no connection
    _doubles: set[str] = field(default_factory=set)  # that were told of
    _turn: bool | None = None  # whether there is one again, or no more
    _hints: dict[Watch, set[str] | None] = field(default_factory=dict)  # what changed in folders
    _looked: dict[Watch, float] = field(default_factory=dict)  # and when each was looked at
    _shown: set[str] = field(default_factory=set)
    _silent: float = 0.0  # when the first of those that are there will be taken for silent

    async def serve(self) -> NoReturn:
        """Serve until this process is killed: that loses nothing.

        Raises:
            TeamError: the team directory is another one, or the certificates are none.
        """
        outboxes = watch(HostPlaces(self.paths).outboxes)
        team = watch(self.paths.root)
        with closing(outboxes), closing(team):
            loop = asyncio.get_running_loop()
            for watched in (outboxes, team):
                loop.add_reader(watched.fileno(), self._wake, watched)
            broker = self._broker()
            self.links.start(HostPlaces(self.paths).known())
            connections = asyncio.create_task(broker.run())
            connections.add_done_callback(lambda _: self._news.set())
            while True:
                if connections.done():
                    connections.result()  # raises why
                self._round(outboxes, team, broker)
                await self._flush(broker)
                await self._wait()

    def _broker(self) -> Broker:
        own, certificates = self.settings, None
        if own.cert and own.key and own.ca:
            certificates = Certificates(own.cert, own.key, own.ca)
        subjects = {f"mail.{own.name}.*": self._hear, "roster.*": self._hear}
        return Broker(
            own.servers, certificates, subjects,
            connected=self._connect, disconnected=self._disconnect,
            denied=lambda what: self.journal.warn("denied by the broker", what=what),
        )  # fmt: skip

    def _wake(self, watched: Watch) -> None:
        self._look(watched)
        self._news.set()

    def _look(self, watched: Watch) -> None:
        """Read what changed at once: a queue that still has something would wake this again."""
        before, names = self._hints.get(watched, set()), watched.changed()
        self._hints[watched] = None if before is None or names is None else before | names
        self._looked[watched] = clocks.elapsed()

    async def _hear(self, subject: str, payload: bytes) -> None:
        self._frames.append((subject, payload))
        self._news.set()

    def _connect(self) -> None:
        self.journal.note("connected")
        self._turn, self._why = True, ""
        self._news.set()

    def _disconnect(self, why: str) -> None:
        if why != self._why:
            self.journal.warn("disconnected", why=why)
        self._turn, self._why = False, why or _OFFLINE
        self._news.set()

    def _round(self, outboxes: Watch, team: Watch, broker: Broker) -> None:
        self.check()
        now = clocks.elapsed()
        self._news.clear()
        self._note_connection(now)
        changed = self._changed(outboxes, now)
        self._note_roster(self._changed(team, now))
        frames, self._frames = self._frames, deque()
        mail = []
        for subject, payload in frames:
            kind, *others = subject.split(".")
            if kind == "roster":
                self._note_presence(others[0], payload, now)
            else:
                mail.append((others[-1], payload))
        self.links.round(changed, mail, now)
        self._out += ((f"mail.{to}.{self.settings.name}", one) for to, one in self.links.sent())
        if broker.up:
            presence = self.presence.due(now, time.time())
            self._out += ((f"roster.{self.settings.name}", payload) for payload in presence)
        self._show(now)

    def _note_connection(self, now: float) -> None:
        if self._turn is not None:
            self._silent = now
        if self._turn is True:
            self.presence.connected(now)
            self.links.connected(now)
        elif self._turn is False:
            self.links.disconnected()
        self._turn = None

    def _changed(self, watched: Watch, now: float) -> set[str] | None:
        """Return what has changed in a folder; it is looked at without a hint now and then only."""
        if now >= self._looked.get(watched, -math.inf) + watched.recheck_seconds:
            self._look(watched)
        return self._hints.pop(watched, set())

    def _note_roster(self, names: set[str] | None) -> None:
        if names is None or self.paths.config.name in names:
            with suppress(StoreError, TeamError):  # in the middle of a repair: it changes again
                self.presence.roster = FarRoster.of(Roster(self.paths).read())

    def _note_presence(self, host: str, payload: bytes, now: float) -> None:
        self._silent = now
        before = self.presence.reachable(host, now)
        try:
            roster = self.presence.heard(host, payload, now, time.time())
        except NotAMessage as error:
            self.journal.warn("no presence", host=host, reason=str(error))
            return
        for name in self.presence.doubles() - self._doubles:
            self._doubles.add(name)
            self.links.report(name, _DOUBLE)
        if not before and self.presence.reachable(host, now):
            self.links.woken(host, now)
        if roster is not None:
            try:
                rosters.keep(HostPlaces(self.paths).roster(host), roster)
            except StoreError as error:
                self.journal.error("roster not kept", error, host=host)

    def _show(self, now: float) -> None:
        """Tell the faces how the hosts are, where that has changed."""
        known = self.links.hosts | self.presence.peers.keys()
        if now >= self._silent or known != self._shown:
            self._shown = known
            for name in known:
                self._view(name, now)
            there = [peer for peer in self.presence.peers.values() if peer.reachable(now)]
            ends = (peer.heard + SILENT_SECONDS for peer in there)
            self._silent = min(ends, default=math.inf)
        try:
            self.views.write()
        except StoreError as error:
            self.journal.error("state not shown", error)

    def _view(self, name: str, now: float) -> None:
        before, peer = self.views.get(name), self.presence.peers.get(name)
        if peer is not None and peer.reachable(now):
            trip = peer.round_trip
            facts: dict[str, Any] = {"state": HostState.REACHABLE, "why": ""}
            if before.state is not HostState.REACHABLE:
                facts["since"] = time.time()
            if trip is not None and _differs(before.round_trip_ms, trip * 1000):
                facts["round_trip_ms"] = round(trip * 1000, 2)
            self.views.change(name, **facts)
            return
        why = self._why or "it is silent"
        if before.state is HostState.REACHABLE:
            since = time.time() if peer is None else peer.moment
            self.views.change(name, state=HostState.UNREACHABLE, since=since, why=why)
        elif before.state is HostState.UNREACHABLE:
            self.views.change(name, why=why)
        else:
            self.views.change(name, why=self._why)

    async def _flush(self, broker: Broker) -> None:
        while self._out:
            subject, payload = self._out.popleft()
            if not await broker.publish(subject, payload):
                self._out.clear()  # it is asked for again

    async def _wait(self) -> None:
        now = clocks.elapsed()
        recheck = min(at + one.recheck_seconds - now for one, at in self._looked.items())
        beat = math.inf if self._why else self.presence.due_seconds(now)
        seconds = min(recheck, beat, self.links.due_seconds(now), self._silent - now)
        if self._frames or seconds <= 0:
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()


def _differs(shown: float | None, now: float) -> bool:
    """Return whether a round trip is worth a look: each one is a little different."""
    return shown is None or abs(now - shown) > max(1.0, _TRIP_SHARE * shown)
