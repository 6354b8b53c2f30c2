"""Presence: which hosts are reachable, their members, and problems of their folders.

Each host writes a beat into the broker every two seconds, and its roster whenever it changes and
now and then. The broker forgets both after a minute. This module uses no sockets, files or clocks:
times are arguments. Those called `now` are by `clocks.elapsed`.
"""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from teamd.messages import is_moment, is_tag
from teamd.postman.connection import decode_value

BEAT_SECONDS: Final = 2.0
ROSTER_SECONDS: Final = 30.0  # between two writes of an unchanged roster
SILENT_SECONDS: Final = 6.0  # without a beat, after which a host is unreachable
_RETURNS: Final = 3  # reappearances of an ended session
_MOST_SESSIONS: Final = 8  # remembered sessions of a host
DOUBLE: Final = (
    "two hosts have that name, and mail to it comes to one of them or to both; stop one, and "
    "join it with another token, which `teamctl hosts add NAME` writes"
)
_OLD_COPY: Final = "it came back with an old copy of its folder, and what it sent since is unknown"
_NEW_FOLDER: Final = (
    "it has lost its folder: what waited there to be sent, and had not arrived, is gone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One sign of life.

    Attributes:
        session: a random id of the postman's process.
        folder: a random id of the host's folder.
        former: the id that the folder had before it turned out to be an old copy; empty for none.
        trip: seconds from the host to the broker and back.
    """

    session: str
    folder: str
    former: str = ""
    trip: float = 0.0

    def encode(self) -> bytes:
        said = {"session": self.session, "folder": self.folder, "former": self.former}
        return json.dumps({**said, "trip": round(self.trip, 6)}).encode()

    @classmethod
    def decode(cls, value: bytes) -> Beat | None:
        """Decode an untrusted beat; `None` if it is invalid."""
        match decode_value(value):
            case {"session": session, "folder": folder, "former": former, "trip": trip}:
                tags = is_tag(session) and is_tag(folder) and (former == "" or is_tag(former))
                if tags and is_moment(trip):
                    return cls(session=session, folder=folder, former=former, trip=trip)
        return None


def new_tag() -> str:
    """Return a random id."""
    return os.urandom(8).hex()


@dataclass(slots=True)
class Peer:
    """A host, possibly this one, as known from its beats."""

    beat: Beat
    heard: float
    _former: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_SESSIONS))
    _returns: int = 0

    def is_reachable(self, now: float) -> bool:
        return now - self.heard < SILENT_SECONDS

    def hear(self, beat: Beat, now: float) -> str | None:
        """Process a beat that has just arrived; return a problem that it shows, if any."""
        before, self.beat, self.heard = self.beat, beat, now
        if beat.session != before.session:
            returns = beat.session in self._former
            self._former.append(before.session)
            if returns:
                self._returns += 1
                return DOUBLE if self._returns == _RETURNS else None
        return explain_folder(before.folder, beat)


def explain_folder(known: str, beat: Beat) -> str | None:
    """Return the problem if a host's folder is not the known one any more, or `None`."""
    if not known or beat.folder == known:
        return None
    return _OLD_COPY if beat.former == known else _NEW_FOLDER


def folder_of(facts: Any) -> str:
    """Return the folder in a stored fact, or an empty string."""
    return facts if is_tag(facts) else ""
