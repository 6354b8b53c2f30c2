"""A heartbeat is never read torn while another process writes it."""

from __future__ import annotations

import os
import signal

from teamd import clocks
from teamd.team.heartbeat import Heartbeat

_LOOKS = 100_000


def test_a_process_that_sends_heartbeats_is_never_considered_silent() -> None:
    """A half-written time would be long ago, and its process would be killed as stuck."""
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
