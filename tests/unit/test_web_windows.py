"""A few lines out of a long file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from teamctl.web.pages import LONGEST, read_before, read_behind, to_json
from teamd.errors import StoreError

LINES = [b'{"n": %d}' % number for number in range(1000)]
CONTENT = b"".join(line + b"\n" for line in LINES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file.jsonl"
    made.write_bytes(CONTENT)
    return made


@pytest.mark.parametrize("size", [1, 9, 10, 11, 100, 5000, 1 << 20])
def test_windows_put_together_are_the_file(file: Path, size: int) -> None:
    found: list[bytes] = []
    end: int | None = None
    while True:
        window = read_before(file, end, size=size)
        found = [*window.lines, *found]
        end = window.start
        if not end:
            break
    assert found == LINES
    found, start = [], 0
    while window := read_behind(file, start, size=size):
        if not window.lines:
            break
        found += window.lines
        start = window.end
    assert found == LINES


def test_an_unfinished_line_waits(file: Path) -> None:
    with file.open("ab") as writing:
        writing.write(b'{"n": 10')
    assert read_before(file, None).lines[-1] == LINES[-1]
    end = read_before(file, None).end
    assert read_behind(file, end).lines == ()
    with file.open("ab") as writing:
        writing.write(b"00}\n")
    assert read_behind(file, end).lines == (b'{"n": 1000}',)


def test_a_file_that_has_shrunk_is_read_from_its_end(file: Path) -> None:
    file.write_bytes(b'{"n": 7}\n')
    window = read_behind(file, len(CONTENT))
    assert (window.start, window.lines) == (0, (b'{"n": 7}',))


def test_an_empty_file_and_a_file_without_a_whole_line(tmp_path: Path) -> None:
    for content in (b"", b'{"torn'):
        file = tmp_path / "file"
        file.write_bytes(content)
        assert read_before(file, None).lines == ()
        assert read_behind(file, 0).lines == ()


def test_secrets_and_checkpoints_stay_and_long_texts_are_cut(tmp_path: Path) -> None:
    """The ids of a conversation's requests can be derived from its secret."""
    file = tmp_path / "file"
    records = [
        {"record": "opened", "secret": "s3cret", "system": "You are"},
        {"record": "checkpoint", "state": {}},
        {"record": "result", "content": "x" * (LONGEST + 5)},
    ]
    file.write_text("".join(f"{json.dumps(one)}\n" for one in records) + "no JSON\n[]\n")
    shown = to_json(read_before(file, None))["records"]
    assert shown[0] == {"record": "opened", "system": "You are"}
    assert [one["record"] for one in shown] == ["opened", "result"]
    assert shown[1]["content"] == "x" * LONGEST + "… (5 more characters)"


def test_a_link_is_not_followed(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(StoreError, match="link"):
        read_before(link, None)


def test_the_end_of_a_hundred_megabytes_is_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "long"
    line = json.dumps({"record": "result", "content": "x" * 10_000}).encode() + b"\n"
    with file.open("wb") as writing:
        for _ in range(100):
            writing.write(line * 100)
    assert file.stat().st_size > 100_000_000
    began = time.perf_counter()
    found = to_json(read_before(file, None))
    assert time.perf_counter() - began < 1
    assert len(found["records"]) > 20
