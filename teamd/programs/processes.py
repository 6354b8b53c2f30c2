"""Processes of others: who is below one, in which namespace, and what memory they take."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from teamd.programs import reaper

_MEMORY_FILE: Final = "/memfd:"
_BLOCK_BYTES: Final = 512
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def descendants(first: int) -> list[int]:
    """Return a process and all below it, as far as is seen by now."""
    found = [first]
    for pid in found:  # grows meanwhile
        found += reaper.children(pid)
    return found


def signal_in(pid: int, namespace: str, number: signal.Signals) -> None:
    """Signal a process if it is in that namespace: its number may be another's by now."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if namespace and namespace_of(pid) == namespace:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)


def namespace_of(pid: int) -> str:
    """Return what names the process namespace of a process; empty for one that is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 -- it names no file
    except OSError:
        return ""


def take_more_than(limit: int, pids: Sequence[int]) -> bool:
    """Return whether processes take more memory than that; what they share counts once.

    Memory files that nobody maps count as well. Shared memory of System V that nobody has attached,
    and file systems in memory of a namespace within, are not seen here.
    """
    files = _memory_files(pids)
    if sum(map(_resident_bytes, pids)) + files <= limit:
        return False
    own, shared = map(sum, zip(*map(_own_bytes, pids), strict=True))
    return own + max(0, files - shared) > limit


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process, what it shares included; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 -- ten times a second
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _own_bytes(pid: int) -> tuple[int, int]:
    """Return the memory of a process, its part of what it shares, and how much of that is shared.

    That is `Pss` and `Pss_Shmem` of proc(5). The kernel walks all of it, so only who has much is
    asked.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return _resident_bytes(pid), 0
    kibibytes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
    return kibibytes.get(b"Pss:", 0) << 10, kibibytes.get(b"Pss_Shmem:", 0) << 10


def _memory_files(pids: Sequence[int]) -> int:
    """Return the bytes of files that are in memory only, see memfd_create(2)."""
    found = {}
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):  # closed meanwhile; the others count all the same
                    if os.readlink(entry.path).startswith(_MEMORY_FILE):  # noqa: PTH115 -- many
                        facts = os.stat(entry.path)  # noqa: PTH116 -- many
                        found[facts.st_ino] = facts.st_blocks * _BLOCK_BYTES
    return sum(found.values())
