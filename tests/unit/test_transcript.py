"""A conversation on disk: whole records in order, whatever a killed writer left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teamd.errors import StoreError
from teamd.store.transcript import Transcript, parse
from tests.children import said

if TYPE_CHECKING:
    from pathlib import Path

FILLS = """
import sys
from pathlib import Path
from teamd.errors import StoreError
from teamd.store.transcript import Transcript
transcript = Transcript(Path(sys.argv[1]))
transcript.append({"n": 1})
try:
    transcript.append({"n": 2}, {"n": 3, "text": "x" * 5000})
except StoreError as error:
    print(error)
"""


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "bob.jsonl")


def test_records_come_back_in_order(transcript: Transcript) -> None:
    assert list(transcript.records()) == []
    transcript.append({"record": "user", "text": "line\nline\u2028\x85\r"}, {"record": "turn"})
    transcript.append({"record": "end", "odd": "\ud800"})
    first, *others = transcript.records()
    assert first == {"record": "user", "text": "line\nline\u2028\x85\r"}
    assert others == [{"record": "turn"}, {"record": "end", "odd": "?"}]


def test_only_what_was_torn_is_passed_over(transcript: Transcript) -> None:
    transcript.append({"n": 1}, {"n": 2})
    whole = transcript.path.read_bytes()
    transcript.path.write_bytes(whole[:-3])
    transcript.append({"n": 3})
    assert list(transcript.records()) == [{"n": 1}, {"n": 3}]
    assert transcript.path.read_bytes().startswith(whole[:-3] + b"\n")


def test_records_that_belong_together_are_written_together(tmp_path: Path) -> None:
    """A full disk must not leave a reply without the mail that it answers."""
    path = tmp_path / "bob.jsonl"
    assert said(FILLS, path, file_bytes=1000).startswith("no space left")
    assert path.read_bytes() == b'{"n": 1}\n'


def test_a_place_that_takes_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has gone"):
        Transcript(tmp_path / "missing" / "bob.jsonl").append({"n": 1})


@settings(deadline=None)
@given(st.binary())
@example(b"[" * 100_000)
@example(b"\0" * 100)
@example(b"[]")
@example(b"9" * 100_000)
def test_any_line_is_a_record_or_none(line: bytes) -> None:
    """A power cut may leave anything in the last block."""
    record = parse(line)
    assert record is None or isinstance(record, dict)
