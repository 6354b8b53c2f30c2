"""A teammate's activity file: written whole or not at all, and valid only for a live process."""

from __future__ import annotations

import json
import os
from binascii import crc32
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.process_id import Identity
from teamd.team.activity import (
    LONGEST,
    MODEL,
    TOOL,
    Activity,
    ActivityFile,
    Doing,
    Retry,
    read_activity,
    shorten,
)

_ME: Final = Identity.own()
_TEXTS: Final = st.text(max_size=300).map(shorten)
_ROUNDS: Final = 3000


def saying(what: str, cause: str = "busy") -> Activity:
    retry = Retry(attempt=7, attempts=10, cause=cause, next=1711234567.89)
    doing = Doing(kind=TOOL, what=what)
    return Activity(process=_ME, since=1711234567.89, doing=doing, context=0.25, retry=retry)


@given(_TEXTS, _TEXTS)
def test_every_activity_is_decoded_as_encoded_and_has_the_same_size(what: str, cause: str) -> None:
    """Otherwise a shorter text would leave the end of a longer one in the file."""
    said = saying(what, cause)
    assert Activity.decode(said.encode()) == said
    assert len(said.encode()) == len(Activity(process=_ME, since=0.0).encode())


def test_the_longest_encoded_texts_fit() -> None:
    """Each of these characters takes twelve bytes as JSON."""
    worst = shorten("\U0001f600" * 1000)
    assert len(worst) == LONGEST
    assert Activity.decode(saying(worst, worst).encode()) == saying(worst, worst)


def test_the_file_is_json_for_any_program(tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    ActivityFile(path).write(saying("bash pytest -q"))
    content = path.read_bytes()
    document = json.loads(content)
    assert document["doing"] == {"kind": "tool", "what": "bash pytest -q"}
    assert document["pid"] == os.getpid()
    assert int(document["sum"], 16) == crc32(content.split(b", ", 1)[1])


@given(st.integers(0, 2047), st.integers(0, 255))
def test_a_file_with_one_changed_byte_is_ignored(place: int, byte: int) -> None:
    content = bytearray(saying("bash ls").encode())
    before, content[place] = content[place], byte
    assert (Activity.decode(bytes(content)) is None) == (before != byte)


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 2048, b'{"sum": "00000000", '])
def test_a_file_damaged_by_a_power_cut_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ann.json"
    path.write_bytes(content)
    assert read_activity(path) is None


def test_a_link_is_not_read(tmp_path: Path) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "ann.json"
    elsewhere.write_bytes(saying("bash ls").encode())
    path.symlink_to(elsewhere)
    assert read_activity(path) is None


def test_a_failed_write_is_ignored(tmp_path: Path) -> None:
    """A full disk or a missing folder must not end a teammate's work."""
    ActivityFile(tmp_path / "gone" / "ann.json").write(saying("bash ls"))
    link = tmp_path / "ann.json"
    link.symlink_to(tmp_path / "elsewhere")
    ActivityFile(link).write(saying("bash ls"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_removed_file_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    file = ActivityFile(path)
    file.write(saying("bash ls"))
    path.unlink()
    file.write(saying("bash pwd"))
    assert read_activity(path) == saying("bash pwd")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Path]:
    """A process that writes two activities in turn until it is told to end."""
    path = tmp_path / "ann.json"
    reader, end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(end)
        os.set_blocking(reader, False)
        file = ActivityFile(path)
        texts = ["a" * LONGEST, "b" * LONGEST]
        while True:
            for text in texts:
                file.write(saying(text, text))
            try:
                os.read(reader, 1)
            except BlockingIOError:
                continue
            os._exit(0)
    os.close(reader)
    yield path
    os.close(end)
    os.waitpid(pid, 0)


def test_a_read_during_a_write_gives_one_of_the_two(writer: Path) -> None:
    """A mixture would show an activity that never happened."""
    found = 0
    while found < _ROUNDS:
        said = read_activity(writer)
        if said is not None and said.doing is not None and said.retry is not None:
            found += 1
            assert len({*said.doing.what, *said.retry.cause}) == 1


def test_the_kinds_of_activity_are_distinct() -> None:
    assert {MODEL, TOOL} == {"model", "tool"}
