"""Following a file: every line once and whole, also through rotation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamctl.tail import GrowingFile, end_of, lines_back


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "alice.log"


def test_a_file_that_does_not_exist_yet_has_no_lines(log: Path) -> None:
    growing = GrowingFile(log)
    assert list(growing.lines()) == []
    log.write_bytes(b"one\n")
    assert list(growing.lines()) == [b"one"]
    growing.close()


def test_a_partial_line_is_not_returned_before_it_is_complete(log: Path) -> None:
    growing = GrowingFile(log)
    log.write_bytes(b"one\ntw")
    assert list(growing.lines()) == [b"one"]
    with log.open("ab") as file:
        file.write(b"o\n")
    assert list(growing.lines()) == [b"two"]
    growing.close()


def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_start(log: Path) -> None:
    growing = GrowingFile(log)
    log.write_bytes(b"one\n")
    assert list(growing.lines()) == [b"one"]
    with log.open("ab") as file:
        file.write(b"two\n")
    log.rename(log.with_suffix(".log.1"))
    log.write_bytes(b"three\n")
    assert list(growing.lines()) == [b"two", b"three"]
    growing.close()


def test_after_a_file_shrinks_the_next_line_is_read_whole(log: Path) -> None:
    """The disk has failed, and the file is back in its last synced state."""
    growing = GrowingFile(log)
    log.write_bytes(b"one\ntwo\nthr")
    assert list(growing.lines()) == [b"one", b"two"]
    with log.open("r+b") as file:
        file.truncate(4)
    assert list(growing.lines()) == []
    with log.open("ab") as file:
        file.write(b"four\n")
    assert list(growing.lines()) == [b"four"]
    growing.close()


@pytest.mark.timeout(20)  # a copy of the whole line for each part of it would take minutes
def test_a_long_line_is_read_in_linear_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"short\n" + b"x" * 50_000_000)
    growing = GrowingFile(log)
    assert list(growing.lines()) == [b"short"]
    with log.open("ab") as file:
        file.write(b"y\nlast\n")
    long, last = growing.lines()
    assert (len(long), long[-2:], last) == (50_000_001, b"xy", b"last")
    with log.open("ab") as file:
        file.write(b"more\n")
    assert list(growing.lines()) == [b"more"]
    growing.close()


@given(st.lists(st.binary(max_size=9).filter(lambda one: b"\n" not in one)), st.binary(max_size=3))
def test_lines_are_read_from_the_last_to_the_first(
    tmp_path_factory: pytest.TempPathFactory, there: list[bytes], torn: bytes
) -> None:
    """An unfinished line is left out, and the offset of each line is yielded."""
    torn = torn.replace(b"\n", b"")
    path = tmp_path_factory.mktemp("back") / "log"
    path.write_bytes(b"".join(one + b"\n" for one in there) + torn)
    found = list(lines_back(path))
    assert [line for _, line in reversed(found)] == there
    content = path.read_bytes()
    assert all(content[place:].startswith(line + b"\n") for place, line in found)
    assert end_of(path) == len(content) - len(torn)


def test_lines_longer_than_one_read_are_returned_whole(log: Path) -> None:
    there = [b"a" * 700_000, b"b", b"c" * 600_000]
    log.write_bytes(b"\n".join(there) + b"\n")
    assert [line for _, line in lines_back(log)] == there[::-1]


def test_reading_may_begin_at_a_later_line(log: Path) -> None:
    log.write_bytes(b"one\ntwo\n")
    growing = GrowingFile(log, 4)
    assert list(growing.lines()) == [b"two"]
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"three\n")
    assert list(growing.lines()) == [b"three"]
    growing.close()
