"""Memory that a backlog used is returned to the system once the process is idle."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from teamd.postman.spare_memory import SpareMemory

MANY, SIZE = 4000, 10_000
STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * 4096


@pytest.mark.skipif(
    getattr(ctypes.CDLL(None), "malloc_trim", None) is None, reason="it is glibc that keeps it"
)
def test_memory_used_by_a_backlog_is_released_when_the_process_is_idle() -> None:
    spare = SpareMemory()
    spare.rest()  # releases earlier garbage
    blocks = [bytearray(SIZE) for _ in range(MANY)]
    pins = blocks[::100]  # so that the heap cannot just shrink at its end
    full = resident_bytes()
    del blocks
    spare.use(1000)
    spare.rest()
    assert full - resident_bytes() < MANY * SIZE / 4, "little has crossed: it is not worth it"
    spare.use(MANY * SIZE)
    spare.rest()
    assert full - resident_bytes() > MANY * SIZE / 2
    assert len(pins) == MANY // 100
