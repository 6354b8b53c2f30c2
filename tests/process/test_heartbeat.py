"""A heartbeat is read whole while another process writes it."""

from __future__ import annotations

import os
import signal

from teamd import clocks
from teamd.team.heartbeat import Heartbeat, HeartbeatMemory

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


def test_many_share_a_mapping_and_none_writes_what_is_another_s() -> None:
    memory = HeartbeatMemory()
    made = [memory.make() for _ in range(1000)]
    pid = os.fork()
    if pid == 0:
        for heartbeat in made[::2]:
            heartbeat.rest()
        os._exit(0)
    os.waitpid(pid, 0)
    assert [heartbeat.resting for heartbeat in made] == [True, False] * 500
