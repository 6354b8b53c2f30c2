"""Mail without ids gets ids that follow from its position, the same at every reading."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import StoreError
from teamd.files.files import make_durable
from teamd.files.paths import TeamPaths
from teamd.mail import lines
from teamd.mail.mailbox import EMPTY, Batch, Mailbox
from teamd.mail.spool import BatchLimit, first_position
from teamd.messages import moment_of, new_id

WARY = BatchLimit(messages=2, wary=True)


def append(paths: TeamPaths, *contents: str, end: str = "\n") -> None:
    text = "\n".join(json.dumps({"content": content}) for content in contents) + end
    with paths.inbox("bob").open("a", encoding="utf-8") as file:
        file.write(text)


def reader(paths: TeamPaths, **options: Any) -> Mailbox:
    return Mailbox(paths, "bob", durable=False, **options)


def is_open_as(path: Path, fd: int) -> bool:
    return path.stat().st_ino == os.fstat(fd).st_ino


def told(batch: Batch) -> list[tuple[str, str, float]]:
    return [(one.content, one.id, one.timestamp) for one in batch.messages]


def test_the_time_of_a_message_without_an_id_is_when_it_was_taken(paths: TeamPaths) -> None:
    append(paths, "go on")
    [message] = reader(paths).take().messages
    assert message.timestamp == moment_of(message.id.rpartition("-")[0])


@pytest.mark.parametrize("end", ["\n", ""], ids=["whole", "torn"])
@pytest.mark.parametrize("limit", [BatchLimit(), BatchLimit(messages=1), WARY], ids=str)
def test_every_reader_gives_it_the_same_id(paths: TeamPaths, end: str, limit: BatchLimit) -> None:
    append(paths, "go on", "go on", end=end)
    first = told(reader(paths).take(limit))
    append(paths, "new")
    again = told(reader(paths).take())
    assert again[: len(first)] == first
    assert [content for content, *_ in again] == ["go on", "go on"]


@pytest.mark.parametrize("same", [True, False], ids=["the same reader", "another one"])
def test_the_same_text_later_is_a_different_message(paths: TeamPaths, same: bool) -> None:
    found, box = set(), reader(paths)
    for _ in range(3):
        append(paths, "go on")
        box = box if same else reader(paths)
        batch = box.take()
        box.done(batch)
        found |= {one.id for one in batch.messages}
    assert len(found) == 3


def test_a_failed_read_does_not_assign_wrong_ids(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(paths, "go on", "go on")
    box = reader(paths)
    first = told(box.take())
    append(paths, "new", "newer")
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        with pytest.raises(StoreError):
            box.take(BatchLimit(messages=1))
    assert told(box.take(BatchLimit(messages=1))) == first[:1]


def fail(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, "too many open files")


@pytest.mark.parametrize(
    "limit",
    [WARY, BatchLimit(messages=2), BatchLimit(bytes=2 * len('{"content": "a"}\n'))],
    ids=str,
)
def test_a_batch_ends_after_the_markers(paths: TeamPaths, limit: BatchLimit) -> None:
    """Otherwise mail would seem to wait behind each full batch."""
    append(paths, "a", "b")
    box = reader(paths)
    batch = box.take(limit)
    assert len(batch.messages) == 2
    assert box.queued() == 2
    box.done(batch)
    assert not box.waiting()
    append(paths, "c")
    assert [content for content, *_ in told(box.take())] == ["c"]


def test_a_batch_of_an_earlier_version_keeps_its_ids(paths: TeamPaths) -> None:
    """It had no marker at its end; its ids encode the position of a line in its file."""
    position = first_position("1")
    line = b'{"content": "x"}\n'
    paths.taken("bob").write_bytes(position.header() + line * 2)
    append(paths, "new")
    batch = reader(paths).take()
    assert [one.id for one in batch.messages] == [
        f"1-{position.at}",
        f"1-{position.at + len(line)}",
    ]


@pytest.mark.parametrize("named", ["x" * 65, "a b", "\\u0000"])
def test_an_invalid_marker_assigns_no_ids(paths: TeamPaths, named: str) -> None:
    append(paths, "go on", end=f'\n{{"taken_as": "{named}"}}\n')
    [message] = reader(paths).take().messages
    assert moment_of(message.id.rpartition("-")[0])


@pytest.mark.parametrize("ahead", range(0, 64, 7))
def test_markers_are_not_counted_as_mail_wherever_the_file_is_split(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr(lines, "_CHUNK", 16)
    append(paths, "x" * ahead, end="\n" + lines.marker(new_id()).decode() * 3)
    append(paths, "y", end='\n{"taken_as": "x", "content": "z"}\n{"taken_as": "torn')
    assert lines.count(paths.inbox("bob")) == 3


@given(st.integers(1, 90), st.integers(0, 3), st.integers(0, 40), st.booleans())
def test_a_marker_assigns_the_same_ids_wherever_the_file_is_split(
    chunk: int, false: int, length: int, torn: bool
) -> None:
    """Also behind lines that begin like a marker."""
    looks_like_one = '{"taken_as": "no name: ' + "x" * length + '"}\n'
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines, "_CHUNK", chunk)
        paths = TeamPaths(Path(folder) / ".team")
        paths.create()
        append(paths, "go on", end="\n" + looks_like_one * false)
        append(paths, "go on", end="" if torn else "\n" + looks_like_one * false)
        first = told(reader(paths).take())
        again = told(reader(paths).take(BatchLimit(messages=1)))
    assert again == first[:1]
    assert len({one[1] for one in first}) == 2
    [batch] = {one[1].rpartition("-")[0] for one in first}
    assert moment_of(batch)


class Killed(BaseException):
    """Simulates a kill."""


class World:
    """A reader with its conversation, programs that write to it, kills and power cuts.

    A file on disk is certain only as of its last sync. A power cut may leave any later state of the
    inbox and of the spool file.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self.paths = paths
        self.sent = 0
        self.wanted: set[str] = set()
        self.sure: set[str] = set()
        self.known: set[str] = set()
        self.had: list[str] = []
        self.states: list[bytes] = [b""]
        self.taken: list[bytes | None] = [None]
        self.box = Mailbox(paths, "bob")
        self.batch = EMPTY
        self.box.create()

    def see(self) -> None:
        """Record the state of both files."""
        self.states.append(self.paths.inbox("bob").read_bytes())
        taken = self.paths.taken("bob")
        self.taken.append(taken.read_bytes() if taken.exists() else None)

    def standing(self) -> set[str]:
        """Return the contents of all mail in the files."""
        files = (self.paths.inbox("bob"), self.paths.taken("bob"))
        content = b"".join(path.read_bytes() for path in files if path.exists())
        return set(re.findall(r'"content": "(\d+)"', content.decode()))

    @contextmanager
    def watched(self, syncs: int = 99) -> Iterator[None]:
        """Record the syncs of a block; simulate a kill before sync number `syncs` + 1."""
        left = count(syncs, -1)
        with pytest.MonkeyPatch.context() as patched:
            sync_data, sync_folder = os.fdatasync, os.fsync

            def synced(fd: int) -> None:
                self.see()
                if not next(left):
                    raise Killed
                sync_data(fd)
                if is_open_as(self.paths.inbox("bob"), fd):
                    del self.states[:-1]
                    self.sure |= self.standing() & self.wanted

            def synced_folder(fd: int) -> None:
                self.see()
                if not next(left):
                    raise Killed
                sync_folder(fd)
                if is_open_as(self.paths.inbox("bob").parent, fd):
                    del self.taken[:-1]

            patched.setattr(os, "fdatasync", synced)
            patched.setattr(os, "fsync", synced_folder)
            yield
            self.see()

    def append(self, kind: str) -> None:
        """Append a line as another program does."""
        self.sent += 1
        line = {
            "nameless": json.dumps({"content": f"{self.sent}"}),
            "named": json.dumps({"id": f"own-{self.sent}", "content": f"{self.sent}"}),
            "garbage": f"garbage {self.sent}",
            "blank": " ",
        }[kind]
        with self.paths.inbox("bob").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        self.see()
        if kind in ("nameless", "named"):
            self.wanted.add(f"{self.sent}")

    def take(self, most: int, syncs: int = 99) -> None:
        """Take mail, and put it into the conversation."""
        try:
            with self.watched(syncs):
                self.batch = self.box.take(BatchLimit(messages=most, wary=most % 2 == 0))
        except Killed:
            self.kill()
        for message in self.batch.messages:
            if message.id not in self.known:
                self.known.add(message.id)
                self.had.append(message.content)

    def done(self) -> None:
        """Finish the batch that was taken last, if any."""
        with self.watched():
            self.box.done(self.batch)
        self.batch = EMPTY

    def kill(self) -> None:
        """Start another reader."""
        self.box, self.batch = Mailbox(self.paths, "bob"), EMPTY

    def cut(self, which: int, other: int) -> None:
        self.paths.inbox("bob").write_bytes(left := self.states[which % len(self.states)])
        self.states = [left]
        taken = self.taken[other % len(self.taken)]
        self.taken = [taken]
        if taken is None:
            self.paths.taken("bob").unlink(missing_ok=True)
        else:
            self.paths.taken("bob").write_bytes(taken)
        left_over = self.standing().union(self.had)
        assert self.sure <= left_over
        self.wanted &= left_over
        self.kill()

    def finish(self) -> None:
        """Have a last reader take the remaining mail."""
        self.kill()
        while self.box.waiting():
            self.take(3)
            self.done()


