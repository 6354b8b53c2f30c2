"""A conversation on disk: whole records in order, whatever a killed writer left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teamd.errors import StoreError
from teamd.transcript.file import Transcript, decode, parse
from teamd.transcript.records import NoteAdded, TaskBegun, TurnEnded
from tests.children import said

FILLS = """
import sys
import os
from pathlib import Path
from teamd.errors import StoreError
from teamd.transcript.file import Transcript
from teamd.transcript.records import NoteAdded
transcript = Transcript(Path(sys.argv[1]))
transcript.append(NoteAdded(text="1"))
try:
    transcript.append(NoteAdded(text="2"), NoteAdded(text="x" * 5000))
except StoreError as error:
    print(error)
"""


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "bob.jsonl")


def test_records_come_back_in_order(transcript: Transcript) -> None:
    assert list(transcript.records()) == []
    transcript.append(NoteAdded(text="line\nline\u2028\x85\r"), TaskBegun())
    transcript.append(TurnEnded(text="\ud800"))
    first, *others = transcript.records()
    assert first == NoteAdded(text="line\nline\u2028\x85\r")
    assert others == [TaskBegun(), TurnEnded(text="?")]


def test_only_torn_records_are_skipped(transcript: Transcript) -> None:
    transcript.append(NoteAdded(text="1"), NoteAdded(text="2"))
    whole = transcript.path.read_bytes()
    transcript.path.write_bytes(whole[:-3])
    transcript.append(NoteAdded(text="3"))
    assert list(transcript.records()) == [NoteAdded(text="1"), NoteAdded(text="3")]
    assert transcript.path.read_bytes().startswith(whole[:-3] + b"\n")


def test_records_that_belong_together_are_written_together(tmp_path: Path) -> None:
    """A full disk must not leave a reply without the mail that it answers."""
    path = tmp_path / "bob.jsonl"
    assert said(FILLS, path, file_bytes=1000).startswith("no space left")
    assert path.read_bytes() == NoteAdded(text="1").encode()


def test_a_path_that_cannot_be_written_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has gone"):
        Transcript(tmp_path / "missing" / "bob.jsonl").append(NoteAdded())


@settings(deadline=None)
@given(st.binary())
@example(b"[" * 100_000)
@example(b"\0" * 100)
@example(b"[]")
@example(b"9" * 100_000)
def test_any_line_is_a_record_or_is_skipped(line: bytes) -> None:
    """A power cut may leave anything in the last block."""
    found = parse(line)
    assert found is None or isinstance(found, dict)
    assert (decode(line) is None) == (found is None)


def test_nothing_is_appended_after_records_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has seen the lost records; only a process that reads the file again may append."""
    bob = Transcript(tmp_path / "bob.jsonl")
    bob.append_lines(b"old\n")
    for line in (b"mine\n", b"mine as well\n"):
        bob.append_lines(line, durable=False)

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error", fd)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            bob.settle()
    for attempt in (bob.settle, lambda: bob.append_lines(b"more\n")):
        with pytest.raises(StoreError, match="Input/output error"):
            attempt()
    assert bob.path.read_bytes() == b"old\n"
