"""Long outputs are cut to a bounded size, with a note about the missing part."""

from __future__ import annotations

import re
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from teamd.tools.output import Clip

CUT = re.compile("\n\\[… (\\d+) bytes cut …\\]\n")


def clipped(chunks: list[bytes], limit: int) -> str:
    clip = Clip(limit)
    for chunk in chunks:
        clip.take(chunk)
    return clip.text()


@given(st.lists(st.binary()), st.integers(min_value=0, max_value=30))
def test_head_and_tail_are_kept_and_the_rest_is_counted(chunks: list[bytes], limit: int) -> None:
    """However the bytes arrive and wherever the cut falls, even within a character."""
    whole = b"".join(chunks).decode(errors="replace").replace("\0", "\ufffd")
    text = clipped(chunks, limit)
    if len(whole.encode()) <= limit:
        assert text == whole
        return
    head, count, tail = CUT.split(text)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len((head + tail).encode()) + int(count) == len(whole.encode())
    assert limit - 6 <= len((head + tail).encode()) <= limit


def test_a_character_may_be_split_between_two_chunks() -> None:
    assert clipped([b"\xc3", b"\xa4"], 10) == "ä"


def test_memory_is_bounded() -> None:
    """`yes` writes gigabytes within its time limit."""
    clip = Clip(1000)
    chunk = b"y\n" * 32768
    tracemalloc.start()
    try:
        for _ in range(2000):
            clip.take(chunk)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert f"{2000 * 65536 - 1000} bytes cut" in clip.text()
