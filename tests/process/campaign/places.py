"""Finds the place of a stopped process from outside, by its open files and the disk contents."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import psutil

from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.messages import LEAD, USER
from tests.shells import links
from tests.strict.asked import Asked
from tests.strict.exchange import Exchange, Plan
from tests.strict.faults import Fault
from tests.strict.wire import Wire

_PAUSE_SECONDS: Final = 0.003  # between two events of a stream


class Streams(Plan):
    """Sends every answer slowly and tracks the open streams."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, _Drip] = {}
        self._guard = threading.Lock()

    def take(self, asked: Asked) -> Fault | None:
        """Return the planned fault, or a slow answer."""
        return super().take(asked) or _Drip(self, asked.name)

    def open_for(self, name: str) -> bool:
        """Return whether a teammate is receiving an answer."""
        with self._guard:
            return name in self._open

    def begin(self, drip: _Drip) -> None:
        """Record that an answer has started."""
        with self._guard:
            self._open[drip.name] = drip

    def end(self, drip: _Drip) -> None:
        """Record that an answer has ended or lost its reader.

        A later answer of the name stays open.
        """
        with self._guard:
            if self._open.get(drip.name) is drip:
                del self._open[drip.name]

    def forget(self, name: str) -> None:
        """Forget the stream of a killed teammate: nothing reads the rest of it."""
        with self._guard:
            self._open.pop(name, None)


@dataclass(frozen=True, eq=False)
class _Drip:
    streams: Streams
    name: str

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send the model's own answer, one event at a time."""
        events = exchange.events()
        wire.start()
        try:
            for data in events:
                wire.send(data)
                self.streams.begin(self)
                time.sleep(_PAUSE_SECONDS)
        finally:
            self.streams.end(self)
        wire.finish()


_TAIL_BYTES: Final = 1 << 14


class Place(StrEnum):
    """The operation that a process is in."""

    TAKE = "inside take"
    DELIVERED = "between transcript and done"
    STREAM = "in a model's stream"
    TOOL = "in a tool"
    SENT = "between a tool's send and its result"
    ROSTER = "in a roster write"
    CONTROL = "at the control inbox"
    SEND = "inside send"
    DRAIN = "inside the person's drain"
    START = "between a supervisor's claim and ready"
    BOTH = "in a tool, with its supervisor"
    POST_INBOX = "postman at an inbox"
    POST_CURSOR = "postman at a cursor of what came"
    ELSEWHERE = "elsewhere"


def of_teammate(paths: TeamPaths, name: str, pid: int, streams: Streams) -> Place:
    """Return the place of a teammate's process, judged only by records of this very process."""
    records = _last_records(paths.transcript(name))
    last = records[0] if records else {}
    mine = last.get("time", 0.0) > _begun(pid)
    taken = _content(paths.taken(name))
    in_hand = taken + _content(paths.inbox(name)) if taken else b""
    if mine and last.get("record") == "mail" and last["messages"][-1]["id"].encode() in in_hand:
        return Place.DELIVERED
    held = set(links(pid).values())
    # A process without mail takes none. The file that it writes aside is mail of any origin.
    mail = taken or paths.has_mail(name) or any(file.suffix == ".tmp" for file in held)
    if paths.inbox(name) in held and mail:
        return Place.TAKE
    if streams.open_for(name):
        return Place.STREAM
    if mine and last.get("record") == "started":
        return Place.SENT if _is_sent(paths, records) else Place.TOOL
    return Place.ELSEWHERE


def of_supervisor(paths: TeamPaths, pid: int) -> Place:
    """Return the place of the supervisor, the only process that writes the roster."""
    held = set(links(pid).values())
    if paths.config_lock in held:
        return Place.ROSTER
    return Place.CONTROL if paths.inbox("teamd") in held else Place.ELSEWHERE


def of_starting(paths: TeamPaths, pid: int) -> Place:
    """Return START for a supervisor that has claimed the team but is not ready, else ELSEWHERE."""
    logs = (paths.log("teamd"), paths.logs / "teamd.log.1")  # it may just have been rotated
    ready = b'"event": "ready", "who": "teamd", "pid": %d,' % pid
    is_ready = any(ready in _content(log) for log in logs)
    return Place.ELSEWHERE if is_ready else Place.START


def of_commander(
    paths: TeamPaths, name: str, pid: int, streams: Streams, runaway: list[str]
) -> Place:
    """Return BOTH for a teammate in a tool with a child that has left its group, else ELSEWHERE."""
    place = of_teammate(paths, name, pid, streams)
    under = psutil.Process(pid).children(recursive=True) if place is Place.TOOL else []
    return Place.BOTH if any(_words(process) == runaway for process in under) else Place.ELSEWHERE


def of_reader(paths: TeamPaths, pid: int) -> Place:
    """Return the place of `teamctl inbox`; it drains only if mail exists."""
    files = {paths.inbox(LEAD), paths.taken(LEAD), paths.transcript(USER)}
    drains = set(links(pid).values()) & files and (
        paths.has_mail(LEAD) or _content(paths.taken(LEAD))
    )
    return Place.DRAIN if drains else Place.ELSEWHERE


def of_postman(paths: TeamPaths, pid: int) -> Place:
    """Return the place where the postman writes received mail; see test_postman_kills.

    The postman keeps an inbox open after the write, but does not keep it locked.
    """
    held = set(links(pid).values())
    if HostPlaces(paths).received("").parent in {file.parent for file in held}:
        return Place.POST_CURSOR
    boxes = (file for file in held if file.parent == paths.inboxes)
    locked = any(pid in locks._holders(box) for box in boxes)
    return Place.POST_INBOX if locked else Place.ELSEWHERE


def of_sender(paths: TeamPaths, pid: int) -> Place:
    """Return the place of a program that sends mail."""
    boxes = (paths.inboxes, HostPlaces(paths).outboxes)
    sends = any(file.parent in boxes for file in set(links(pid).values()))
    return Place.SEND if sends else Place.ELSEWHERE


def histogram(hits: Counter[Place]) -> str:
    """Format the number of kills by place, one line each."""
    width = max(map(len, Place))
    lines = [f"{place:{width}} {hits[place]:4} {'#' * hits[place]}" for place in Place]
    return "\n".join(lines)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended meanwhile
        return []


def _begun(pid: int) -> float:
    return psutil.Process(pid).create_time()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _is_sent(paths: TeamPaths, records: list[dict[str, Any]]) -> bool:
    """Return whether the last started call is a `send_message` that has written its message."""
    call = records[0]["tool_use_id"]
    replies = (record["content"] for record in records if record["record"] == "reply")
    last: list[dict[str, Any]] = next(replies, [])  # empty if a long checkpoint hides the reply
    given: dict[str, Any] = next((one["input"] for one in last if one.get("id") == call), {})
    if "to" not in given:
        return False
    return given["content"].encode() in _content(paths.inbox(given["to"]))


def _last_records(transcript: Path) -> list[dict[str, Any]]:
    found = []
    for line in reversed(_tail(transcript).split(b"\n")):
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read()
    except FileNotFoundError:
        return b""
