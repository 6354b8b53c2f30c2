"""Where a stopped process is, told from outside: by its open files and by what is on disk."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    from teamd.store.paths import TeamPaths
    from tests.process.campaign.streams import Streams

_TAIL_BYTES: Final = 1 << 16


class Place(StrEnum):
    """What a process was in the middle of."""

    TAKE = "inside take"
    DELIVERED = "between transcript and done"
    STREAM = "in a model's stream"
    TOOL = "in a tool"
    ROSTER = "in a roster write"
    CONTROL = "at the control inbox"
    SEND = "inside send"
    ELSEWHERE = "elsewhere"


def of_teammate(paths: TeamPaths, name: str, pid: int, streams: Streams) -> Place:
    """Where a teammate's process is; only what this very process did counts."""
    last = _last_record(paths.transcript(name))
    mine = last.get("time", 0.0) > _begun(pid)
    taken = _content(paths.taken(name))
    if mine and last.get("record") == "mail" and last["messages"][-1]["id"].encode() in taken:
        return Place.DELIVERED
    holds = paths.inbox(name) in _open_files(pid)
    if holds and (taken or paths.has_mail(name)):
        return Place.TAKE
    if streams.open_for(name):
        return Place.STREAM
    if mine and last.get("record") == "started":
        return Place.TOOL
    return Place.ELSEWHERE


def of_supervisor(paths: TeamPaths, pid: int) -> Place:
    """Where the supervisor is; it alone writes the roster."""
    held = _open_files(pid)
    if paths.config_lock in held:
        return Place.ROSTER
    return Place.CONTROL if paths.inbox("teamd") in held else Place.ELSEWHERE


def of_sender(paths: TeamPaths, pid: int) -> Place:
    """Where a program is that sends mail."""
    sends = any(file.parent == paths.inboxes for file in _open_files(pid))
    return Place.SEND if sends else Place.ELSEWHERE


def histogram(hits: Counter[Place]) -> str:
    """The kills by place, a line each."""
    width = max(map(len, Place))
    lines = [f"{place:{width}} {hits[place]:4} {'#' * hits[place]}" for place in Place]
    return "\n".join(lines)


def _open_files(pid: int) -> set[Path]:
    folder = f"/proc/{pid}/fd"
    found = set()
    for fd in os.listdir(folder):
        with suppress(FileNotFoundError):
            found.add(Path(os.readlink(f"{folder}/{fd}")))
    return found


def _begun(pid: int) -> float:
    return psutil.Process(pid).create_time()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _last_record(transcript: Path) -> dict[str, Any]:
    """The last whole record of a transcript; an empty one where there is none."""
    try:
        with transcript.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return {}
    for line in reversed(lines):
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                return record
    return {}
