"""A sync beside other work: it has ended before anybody relies on it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from teamd.errors import StoreError
from teamd.files import locks
from teamd.files.files import SyncAhead
from teamd.transcript.file import Transcript

OLD, MINE, MORE = b"old\n", b"mine\n", b"more\n"


def _descriptors(path: Path) -> int:
    """Count those of one file: of others some may be closed at any moment."""
    found = 0
    for one in Path("/dev/fd").iterdir():
        with suppress(OSError):
            found += one.samefile(path)
    return found


class Disk:
    """A disk that confirms, or fails, once it is let go; it notes what was synced, and how."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.fails = False
        self.synced: list[bytes] = []

    def sync(self, fd: int) -> None:
        """Be `os.fdatasync`."""
        held = os.pread(fd, 100, 0)
        assert self.go.wait(10)
        if self.fails:
            raise OSError(5, "Input/output error")
        self.synced.append(held)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "fdatasync", made.sync)
    return made


@pytest.fixture
def transcript(tmp_path: Path, disk: Disk) -> Transcript:
    """One with a line that is not on the disk yet, and is being synced."""
    path = tmp_path / "bob.jsonl"
    path.write_bytes(OLD)
    made = Transcript(path)
    made.append_lines(MINE, durable=False)
    made.settle_ahead()
    assert disk.synced == []
    return made


def test_nobody_goes_on_before_the_sync_has_ended(transcript: Transcript, disk: Disk) -> None:
    done: list[list[bytes]] = []

    def settle() -> None:
        transcript.settle()
        done.append(list(disk.synced))

    settling = threading.Thread(target=settle)
    settling.start()
    assert not done
    disk.go.set()
    settling.join()
    assert done == [[OLD + MINE]], "it was synced by then, and once"


def test_what_came_behind_its_begin_is_synced_as_well(transcript: Transcript, disk: Disk) -> None:
    disk.go.set()
    transcript.append_lines(MORE, durable=False)
    transcript.settle()
    assert disk.synced == [OLD + MINE, OLD + MINE + MORE]


def test_a_second_begin_adds_nothing(transcript: Transcript, disk: Disk) -> None:
    transcript.settle_ahead()
    disk.go.set()
    transcript.settle()
    transcript.settle()
    transcript.settle_ahead()
    transcript.settle()
    assert disk.synced == [OLD + MINE]


@pytest.mark.parametrize("more", [True, False])
def test_what_the_disk_did_not_keep_is_taken_back_and_nothing_follows(
    transcript: Transcript, disk: Disk, more: bool
) -> None:
    disk.fails = True
    disk.go.set()

    def add() -> None:
        transcript.append_lines(MORE, durable=False)

    attempts = [add if more else transcript.settle, transcript.settle, add]
    for attempt in attempts:
        with pytest.raises(StoreError, match="Input/output error"):
            attempt()
        disk.fails = False
    transcript.settle_ahead()
    assert transcript.path.read_bytes() == OLD
    assert disk.synced == []


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_what_stands_under_the_name_by_then_is_left_alone(
    transcript: Transcript, disk: Disk, how: str
) -> None:
    """A person may have moved the team, and another one stands there."""
    transcript.path.unlink()
    if how == "replaced":
        transcript.path.write_bytes(b"another's, and longer\n")
    disk.fails = True
    disk.go.set()
    with pytest.raises(StoreError, match="Input/output error"):
        transcript.settle()
    assert transcript.path.exists() == (how == "replaced")
    if how == "replaced":
        assert transcript.path.read_bytes() == b"another's, and longer\n"


def test_it_is_taken_back_though_somebody_has_the_lock(transcript: Transcript, disk: Disk) -> None:
    """The next process would believe what stands there."""
    disk.fails = True
    disk.go.set()
    with locks.locked(transcript.path), pytest.raises(StoreError, match="Input/output error"):
        transcript.settle()
    assert transcript.path.read_bytes() == OLD


def test_a_file_that_somebody_has_cut_is_not_lengthened(transcript: Transcript, disk: Disk) -> None:
    os.truncate(transcript.path, 1)
    disk.fails = True
    disk.go.set()
    with pytest.raises(StoreError, match="Input/output error"):
        transcript.settle()
    assert transcript.path.read_bytes() == OLD[:1]


def test_a_sync_that_never_was_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise MemoryError(fd)

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    fd = os.open(tmp_path / "one", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match="Input/output error"):
        SyncAhead(fd, safe=0).wait()
    os.close(fd)


