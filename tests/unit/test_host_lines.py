"""Runs of lines as two postmen exchange them, each line directly behind the previous one."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import StoreError
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.lines import MAIL, MAX_LINE_BYTES, START, OutLine, pass_over, read_run
from teamd.hosts.outbox import Outbox
from teamd.hosts.outbox_file import FRAME_BYTES, DamagedOutbox
from teamd.hosts.places import HostPlaces
from teamd.postman.frames import LineFrame, decode
from teamd.postman.incoming import Incoming
from teamd.postman.outgoing import WINDOW_LINES, Outgoing


def chain_of(*bodies: bytes) -> list[OutLine]:
    """Return lines with these bodies, from number 1 on."""
    made: list[OutLine] = []
    for number, body in enumerate(bodies, start=1):
        made.append(OutLine.make(number, made[-1].chain if made else START, body))
    return made


GOOD = chain_of(*(b'"kind": "mail", "x": %d}' % number for number in range(6)))
STRANGE = [
    b"\n",
    b"\xff\n",
    GOOD[2].raw[:-1],
    GOOD[3].raw[1:],
    GOOD[1].raw.replace(b'"x"', b'"y"'),
    GOOD[1].raw.replace(b'"n": 2', b'"n": 3'),
]


@given(
    st.lists(st.sampled_from([*(line.raw for line in GOOD), *STRANGE]), max_size=9)
    | st.just([line.raw for line in GOOD]),
    st.integers(0, 3),
    st.integers(0, 7),
)
def test_a_run_ends_at_the_first_line_that_does_not_follow(
    pieces: list[bytes], n: int, most: int
) -> None:
    chain = GOOD[n - 1].chain if n else START
    expected: list[OutLine] = []
    before = (n, chain)
    for raw in b"".join(pieces).splitlines(keepends=True):
        line = OutLine.decode(raw)
        if line is None or not line.follows(*before) or len(expected) == most:
            break
        expected.append(line)
        before = (line.n, line.chain)
    assert read_run(b"".join(pieces), n, chain, most) == expected


def test_earlier_lines_are_skipped() -> None:
    whole = b"".join(line.raw for line in GOOD)
    assert read_run(pass_over(whole, 4), 4, GOOD[3].chain, 9) == GOOD[4:]
    assert pass_over(whole, 0) == whole
    assert pass_over(b"\n" + whole, 4) == b"\n" + whole
    assert pass_over(whole, 6) == b""


def outbox_in(folder: Path) -> Outbox:
    paths = TeamPaths(folder / ".team")
    paths.create()
    return Outbox(paths, "h2", durable=False)


def ready(outbox: Outbox) -> Outgoing:
    """Return the sending half of a link for this outbox."""
    confirmed = CursorFile(HostPlaces(outbox.paths).confirmed(outbox.host), durable=False)
    outgoing = Outgoing(outbox, confirmed, report=print)
    outgoing.look()
    outgoing.ready = True
    return outgoing


@pytest.mark.parametrize("over", [-100, -1, 0, 1, 100])
def test_lines_of_any_length_are_sent_in_order(tmp_path: Path, over: int) -> None:
    """The sizes include lines that end near a frame's end, and the longest possible ones."""
    outbox = outbox_in(tmp_path)
    frame = len(chain_of(b'"kind": "mail", "x": ""}')[0].raw)
    longest = MAX_LINE_BYTES - len(b'"kind": "mail", "x": ""}')
    for size in (5, FRAME_BYTES - frame + over, longest, FRAME_BYTES // 2 + over, longest, 5):
        outbox.append(MAIL, x="x" * size)
    raw = outbox.path.read_bytes().partition(b"\n")[2]
    outgoing = ready(outbox)
    sent = b""
    while outgoing.waiting:
        frames = [frame.content for frame in outgoing.take()]
        assert frames
        for content in frames:
            assert len(content) <= max(FRAME_BYTES, len(content.partition(b"\n")[0]) + 1)
        sent += b"".join(frames)
        line = OutLine.decode(frames[-1].splitlines(keepends=True)[-1])
        assert line is not None
        assert outgoing.header is not None
        assert outgoing.confirm(Cursor(outgoing.header.epoch, line.n, line.chain))
    outgoing.close()
    assert sent == raw


def test_a_repeated_line_in_an_outbox_is_damage(tmp_path: Path) -> None:
    """Skipping it would shift the recorded offsets of all lines behind it."""
    outbox = outbox_in(tmp_path)
    for number in range(3):
        outbox.append(MAIL, x=number)
    header, *lines = outbox.path.read_bytes().splitlines(keepends=True)
    outbox.path.write_bytes(b"".join([header, lines[0], lines[0], *lines[1:]]))
    with closing(ready(outbox)) as outgoing:
        frames = outgoing.take()
        assert next(frames).content == lines[0]
        with pytest.raises(DamagedOutbox):
            next(frames)


def test_a_line_appended_during_a_sync_waits_for_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not be on disk, so the receiver could confirm a line that a power cut removes here."""
    outbox = replace(outbox_in(tmp_path), durable=True)
    outbox.append(MAIL, x=1)
    outgoing, real = ready(outbox), os.fdatasync

    def sync(fd: int) -> None:
        real(fd)
        monkeypatch.undo()
        outbox.append(MAIL, x=2)

    with closing(outgoing):
        monkeypatch.setattr(os, "fdatasync", sync)
        first, second = (frame.content for frame in outgoing.take())
    assert b'"x": 1' in first
    assert b'"x": 2' not in first
    assert b'"x": 2' in second


@pytest.mark.parametrize("limit", [1 << 16, 1 << 26])
def test_an_outbox_is_rewritten_when_little_has_to_be_copied(tmp_path: Path, limit: int) -> None:
    """Queued lines wait for the rewrite, but confirmed lines take room from new ones."""
    outbox = replace(outbox_in(tmp_path), max_bytes=limit)
    size = min(limit // 64, 100_000)
    for _ in range(32):
        outbox.append(MAIL, x="x" * size)
    kept = []
    with closing(ready(outbox)) as outgoing:
        while outgoing.waiting:
            for frame in outgoing.take():
                for raw in frame.content.splitlines(keepends=True):
                    line = OutLine.decode(raw)
                    assert line is not None
                    assert outgoing.header is not None
                    outgoing.confirm(Cursor(outgoing.header.epoch, line.n, line.chain))
                    kept.append(outbox.path.stat().st_size // size)
    assert kept[-1] == 0, "at rest"
    shrunk = [before - after for before, after in pairwise([32, *kept]) if after < before]
    assert len(shrunk) == (3 if limit == 1 << 16 else 1)
    assert all(gone >= 8 for gone in shrunk[:-1])


def test_a_receipt_for_unsent_lines_does_not_cause_a_search(tmp_path: Path) -> None:
    """Otherwise a host could make this one read its whole backlog for each false receipt."""
    outbox = outbox_in(tmp_path)
    lines = chain_of(*(b'"kind": "mail", "x": %d}' % number for number in range(900)))
    for line in lines:
        outbox.append(MAIL, x=line.n - 1)
    with closing(ready(outbox)) as outgoing:
        assert outgoing.header is not None
        for n in (WINDOW_LINES + 1, 900):
            assert not outgoing.confirm(Cursor(outgoing.header.epoch, n, lines[n - 1].chain))
        line = lines[WINDOW_LINES - 1]
        assert outgoing.confirm(Cursor(outgoing.header.epoch, line.n, line.chain))


def confirm_all(outgoing: Outgoing) -> None:
    """Send and confirm, line by line, until nothing waits."""
    while outgoing.waiting:
        frames = list(outgoing.take())
        assert frames, "something waits, and nothing goes out"
        for raw in b"".join(frame.content for frame in frames).splitlines(keepends=True):
            line = OutLine.decode(raw)
            assert line is not None
            assert outgoing.header is not None
            outgoing.confirm(Cursor(outgoing.header.epoch, line.n, line.chain))


def test_lines_are_sent_even_if_there_is_no_room_for_a_rewrite(tmp_path: Path) -> None:
    """Files may not grow beyond a limit; the small rest at the end can still be rewritten."""
    outbox = replace(outbox_in(tmp_path), max_bytes=1 << 16)
    for _ in range(48):
        outbox.append(MAIL, x="x" * 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(ready(outbox)) as outgoing:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
        try:
            confirm_all(outgoing)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outbox.path.stat().st_size < 1000


def test_an_empty_outbox_is_not_rewritten_again(tmp_path: Path) -> None:
    """Each rewrite wakes the watchers of the folder."""
    outbox = replace(outbox_in(tmp_path), max_bytes=1)
    outbox.append(MAIL, x=1)
    with closing(ready(outbox)) as outgoing:
        confirm_all(outgoing)
        before = outbox.path.stat()
        outgoing.look()
        assert (outbox.path.stat().st_ino, len(outbox.path.read_bytes().splitlines())) == (
            before.st_ino,
            1,
        )


def test_a_failed_rewrite_of_an_idle_outbox_is_retried_at_the_next_check(tmp_path: Path) -> None:
    """No further receipt will arrive, and a full outbox would stay full."""
    outbox = replace(outbox_in(tmp_path), max_bytes=1, patience_seconds=0.01)
    outbox.append(MAIL, x=1)
    with closing(ready(outbox)) as outgoing:
        with locks.locked(outbox.path), pytest.raises(StoreError):
            confirm_all(outgoing)
        assert len(outbox.path.read_bytes().splitlines()) == 2
        outgoing.look()
        assert len(outbox.path.read_bytes().splitlines()) == 1


def test_a_missing_folder_is_a_store_error(tmp_path: Path) -> None:
    outbox = outbox_in(tmp_path)
    outbox.append(MAIL, x=1)
    with closing(ready(outbox)) as outgoing:
        outbox.path.parent.rename(tmp_path / "gone")
        outbox.path.parent.touch()
        with pytest.raises(StoreError):
            outgoing.look()


def test_a_torn_last_line_does_not_count_as_waiting(tmp_path: Path) -> None:
    """Its sender got no confirmation; an idle link would report the line as waiting forever."""
    outbox = outbox_in(tmp_path)
    outbox.append(MAIL, x=1)
    with outbox.path.open("ab") as file:
        file.write(b'{"n": 2, "chai')
    with closing(ready(outbox)) as outgoing:
        confirm_all(outgoing)
        assert not outgoing.waiting


def test_long_lines_do_not_exhaust_the_memory(tmp_path: Path) -> None:
    """An honest sender has 1 MiB and a frame in transit; a liar may send 256 lines of 1 MB."""
    file = CursorFile(tmp_path / "h2.json", durable=False)
    file.write(Cursor("e", 0, START))
    incoming = Incoming("h2", file, Taker(), window=WINDOW_LINES, report=print)
    lines = chain_of(*[b'"kind": "mail", "x": "%s"}' % (b"x" * 900_000)] * 9)
    for line in lines:
        incoming.gather(LineFrame("e", line.raw))
    incoming.take()
    assert incoming.cursor is not None
    assert 2 <= incoming.cursor.n <= 5


class Taker:
    """Accepts and ignores all lines."""

    def deliver(self, _: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Ignore the input."""

    def act(self, _: str, line: dict[str, Any]) -> None:
        """Ignore the input."""


@given(epoch=st.one_of(st.from_regex(r"[\w-]{1,70}"), st.text()), content=st.binary())
def test_a_frame_of_lines_is_read_the_same_with_and_without_json(
    epoch: str, content: bytes
) -> None:
    """The fast path is for frames as `encode` writes them; other JSON gives the same frame."""
    head = {"kind": "lines", "epoch": epoch}
    packed = json.dumps(head, separators=(",", ":")).encode()
    for line in (packed, json.dumps(head).encode()):
        assert decode(b"%s\n%s" % (line, content)) == LineFrame(epoch, content)


def test_a_frame_of_lines_is_written_as_it_is_read() -> None:
    frame = LineFrame("b9a5904dbb34eef9", b"some\nlines\n")
    assert decode(frame.encode()) == frame
    assert json.loads(frame.encode().partition(b"\n")[0]) == {
        "kind": "lines",
        "epoch": "b9a5904dbb34eef9",
    }
