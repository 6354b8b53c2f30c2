"""A heartbeat is read whole while another process writes it."""

from __future__ import annotations

import os
import signal

from teamd import clocks
from teamd.heartbeat import Heartbeat

_LOOKS = 100_000


def test_nobody_is_seen_silent_while_it_shows_life() -> None:
    """A half-written moment would be one of long ago, and its process would be ended for it."""
    born = clocks.awake()
    heartbeat = Heartbeat()
    pid = os.fork()
    if pid == 0:
        while True:
            heartbeat.beat()
    try:
        assert min(heartbeat.heard for _ in range(_LOOKS)) >= born
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
