"""Lines of long files, read from any offset and found from the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.files.lines import find_lines, read_lines

PART = 1 << 20  # is read at once
MARK = b'{"record": "mark"'


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "none")) == []
    assert list(find_lines(tmp_path / "none", MARK)) == []


@pytest.mark.parametrize("behind", [*range(PART - 22, PART + 3), 0, 5, 2 * PART + 7])
def test_a_line_is_found_even_if_it_crosses_the_boundary_between_two_reads(
    tmp_path: Path, behind: int
) -> None:
    path = tmp_path / "alice.jsonl"
    first, second, rest = b"above\n", MARK + b"}\n", b"z" * behind
    path.write_bytes(first + second + MARK + b"}\n" + b"not " + second + rest)
    found = list(find_lines(path, MARK))
    assert found == [len(first + second), len(first)], "the last first, and each once"
    assert next(read_lines(path, found[0])) == MARK + b"}"


def test_lines_are_read_from_an_offset_on(tmp_path: Path) -> None:
    path = tmp_path / "alice.jsonl"
    path.write_bytes(b"one\n" + b"x" * 3 * PART + b"\nthree")
    assert [len(line) for line in read_lines(path)] == [3, 3 * PART, 5]
    assert [len(line) for line in read_lines(path, 4)] == [3 * PART, 5]
