"""The postman's process: the only process of a team that talks to other hosts.

It sleeps until an outbox or the roster changes, a frame arrives or a deadline passes, and then does
a round: first all mail that has arrived, then the displayed state.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

from teamd import clocks
from teamd.errors import NotAMessage, StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.files.watch import Watch, watch
from teamd.hosts import rosters
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarRoster
from teamd.hosts.view import Views
from teamd.journal import Journal
from teamd.postman.broker import Broker
from teamd.postman.certificates import Certificates
from teamd.postman.faces import DEAF, DENIED, show_host
from teamd.postman.links import Links
from teamd.postman.presence import SILENT_SECONDS, HostPresence
from teamd.postman.rounds import Rounds
from teamd.postman.spare_memory import SpareMemory
from teamd.settings.schema import HostSettings
from teamd.team.roster import Roster

_OFFLINE: Final = "there is no connection to the broker"
_MOST_DENIED: Final = 100  # different operations to log
_DOUBLE: Final = (
    "two hosts have that name, and mail to it comes to one of them or to both; stop one, and "
    "join it with another token, which `teamctl hosts add NAME` writes"
)


@dataclass(slots=True)
class Postman:
    """Serves one team until it is killed.

    Attributes:
        settings: `[hosts]`, with a name.
        links: with the other hosts.
        views: the displayed state of the hosts.
        check: raises a `StoreError` if the team directory was moved or replaced.
    """

    paths: TeamPaths
    settings: HostSettings
    journal: Journal
    presence: HostPresence
    links: Links
    views: Views
    check: Callable[[], None]
    _frames: deque[tuple[str, bytes]] = field(default_factory=deque)
    _now: Callable[[], None] = lambda: None  # does a round
    _soon: Callable[[], None] = lambda: None  # does a round after pending events
    _out: deque[tuple[str, bytes]] = field(default_factory=deque)
    _why: str = _OFFLINE  # why there is no connection
    _denied: set[str] = field(default_factory=set)  # by the broker of this connection
    _memory: SpareMemory = field(default_factory=SpareMemory)
    _doubles: set[str] = field(default_factory=set)  # duplicate names that were reported
    _turn: bool | None = None  # whether the connection was made or lost, if either is unprocessed
    # Unprocessed changes in folders.
    _hints: dict[Watch, set[str] | None] = field(default_factory=dict)
    _looked: dict[Watch, float] = field(default_factory=dict)  # when each folder was last checked
    _shown: set[str] = field(default_factory=set)
    _silent: float = 0.0  # when the next reachable host becomes silent

    async def serve(self) -> NoReturn:
        """Serve until this process is killed, which loses nothing.

        Raises:
            TeamError: the team directory was replaced, or the certificates are invalid.
        """
        outboxes = watch(HostPlaces(self.paths).outboxes)
        team = watch(self.paths.root)
        with closing(outboxes), closing(team):
            broker, loop = self._broker(), asyncio.get_running_loop()
            rounds = Rounds(partial(self._round, outboxes, team, broker), self._memory.rest)
            self._now, self._soon = rounds.now, rounds.soon
            for watched in (outboxes, team):
                loop.add_reader(watched.fileno(), self._wake, watched)
            self.links.start(HostPlaces(self.paths).known())
            await rounds.run(asyncio.create_task(broker.run()))

    def _broker(self) -> Broker:
        own, certificates = self.settings, None
        if own.cert and own.key and own.ca:
            certificates = Certificates(own.cert, own.key, own.ca)
        subjects = {f"mail.{own.name}.*": self._hear, "roster.*": self._hear}
        return Broker(
            own.servers, certificates, subjects,
            connected=self._connect, disconnected=self._disconnect,
            denied=self._note_denied,
        )  # fmt: skip

    def _wake(self, watched: Watch) -> None:
        self._look(watched)
        self._now()

    def _look(self, watched: Watch) -> None:
        """Read changes at once; otherwise the readable queue would wake the loop again."""
        before, names = self._hints.get(watched, set()), watched.changed()
        self._hints[watched] = None if before is None or names is None else before | names
        self._looked[watched] = clocks.elapsed()

    def _note_denied(self, what: str) -> None:
        if what not in self._denied and len(self._denied) < _MOST_DENIED:
            self._denied.add(what)
            self.journal.warn("denied by the broker", what=what)

    async def _hear(self, subject: str, payload: bytes) -> None:
        self._frames.append((subject, payload))
        self._memory.use(len(payload))
        self._soon()

    def _connect(self) -> None:
        self.journal.note("connected")
        self._turn, self._why = True, ""
        self._denied.clear()
        self._soon()

    def _disconnect(self, why: str) -> None:
        if why != self._why:
            self.journal.warn("disconnected", why=why)
        self._turn, self._why = False, why or _OFFLINE
        self._soon()

    def _round(
        self, outboxes: Watch, team: Watch, broker: Broker
    ) -> float | Coroutine[Any, Any, None]:
        """Do all pending work, mail first; see `Rounds`."""
        self.check()
        now = clocks.elapsed()
        self._note_connection(now)
        changed = self._forget(self._changed(outboxes, now), now)
        self.links.round(changed, self._sort(now), now)
        self._out += ((f"mail.{to}.{self.settings.name}", one) for to, one in self.links.sent())
        self._hand_over(broker)
        self._note_roster(self._changed(team, now))
        if broker.up:
            presence = self.presence.due(now, time.time())
            self._out += ((f"roster.{self.settings.name}", payload) for payload in presence)
            self._hand_over(broker)
        self._show(now)
        return broker.drain() if self._out else self._due_seconds()

    def _sort(self, now: float) -> list[tuple[str, bytes]]:
        """Process the beats that arrived; return the frames about mail, each with its host."""
        frames, self._frames = self._frames, deque()
        mail = []
        for subject, payload in frames:
            kind, *others = subject.split(".")
            if kind == "roster":
                self._note_presence(others[0], payload, now)
            else:
                mail.append((others[-1], payload))
        return mail

    def _hand_over(self, broker: Broker) -> None:
        """Publish pending frames while the connection accepts them; without a connection drop them.

        The other host requests dropped frames again.
        """
        while self._out and not broker.full:
            subject, payload = self._out.popleft()
            self._memory.use(len(payload))
            if not broker.publish(subject, payload):
                self._out.clear()

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
        """Return the changes in a folder; `None` if unknown.

        That is the case at first, because changes before the watch are unknown, and at regular
        intervals.
        """
        if now >= self._looked.get(watched, -math.inf) + watched.recheck_seconds:
            self._look(watched)
            self._hints[watched] = None
        return self._hints.pop(watched, set())

    def _note_roster(self, names: set[str] | None) -> None:
        if names is None or self.paths.config.name in names:
            # During a repair, after which the file changes again.
            with suppress(StoreError, TeamError):
                self.presence.roster = FarRoster.of(Roster(self.paths).read())

    def _forget(self, changed: set[str] | None, now: float) -> set[str] | None:
        """Drop hosts without any files left, as after `teamctl hosts forget`.

        Returns:
            The changes of the remaining hosts.
        """
        named = changed and {name.partition(".")[0] for name in changed}
        gone = self.links.without_outbox(named)
        gone = {host for host in gone if not self.presence.reachable(host, now)}
        if gone:
            gone = gone.difference(HostPlaces(self.paths).known())
        for host in gone:
            self.links.forget(host)
            self.presence.peers.pop(host, None)
            self.views.forget(host)
        return changed and {name for name in changed if name.partition(".")[0] not in gone}

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
                self.presence.forget_roster(host)  # one of the next beats brings it again
                self.journal.error("roster not kept", error, host=host)

    def _show(self, now: float) -> None:
        """Update the displayed state of the hosts if it has changed."""
        known = self.links.hosts | self.presence.peers.keys()
        if now >= self._silent or known != self._shown:
            self._shown = known
            for name in known:
                self._view(name, now)
            there = [peer for peer in self.presence.peers.values() if peer.reachable(now)]
            lasts = (at + SILENT_SECONDS for one in there for at in (one.heard, one.answered))
            ends = (end for end in lasts if end > now)
            self._silent = min(ends, default=math.inf)
        try:
            self.views.write()
        except StoreError as error:
            self.journal.error("state not shown", error)

    def _view(self, name: str, now: float) -> None:
        own = self.settings.name
        denied = any(f"roster.{own}" in what for what in self._denied)
        deaf = DENIED.format(name=own) if denied else DEAF
        peer = self.presence.peers.get(name)
        show_host(self.views, name, peer, now, offline=self._why, deaf=deaf)

    def _due_seconds(self) -> float:
        now = clocks.elapsed()
        recheck = min(at + one.recheck_seconds - now for one, at in self._looked.items())
        beat = math.inf if self._why else self.presence.due_seconds(now)
        return max(0.0, min(recheck, beat, self.links.due_seconds(now), self._silent - now))