OPERATIONS = st.one_of(
    st.tuples(
        st.just(World.append), st.sampled_from(["nameless"] * 3 + ["named", "garbage", "blank"])
    ),
    st.tuples(st.just(World.take), st.integers(1, 4)),
    st.tuples(st.just(World.take), st.integers(1, 4), st.integers(0, 6)),
    st.tuples(st.just(World.done)),
    st.tuples(st.just(World.kill)),
    st.tuples(st.just(World.cut), st.integers(0, 20), st.integers(0, 20)),
)


@given(st.lists(OPERATIONS, max_size=40))
def test_after_any_kills_and_power_cuts_each_message_is_delivered_once(
    operations: list[Any],
) -> None:
    with TemporaryDirectory() as folder:
        paths = TeamPaths(Path(folder) / ".team")
        paths.create()
        world = World(paths)
        for work, *arguments in operations:
            work(world, *arguments)
        world.finish()
        assert sorted(world.had) == sorted(world.wanted)


@pytest.mark.parametrize("syncs", range(6))
@pytest.mark.parametrize("earlier", [False, True], ids=["first batch", "second batch"])
def test_a_power_cut_during_or_after_a_take_neither_loses_nor_duplicates_mail(
    syncs: int, *, earlier: bool
) -> None:
    """For each state of the two files that the disk may have kept, independently of each other."""
    for which, other, done in product((0, 1, -1), (0, -1), (False, True)):
        with TemporaryDirectory() as folder:
            paths = TeamPaths(Path(folder) / ".team")
            paths.create()
            world = World(paths)
            if earlier:
                world.append("named")
                world.take(1)
                world.done()
            world.append("nameless")
            world.append("named")
            with world.watched():
                make_durable(paths.inbox("bob"))
            world.take(3, syncs)
            if done:
                world.done()
            world.append("named")
            world.cut(which, other)
            world.finish()
            assert sorted(world.had) == sorted(world.wanted), (which, other, done)
