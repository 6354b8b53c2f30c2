"""Windows of long files, values that pages send, and the limits on their connections."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import cast

import pytest

from teamctl.web.page_actions import ActionValues
from teamctl.web.server import Connection, ConnectionLimit, allow_descriptors
from teamctl.web.windows import LONGEST, read_before, read_behind, to_json
from teamd.errors import StoreError, WrongUsage


@pytest.mark.parametrize("given", [3, 0.5, 0])
def test_an_amount_may_be_any_number(given: float) -> None:
    assert ActionValues({"usd": given}).amount("usd") == given
    assert ActionValues({}).amount("usd") is None


@pytest.mark.parametrize("given", ["3", True, [], {}])
def test_an_amount_that_is_not_a_number_is_refused(given: object) -> None:
    """`true` would count as 1."""
    with pytest.raises(WrongUsage, match=r"^usd has to be a number$"):
        ActionValues({"usd": given}).amount("usd")


class Counted:
    """A connection that the limit may close."""

    ended = False

    def abort(self) -> None:
        """End."""
        self.ended = True


def test_readers_are_never_closed_and_one_too_many_is_refused() -> None:
    crowd = ConnectionLimit(strangers=1, readers=1)
    first, second, third = (cast("Connection", Counted()) for _ in range(3))
    crowd.enter(first)
    assert crowd.know(first)
    crowd.enter(second)
    assert not crowd.know(second)
    assert crowd.know(first), "it asks again"
    crowd.enter(third)
    ended = [cast("Counted", one).ended for one in (first, second, third)]
    assert ended == [False, True, False]
    crowd.leave(first)
    assert crowd.know(third)


def test_a_limit_on_open_files_is_raised_as_far_as_needed_and_never_lowered() -> None:
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for soft, wanted in ((300, 1024), (1024, 1024), (1100, 1100)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            allow_descriptors()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


LINES = [b'{"n": %d}' % number for number in range(1000)]
CONTENT = b"".join(line + b"\n" for line in LINES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file.jsonl"
    made.write_bytes(CONTENT)
    return made


@pytest.mark.parametrize("size", [1, 9, 10, 11, 100, 5000, 1 << 20])
def test_all_windows_together_make_up_the_file(file: Path, size: int) -> None:
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


def test_an_unfinished_line_is_not_read_before_it_is_complete(file: Path) -> None:
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


def test_an_empty_file_and_a_file_without_a_whole_line_have_no_lines(tmp_path: Path) -> None:
    for content in (b"", b'{"torn'):
        file = tmp_path / "file"
        file.write_bytes(content)
        assert read_before(file, None).lines == ()
        assert read_behind(file, 0).lines == ()


def test_secrets_and_checkpoints_are_left_out_and_long_texts_are_cut(tmp_path: Path) -> None:
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
