"""A cached file is read again only after it has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from teamd.files.file_stamp import remember
from tests.waiting import wait_until


class Reader:
    """Reads a file and counts the reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.reads = 0

    def read(self) -> str | None:
        self.reads += 1
        return self._path.read_text() if self._path.exists() else None


def settle(known: Callable[[], str | None], reader: Reader) -> None:
    """Wait until `known` answers without reading the file."""

    def is_known() -> bool:
        before = reader.reads
        known()
        return reader.reads == before

    wait_until(is_known, what="it is known")


def test_an_unchanged_file_is_not_read_again_and_every_change_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    reader = Reader(path)
    known = remember(path, reader.read)
    assert known() is None
    for text in ("one", "two", "one"):
        path.write_text(text)
        assert known() == text
        settle(known, reader)
        assert known() == text
    path.unlink()
    assert known() is None


def test_a_file_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    """A second change within one tick of the file system's clock does not change its times."""
    path = tmp_path / "file"
    path.write_text("one")
    reader = Reader(path)
    known = remember(path, reader.read)
    known()
    path.write_text("two")
    known()
    known()
    assert reader.reads == 3