def test_the_file_may_be_closed_meanwhile(transcript: Transcript, disk: Disk) -> None:
    """Its descriptor's number may be another file's by then."""
    transcript._file.close()
    disk.go.set()
    transcript.settle()
    assert disk.synced == [OLD + MINE]


def test_a_new_files_name_comes_first(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in any other settling: without its name there is no file."""
    names: list[list[bytes]] = []
    monkeypatch.setattr(os, "fsync", lambda _: names.append(list(disk.synced)))
    disk.go.set()
    new = Transcript(tmp_path / "new.jsonl")
    new.append_lines(MINE, durable=False)
    new.settle_ahead()
    new.settle()
    new.append_lines(MORE, durable=False)
    new.settle_ahead()
    new.settle()
    assert names == [[]], "the folder, once, and before the file"
    assert disk.synced == [MINE, MINE + MORE]


def test_a_name_that_the_disk_did_not_keep_is_none(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error", fd)

    monkeypatch.setattr(os, "fsync", fail)
    disk.go.set()
    new = Transcript(tmp_path / "new.jsonl")
    new.append_lines(MINE, durable=False)
    new.settle_ahead()
    with pytest.raises(StoreError, match="Input/output error"):
        new.settle()
    assert new.path.read_bytes() == b""


def test_where_there_are_no_threads_it_is_done_later(
    transcript: Transcript, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.go.set()
    transcript.settle()

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    transcript.append_lines(MORE, durable=False)
    before = _descriptors(transcript.path)
    transcript.settle_ahead()
    assert _descriptors(transcript.path) == before, "no descriptor is left"
    transcript.settle()
    assert disk.synced == [OLD + MINE, OLD + MINE + MORE]


@pytest.fixture
def behind(tmp_path: Path, disk: Disk) -> Iterator[SyncAhead]:
    """The sync of a marker behind mail without ids, in a file that others write to as well."""
    fd = os.open(tmp_path / "inbox", os.O_RDWR | os.O_CREAT)
    os.write(fd, OLD)
    yield SyncAhead(fd, safe=None)
    disk.go.set()
    os.close(fd)


@pytest.mark.parametrize("more", [True, False])
def test_records_that_are_held_back_are_written_behind_a_sync(
    tmp_path: Path, disk: Disk, behind: SyncAhead, more: bool
) -> None:
    """What they hold has another name, if a power cut takes the marker."""
    bob = Transcript(tmp_path / "bob.jsonl")
    bob.path.write_bytes(OLD)
    there = bob.hold_lines(MINE, behind)
    bob.settle_ahead()
    assert bob.path.read_bytes() == OLD
    written: list[tuple[bytes, list[bytes]]] = []

    def go_on() -> None:
        if more:
            bob.append_lines(MORE, durable=False)
        bob.settle()
        written.append((bob.path.read_bytes(), list(disk.synced)))

    going_on = threading.Thread(target=go_on)
    going_on.start()
    assert bob.path.read_bytes() == OLD
    disk.go.set()
    going_on.join()
    whole = OLD + MINE + (MORE if more else b"")
    assert written == [(whole, [OLD, whole])]
    assert whole[there.start : there.stop] == MINE


def test_what_is_held_back_twice_is_written_in_order(
    tmp_path: Path, disk: Disk, behind: SyncAhead
) -> None:
    bob = Transcript(tmp_path / "bob.jsonl")
    disk.go.set()
    bob.hold_lines(OLD, behind)
    assert bob.hold_lines(MINE, behind) == range(len(OLD), len(OLD + MINE))
    bob.settle()
    assert bob.path.read_bytes() == OLD + MINE


def test_nothing_is_written_behind_a_sync_that_has_failed(
    tmp_path: Path, disk: Disk, behind: SyncAhead
) -> None:
    """Nor anything later: whoever holds records back goes by them already."""
    disk.fails = True
    disk.go.set()
    bob = Transcript(tmp_path / "bob.jsonl")
    bob.path.write_bytes(OLD)
    bob.hold_lines(MINE, behind)
    for _ in range(2):
        with pytest.raises(StoreError, match="Input/output error"):
            bob.settle()
        disk.fails = False
    with pytest.raises(StoreError, match="Input/output error"):
        bob.append_lines(MORE)
    assert bob.path.read_bytes() == OLD
    assert (tmp_path / "inbox").read_bytes() == OLD, "others may have written there meanwhile"


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "one"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for _ in range(20):
        SyncAhead(fd, safe=0).wait()
    assert _descriptors(path) == 1
    os.close(fd)
