"""Huge pages: which memory they are for, and that what stands there stays as it is."""

from __future__ import annotations

from teamd.huge_pages import find_places, use_huge_pages

MIB = 1 << 20
MAPS = """\
00400000-00c00000 r-xp 00000000 08:01 42                                 /usr/bin/python3
00c00000-01200000 rw-p 00000000 08:01 42                                 /usr/bin/python3
01300000-01a00000 rw-p 00000000 00:00 0                                  [heap]
01c00000-02000000 r--p 00000000 00:00 0
02100000-02300000 rw-p 00000000 00:00 0
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
"""


def test_only_whole_pages_of_a_process_s_own_memory_are_put_together() -> None:
    found = list(find_places(MAPS))
    assert found == [0x1400000, 0x1600000, 0x1800000, 0x7F0000000000]


def test_what_stands_in_memory_stays_as_it_is() -> None:
    content = bytes(range(256)) * (8 * MIB // 256)
    kept = bytearray(content)
    use_huge_pages()
    assert kept == content
