"""Presence: which hosts are reachable, their members, and an upper bound of their clocks.

Each host publishes a short beat every two seconds, and its roster whenever that changes. A beat
names the roster version received from each other host, so a host that lacks the current roster gets
it again. There are no requests, and a broker without storage is sufficient. Each beat is echoed in
the next beats of the hosts that heard it, which measures the round trip and bounds the other clock
from above.

This module uses no sockets, files or clocks: times are arguments. Those called `now` are by
`clocks.elapsed`, those called `moment` are seconds since the epoch.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from teamd.errors import NotAMessage
from teamd.hosts.rosters import FarRoster
from teamd.messages import NAME, is_moment, is_tag, parse_object

BEAT_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 6.0  # without a beat, after which a host is unreachable
_DRIFT: Final = 0.001  # maximum drift between two clocks per second; the kernel slews by half of it
_MOST_SESSIONS: Final = 8  # remembered sessions of a host
_RETURNS: Final = 3  # reappearances of an ended session; a broker may repeat single frames
_MOST_HOSTS: Final = 1000  # limits the memory that a broker with invented host names can use
_BEAT, _ROSTER = "beat", "roster"


@dataclass(slots=True)
class FarClock:
    """An upper bound of another host's clock.

    When the other host has heard a beat of this host and answered, the beat was sent before the
    answer. So the other clock is ahead of ours by no more than the difference between those two
    times. The answer's transit time does not matter. Therefore a delayed request is recognized as
    late, however wrong the clocks are.
    """

    _ahead: float | None = None  # of our clock
    _noted: float = 0.0

    def note(self, theirs: float, sent: float, held: float, now: float) -> None:
        """Process a beat.

        Args:
            theirs: when the beat was sent, by the other clock.
            sent: when the echoed beat of this host was sent, by our clock.
            held: the seconds from the echoed beat's arrival to `theirs`, by the other clock.
            now: by our clock.
        """
        known = self._ahead_at_most(now)
        # The clocks may have drifted since the beat was sent, which can be long ago.
        ahead = theirs - sent - held + _DRIFT * (now - sent)
        self._ahead = ahead if known is None else min(ahead, known)
        self._noted = now

    def latest(self, now: float) -> float | None:
        """Return the other clock's maximum reading; `None` if unknown."""
        ahead = self._ahead_at_most(now)
        return None if ahead is None else now + ahead

    def _ahead_at_most(self, now: float) -> float | None:
        return None if self._ahead is None else self._ahead + _DRIFT * (now - self._noted)


@dataclass(slots=True)
class Peer:
    """Another host, as known from its beats.

    Attributes:
        heard: when its last beat arrived, by our clock.
        moment: the same in seconds since the epoch, by our clock.
        boot: the id of the boot of its machine.
        roster: the version of its roster that has arrived; empty for none.
        round_trip: seconds to it and back; `None` until it has heard this host.
        answered: when it last confirmed that it hears this host, or first could, by our clock.
    """

    heard: float
    moment: float
    boot: str
    session: str
    roster: str = ""
    round_trip: float | None = None
    answered: float = field(init=False)
    clock: FarClock = field(default_factory=FarClock)
    _own_roster: str = ""  # the version of our roster that it has
    _sent: float = 0.0  # when it sent its last beat, by its clock
    _former: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_SESSIONS))
    _returns: int = 0

    def __post_init__(self) -> None:
        self.answered = self.heard

    def reachable(self, now: float) -> bool:
        """Return whether it was heard recently."""
        return now - self.heard < SILENT_SECONDS

    def answers(self, now: float) -> bool:
        """Return whether it was heard recently and hears this host, so that mail can move."""
        return self.reachable(now) and now - self.answered < SILENT_SECONDS

    @property
    def is_double(self) -> bool:
        """Whether two machines use this host's name: an ended session never returns."""
        return self._returns >= _RETURNS

    def lacks(self, version: str) -> bool:
        """Return whether it has not confirmed this version of our roster."""
        return self._own_roster != version

    def echo(self, now: float) -> list[Any]:
        """Return the echo of its last beat: roster version, session, its clock, seconds held."""
        return [self.roster, self.session, self._sent, round(now - self.heard, 6)]

    def note(self, beat: dict[str, Any], own: tuple[str, str], now: float) -> None:
        """Process a beat that has just arrived.

        Args:
            beat: the decoded beat.
            own: name and session of this host.
            now: by our clock.
        """
        if beat["boot"] != self.boot:
            self.boot, self.clock = beat["boot"], FarClock()
        if beat["session"] != self.session:
            self._returns += beat["session"] in self._former
            self._former.append(self.session)
        self.session, self._sent = beat["session"], beat["clock"]
        echo = beat["heard"].get(own[0])
        if not isinstance(echo, list) or len(echo) != 4 or echo[1] != own[1]:  # noqa: PLR2004 -- see `echo`
            self._own_roster = ""  # it has not heard this session
            return
        version, _, sent, held = echo
        if is_moment(sent) and is_moment(held) and isinstance(version, str) and sent + held <= now:
            self._own_roster, self.answered = version, now
            self.round_trip = now - sent - held
            self.clock.note(self._sent, sent, held, now)


