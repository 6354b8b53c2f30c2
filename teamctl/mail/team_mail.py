"""The waiting and the delivered mail of the whole team."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias

from teamctl.tail import GrowingFile
from teamd.errors import StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.mail import trace
from teamd.mail.trace import DeliveryStage
from teamd.messages import Message, is_moment
from teamd.overview.members import approvals_to_look_at, has_ended
from teamd.team.roster import Roster
from teamd.transcript.file import decode
from teamd.transcript.records import Delivered

Key: TypeAlias = tuple[str, str, str, str]
Entry: TypeAlias = dict[str, Any]

MOST_KEPT: Final = 5000  # delivered messages, the newest
LONGEST: Final = 4000  # characters kept of a message
MOST_FOUND: Final = 200
MOST_PAIRS: Final = 200
_MAIL: Final = b'"mail"'
_UNREAD: Final = "is:unread"  # a word of a search: only mail that waits for the person
_SEARCHED: Final = ("id", "from", "to", "type", "summary", "content")


class TeamMail:
    """Follows all conversations and inboxes without locking or taking mail."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._roster = Roster(paths)
        self._approvals = approvals_to_look_at(paths)
        self._growing: dict[str, GrowingFile] = {}
        self._delivered: dict[Key, Entry] = {}
        self._waiting: dict[Key, Entry] = {}
        self._version = 0
        self._lock = threading.Lock()  # reads and searches run in different threads

    def look(self) -> dict[str, int]:
        """Read new mail; return a version that changes with it, and the waiting count."""
        with self._lock:
            # First, so that mail delivered meanwhile is seen twice rather than missed.
            waiting = dict(self._find_waiting())
            fresh = dict(self._find_delivered())
            waiting = {key: one for key, one in waiting.items() if key not in fresh}
            self._version += bool(fresh) or waiting != self._waiting
            self._waiting = waiting
            self._delivered |= fresh
            for key in list(self._delivered)[: max(0, len(self._delivered) - MOST_KEPT)]:
                del self._delivered[key]
            return {"version": self._version, "waiting": len(waiting)}

    def find(self, words: str, name: str = "") -> dict[str, Any]:
        """Return the newest messages that contain all words, and the traffic of all that do.

        The word `is:unread` selects the mail that waits for the person. With a name, only messages
        from or to that member.
        """
        wanted = words.lower().split()
        unread = _UNREAD in wanted
        wanted = [word for word in wanted if word != _UNREAD]
        with self._lock:
            waiting = self._waiting.values()
            every = [*self._delivered.values(), *waiting]
            if unread:
                every = [one for one in waiting if one["unread"]]
        own = [one for one in every if not name or name in (one["from"], one["to"])]
        found = [one for one in own if _holds(one, wanted)]
        found.sort(key=_moment, reverse=True)
        pairs = Counter((one["from"], one["to"]) for one in found)
        traffic = [[*pair, count] for pair, count in pairs.most_common(MOST_PAIRS)]
        return {"messages": found[:MOST_FOUND], "found": len(found), "traffic": traffic}

    def close(self) -> None:
        """Close the conversations."""
        with self._lock:
            for growing in self._growing.values():
                growing.close()
            self._growing = {}

    def _find_waiting(self) -> Iterator[tuple[Key, Entry]]:
        own: tuple[str, ...] = ()
        with suppress(StoreError):  # a damaged roster must not hide the mail
            own = self._roster.read().person_inboxes
        for name in trace.receivers(self._paths):
            for places in trace.under_way(self._paths, name):
                for mail, facts in places:
                    unread = name in own and not self._has_ended(mail)
                    yield _entry(mail, name, facts, unread=unread)

    def _has_ended(self, mail: Message) -> bool:
        with suppress(TeamError):  # a damaged approval must not hide the mail
            return has_ended(self._approvals, mail)
        return False

    def _find_delivered(self) -> Iterator[tuple[Key, Entry]]:
        for path in self._paths.transcripts.glob("*.jsonl"):
            growing = self._growing.setdefault(path.name, GrowingFile(path))
            for line in growing.lines():
                record = decode(line) if _MAIL in line else None  # other long lines are not parsed
                if not isinstance(record, Delivered):
                    continue
                moments = {"taken": record.taken, "delivered": record.time or None}
                for mail in record.messages:
                    facts = {"stage": DeliveryStage.DELIVERED, **moments}
                    yield _entry(mail, mail.to or path.stem, facts)


def _entry(
    mail: Message, to: str, facts: dict[str, Any], *, unread: bool = False
) -> tuple[Key, Entry]:
    content = mail.content
    entry = {
        "id": mail.id,
        "from": mail.sender,
        "to": to,
        "type": mail.type,
        "summary": mail.summary,
        "content": content[:LONGEST],
        "more": max(0, len(content) - LONGEST),
        "sent": float(mail.timestamp) if is_moment(mail.timestamp) else None,
        "stage": str(facts["stage"]),
        "position": facts.get("position"),
        "taken": facts.get("taken"),
        "delivered": facts.get("delivered"),
        "unread": unread,
    }
    name = mail.id or f"line {entry['position']}"  # other programs may omit the id
    return (to, mail.sender, name, content[:LONGEST]), entry


def _holds(entry: Entry, words: list[str]) -> bool:
    text = "\n".join(str(entry[key] or "") for key in _SEARCHED).lower()
    return all(word in text for word in words)


def _moment(entry: Entry) -> float:
    """Return the best known time; undated waiting mail counts as newest."""
    return float(entry["sent"] or entry["delivered"] or entry["taken"] or math.inf)
