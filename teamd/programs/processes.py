"""Processes of others: who is below one, in which namespace, and what memory they take."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.programs import reaper

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Return whether processes take more memory than that; what they share counts once."""
    return sum(map(_resident_bytes, pids)) > limit and sum(map(_own_bytes, pids)) > limit


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process, what it shares included; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 -- ten times a second
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _own_bytes(pid: int) -> int:
    """Return the memory of a process, its part of what it shares (`Pss`); 0 for one that is gone.

    The kernel walks all of it for that, so only who has much is asked.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return _resident_bytes(pid)
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), 0)