@dataclass(slots=True)
class HostPresence:
    """The beats and roster of this host, and the presence of the others.

    Attributes:
        name: the name of this host.
        boot: the id of the boot of this machine.
        roster: the members of this host.
    """

    name: str
    boot: str
    roster: FarRoster
    peers: dict[str, Peer] = field(default_factory=dict)
    _session: str = field(default_factory=lambda: os.urandom(8).hex())
    _echoes: int = 0  # beats of another machine with our name
    _told: str = ""  # the version last published
    _told_at: float = 0.0
    _next_beat: float = 0.0

    def connected(self, now: float) -> None:
        """Publish everything again, so that other hosts hear this host at once."""
        self._told, self._next_beat = "", now
        for peer in self.peers.values():
            peer.answered = now  # it could not before

    def due_seconds(self, now: float) -> float:
        """Return the seconds until the next publication."""
        return 0.0 if self._told != self.roster.version else max(0.0, self._next_beat - now)

    def due(self, now: float, moment: float) -> Iterator[bytes]:
        """Yield the payloads to publish now."""
        beat = now >= self._next_beat
        heard = beat and now - self._told_at >= BEAT_SECONDS  # receivers have confirmed it by now
        lacking = heard and any(
            peer.reachable(now) and peer.lacks(self.roster.version) for peer in self.peers.values()
        )
        if beat:
            self._next_beat = now + BEAT_SECONDS
            yield self._beat(now)
        if lacking or self._told != self.roster.version:
            self._told, self._told_at = self.roster.version, now
            facts = {"version": self.roster.version, **self.roster.encode(moment)}
            yield _encode({"kind": _ROSTER, **facts})

    def heard(self, host: str, payload: bytes, now: float, moment: float) -> FarRoster | None:
        """Process a payload that another host has published.

        Args:
            host: from the subject, which the broker verifies.
            payload: the untrusted payload.
            now: by our clock.
            moment: in seconds since the epoch, by our clock.

        Returns:
            The host's roster, if it is new.

        Raises:
            NotAMessage: the payload is invalid; nothing has changed.
        """
        if host.lower() == self.name.lower():
            self._echoes += parse_object(payload).get("session", self._session) != self._session
            return None
        if not NAME.fullmatch(host):
            return None
        said = parse_object(payload)
        match said.get("kind"):
            case "beat":
                self._note_beat(host, _checked(said), now, moment)
            case "roster" if host in self.peers:
                return self._note_roster(host, said, moment)
        return None

    def forget_roster(self, host: str) -> None:
        """Treat a host's roster as not received."""
        if host in self.peers:
            self.peers[host].roster = ""

    def reachable(self, host: str, now: float) -> bool:
        """Return whether a host was heard recently."""
        peer = self.peers.get(host)
        return peer is not None and peer.reachable(now)

    def doubles(self) -> set[str]:
        """Return the names, possibly including our own, that two machines use."""
        found = {host for host, peer in self.peers.items() if peer.is_double}
        return found | ({self.name} if self._echoes >= _RETURNS else set())

    def left(self, host: str, boot: str, deadline: float, now: float) -> float | None:
        """Return a lower bound, by our clock, of the seconds until a deadline by another host's.

        It is `None` while that clock is unknown because this host has just started to hear it.

        Args:
            host: the host of the clock.
            boot: the boot of its machine.
            deadline: by its clock `elapsed`.
            now: by our clock.
        """
        peer = self.peers.get(host)
        if peer is not None and peer.boot != boot:
            return 0.0
        latest = None if peer is None else peer.clock.latest(now)
        # By our clock, since the other clock may run faster.
        return None if latest is None else max(0.0, deadline - latest) / (1 + _DRIFT)

    def _note_beat(self, host: str, beat: dict[str, Any], now: float, moment: float) -> None:
        peer = self.peers.get(host)
        if peer is None:
            if len(self.peers) >= _MOST_HOSTS:
                return
            boot, session = beat["boot"], beat["session"]
            peer = self.peers[host] = Peer(now, moment, boot=boot, session=session)
            self._next_beat = now  # so that it hears this host at once
        elif not peer.reachable(now):
            self._next_beat = peer.answered = now  # as above, when it is back
        peer.heard, peer.moment = now, moment
        peer.note(beat, (self.name, self._session), now)

    def _note_roster(self, host: str, said: dict[str, Any], moment: float) -> FarRoster | None:
        peer, version = self.peers[host], said.get("version")
        if not is_tag(version) or version == peer.roster:
            return None
        roster = FarRoster.decode(said, moment)
        peer.roster = version
        return roster

    def _beat(self, now: float) -> bytes:
        echoes = {host: one.echo(now) for host, one in self.peers.items() if one.reachable(now)}
        own = {"session": self._session, "boot": self.boot, "clock": now}
        return _encode({"kind": _BEAT, **own, "heard": echoes})


def _encode(said: dict[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _checked(said: dict[str, Any]) -> dict[str, Any]:
    """Return a beat after checking its fields.

    Raises:
        NotAMessage: a field is invalid.
    """
    tags = all(is_tag(said.get(key)) for key in ("session", "boot"))
    if not tags or not is_moment(said.get("clock")) or not isinstance(said.get("heard"), dict):
        raise NotAMessage(
            "a beat must name its session, its boot, its clock and the hosts it has heard"
        )
    return said
