"""Presence: which hosts are there, who is on them, and how late it is there at most.

Each host publishes a short beat every two seconds, and its roster whenever that changes. A beat
says which roster of each other host has come, so whoever lacks one gets it again: nothing is asked
for, and a broker that forgets everything is enough. Each beat is echoed by the next ones of those
who heard it, which tells the round trip, and bounds the far clock from above.

Here are no sockets, no files and no clocks: times come as arguments, those called `now` by
`clocks.elapsed`, those called `moment` in seconds since the epoch.
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
SILENT_SECONDS: Final = 6.0  # without a beat: unreachable
_DRIFT: Final = 0.001  # between two clocks at the most, per second; the kernel slews by half of it
_MOST_SESSIONS: Final = 8  # of a host, that are remembered
_RETURNS: Final = 3  # of a session that was gone: a broker may repeat a frame now and then
_MOST_HOSTS: Final = 1000  # a broker that invents names fills no memory
_BEAT, _ROSTER = "beat", "roster"


@dataclass(slots=True)
class FarClock:
    """The clock of another host: how late it is there at the most.

    A beat of this host that the other one has heard was sent before its answer was: so the far
    clock cannot be further ahead of the own one than between those two. How long the answer took
    to come here does not matter. That is why a request in a frame that was held back is known as
    late, however wrong the clocks are.
    """

    _ahead: float | None = None  # of the own clock
    _noted: float = 0.0

    def note(self, theirs: float, sent: float, held: float, now: float) -> None:
        """Take note of a beat that came.

        Args:
            theirs: when it was sent, by their clock.
            sent: when the beat of this host was sent that it echoes, by the own clock.
            held: the seconds from then to `theirs` that it lay there, by their clock.
            now: by the own clock.
        """
        known = self._ahead_at_most(now)
        # The beat may have been on its way for long: the clocks have drifted since it was sent.
        ahead = theirs - sent - held + _DRIFT * (now - sent)
        self._ahead = ahead if known is None else min(ahead, known)
        self._noted = now

    def latest(self, now: float) -> float | None:
        """Return what the far clock shows at the most; `None` where that is not known."""
        ahead = self._ahead_at_most(now)
        return None if ahead is None else now + ahead

    def _ahead_at_most(self, now: float) -> float | None:
        return None if self._ahead is None else self._ahead + _DRIFT * (now - self._noted)


@dataclass(slots=True)
class Peer:
    """Another host, as far as its beats tell.

    Attributes:
        heard: when its last beat came, by the own clock.
        moment: the same in seconds since the epoch, by the own clock as well.
        boot: identifies the boot of its machine.
        roster: the version of its members that has come; empty for none.
        round_trip: seconds to it and back; `None` where it has not heard of this host yet.
        answered: when it said last that it hears this host, or could begin to, by the own clock.
    """

    heard: float
    moment: float
    boot: str
    session: str
    roster: str = ""
    round_trip: float | None = None
    answered: float = field(init=False)
    clock: FarClock = field(default_factory=FarClock)
    _own_roster: str = ""  # the version of the own roster that it has
    _sent: float = 0.0  # its last beat, by its clock
    _former: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_SESSIONS))
    _returns: int = 0

    def __post_init__(self) -> None:
        self.answered = self.heard

    def reachable(self, now: float) -> bool:
        """Return whether it was heard of late."""
        return now - self.heard < SILENT_SECONDS

    def answers(self, now: float) -> bool:
        """Return whether it was heard of late, and hears this host: mail to it can move."""
        return self.reachable(now) and now - self.answered < SILENT_SECONDS

    @property
    def is_double(self) -> bool:
        """Whether two machines say that they are this host: a session that ended never returns."""
        return self._returns >= _RETURNS

    def lacks(self, version: str) -> bool:
        """Return whether it has not told that it has this version of the own roster."""
        return self._own_roster != version

    def echo(self, now: float) -> list[Any]:
        """Return what it is told of its own last beat: its session, its clock, held how long."""
        return [self.roster, self.session, self._sent, round(now - self.heard, 6)]

    def note(self, beat: dict[str, Any], own: tuple[str, str], now: float) -> None:
        """Take note of a beat that came now.

        Args:
            beat: what it says.
            own: name and session of this host.
            now: by the own clock.
        """
        if beat["boot"] != self.boot:
            self.boot, self.clock = beat["boot"], FarClock()
        if beat["session"] != self.session:
            self._returns += beat["session"] in self._former
            self._former.append(self.session)
        self.session, self._sent = beat["session"], beat["clock"]
        echo = beat["heard"].get(own[0])
        if not isinstance(echo, list) or len(echo) != 4 or echo[1] != own[1]:  # noqa: PLR2004 -- see `echo`
            self._own_roster = ""  # it has not heard of this session
            return
        version, _, sent, held = echo
        if is_moment(sent) and is_moment(held) and isinstance(version, str) and sent + held <= now:
            self._own_roster, self.answered = version, now
            self.round_trip = now - sent - held
            self.clock.note(self._sent, sent, held, now)


@dataclass(slots=True)
class HostPresence:
    """What this host tells of itself, and what it knows of others.

    Attributes:
        name: of this host.
        boot: identifies the boot of this machine.
        roster: the members of this host.
    """

    name: str
    boot: str
    roster: FarRoster
    peers: dict[str, Peer] = field(default_factory=dict)
    _session: str = field(default_factory=lambda: os.urandom(8).hex())
    _echoes: int = 0  # beats of another machine with the own name
    _told: str = ""  # the version that was published last
    _told_at: float = 0.0
    _next_beat: float = 0.0

    def connected(self, now: float) -> None:
        """Begin anew: whoever is there hears of this host at once."""
        self._told, self._next_beat = "", now
        for peer in self.peers.values():
            peer.answered = now  # it could not until now

    def due_seconds(self, now: float) -> float:
        """Return the seconds until there is something to publish."""
        return 0.0 if self._told != self.roster.version else max(0.0, self._next_beat - now)

    def due(self, now: float, moment: float) -> Iterator[bytes]:
        """Yield what is to be published now."""
        beat = now >= self._next_beat
        heard = beat and now - self._told_at >= BEAT_SECONDS  # who heard of it has said so
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
        """Take note of what another host has published.

        Args:
            host: by the subject, which the broker lets no other host publish.
            payload: as it came.
            now: by the own clock.
            moment: in seconds since the epoch, by the own clock.

        Returns:
            Its roster, if it told one that is new.

        Raises:
            NotAMessage: it is nothing that a host says; nothing has changed.
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
        """Take the roster of a host for one that has not come."""
        if host in self.peers:
            self.peers[host].roster = ""

    def reachable(self, host: str, now: float) -> bool:
        """Return whether a host was heard of late."""
        peer = self.peers.get(host)
        return peer is not None and peer.reachable(now)

    def doubles(self) -> set[str]:
        """Return the names, the own one with them, that two machines have."""
        found = {host for host, peer in self.peers.items() if peer.is_double}
        return found | ({self.name} if self._echoes >= _RETURNS else set())

    def left(self, host: str, boot: str, deadline: float, now: float) -> float | None:
        """Return the own seconds that are surely left until a moment by another host's clock.

        It is `None` where that clock is not known yet: this host has just begun to hear it.

        Args:
            host: whose clock it is.
            boot: in which boot of its machine.
            deadline: by its clock `elapsed`.
            now: by the own one.
        """
        peer = self.peers.get(host)
        if peer is not None and peer.boot != boot:
            return 0.0
        latest = None if peer is None else peer.clock.latest(now)
        # Seconds of the own clock: those of the other one may be shorter.
        return None if latest is None else max(0.0, deadline - latest) / (1 + _DRIFT)

    def _note_beat(self, host: str, beat: dict[str, Any], now: float, moment: float) -> None:
        peer = self.peers.get(host)
        if peer is None:
            if len(self.peers) >= _MOST_HOSTS:
                return
            boot, session = beat["boot"], beat["session"]
            peer = self.peers[host] = Peer(now, moment, boot=boot, session=session)
            self._next_beat = now  # it hears of this host at once
        elif not peer.reachable(now):
            self._next_beat = peer.answered = now  # the same, where it is back
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
    """Return a beat whose fields are what they must be.

    Raises:
        NotAMessage: they are not.
    """
    tags = all(is_tag(said.get(key)) for key in ("session", "boot"))
    if not tags or not is_moment(said.get("clock")) or not isinstance(said.get("heard"), dict):
        raise NotAMessage("a beat names its session, its boot, its clock and whom it has heard")
    return said
