"""Mail without ids gets some that follow from where it stands, the same at every reading."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.mail import lines
from teamd.mail.mailbox import EMPTY, Batch, Mailbox
from teamd.mail.poison import first_position
from teamd.mail.spool import BatchLimit
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


@contextmanager
def noted_syncs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note which files of a folder are synced meanwhile."""
    found: list[str] = []
    with monkeypatch.context() as patched:
        for name in ("fsync", "fdatasync"):
            real: Callable[[int], None] = getattr(os, name)

            def sync(fd: int, real: Callable[[int], None] = real) -> None:
                found.extend(path.name for path in folder.iterdir() if is_open_as(path, fd))
                real(fd)

            patched.setattr(os, name, sync)
        yield found


def test_a_marker_that_the_disk_did_not_keep_is_told_of(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for it himself hears of it there, at each delivery that it names."""
    append(paths, "one", "two")

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), fd)

    monkeypatch.setattr(os, "fdatasync", fail)
    box, single = Mailbox(paths, "bob"), replace(WARY, messages=1)
    with pytest.raises(StoreError, match="Input/output error"):
        box.take(single)
    for _ in range(2):
        batch = box.take(single, ahead=True)
        assert batch.behind is not None
        with pytest.raises(OSError, match="Input/output error"):
            batch.behind.wait()
        box.done(batch)


@pytest.mark.parametrize("length", [1, 9000])
def test_it_stays_in_the_inbox_and_waits_for_the_disk_once(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    append(paths, *["go on" * length] * 2)
    box = Mailbox(paths, "bob")
    with noted_syncs(paths.inbox("bob").parent, monkeypatch) as syncs:
        batch = box.take(WARY)
        box.done(batch)
    assert syncs == ["bob.jsonl"]
    assert batch.in_inbox
    assert len({one.id for one in batch.messages}) == 2
    assert not box.waiting()


def test_its_time_is_when_it_was_taken(paths: TeamPaths) -> None:
    append(paths, "go on")
    [message] = reader(paths).take().messages
    assert message.timestamp == moment_of(message.id.rpartition("-")[0])


@pytest.mark.parametrize("end", ["\n", ""], ids=["whole", "torn"])
@pytest.mark.parametrize("limit", [BatchLimit(), BatchLimit(messages=1), WARY], ids=str)
def test_every_reader_knows_it_by_the_same_id(
    paths: TeamPaths, end: str, limit: BatchLimit
) -> None:
    append(paths, "go on", "go on", end=end)
    first = told(reader(paths).take(limit))
    append(paths, "new")
    again = told(reader(paths).take())
    assert again[: len(first)] == first
    assert [content for content, *_ in again] == ["go on", "go on", "new"]


@pytest.mark.parametrize("end", ["\n", ""], ids=["whole", "torn"])
def test_it_is_known_where_a_power_cut_left_no_header(paths: TeamPaths, end: str) -> None:
    append(paths, "go on", "go on", end=end)
    first = told(reader(paths).take())
    paths.taken("bob").write_bytes(b"")
    append(paths, "new")
    again = told(reader(paths).take())
    assert again[:2] == first
    assert [content for content, *_ in again[2:]] == ["new"]


def test_each_line_is_named_by_the_marker_next_to_it(paths: TeamPaths) -> None:
    """Wherever its reader begins."""
    append(paths, "first")
    first = told(reader(paths).take())
    paths.taken("bob").write_bytes(b"")
    append(paths, "second")
    both = told(reader(paths).take())
    box = reader(paths)
    batch = box.take(BatchLimit(messages=1))
    box.done(batch)
    assert told(batch) == first == both[:1]
    assert told(reader(paths).take()) == both[1:]


@pytest.mark.parametrize("same", [True, False], ids=["the same reader", "another one"])
def test_the_same_text_later_is_another_message(paths: TeamPaths, same: bool) -> None:
    found, box = set(), reader(paths)
    for _ in range(3):
        append(paths, "go on")
        box = box if same else reader(paths)
        batch = box.take()
        box.done(batch)
        found |= {one.id for one in batch.messages}
    assert len(found) == 3


def test_what_is_known_is_shown_by_its_id_where_a_power_cut_left_no_header(
    paths: TeamPaths,
) -> None:
    """An interrupt that was heard is not heard again."""
    append(paths, "go on")
    first = told(reader(paths).take())
    paths.taken("bob").write_bytes(b"")
    append(paths, "new")
    assert [(one.content, one.id) for one in reader(paths).peek()][:1] == [first[0][:2]]
    assert reader(paths).peek()[1].id != reader(paths).peek()[1].id


def test_a_read_that_fails_names_nothing_wrong(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(paths, "go on", "go on")
    first = told(reader(paths).take())
    paths.taken("bob").write_bytes(b"")
    append(paths, "new", "newer")
    box = reader(paths)
    assert told(box.take(BatchLimit(messages=4)))[:2] == first
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
@pytest.mark.parametrize("moved", [False, True], ids=["in the inbox", "with two markers"])
def test_a_delivery_ends_behind_the_markers(
    paths: TeamPaths, limit: BatchLimit, moved: bool
) -> None:
    """Else something would seem to wait behind each delivery that is full."""
    append(paths, "a", "b")
    if moved:
        reader(paths).take(WARY)
    box = reader(paths)
    batch = box.take(limit)
    assert len(batch.messages) == 2
    assert batch.in_inbox is not moved
    assert not box.waiting(besides=batch)
    assert box.queued() == 2
    append(paths, "c")
    assert box.queued() == 3
    assert box.waiting(besides=batch)
    box.done(batch)
    assert [content for content, *_ in told(box.take())] == ["c"]


def test_a_batch_of_an_earlier_version_keeps_its_ids(paths: TeamPaths) -> None:
    """It had no marker at its end; its ids tell where a line stands in its file."""
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
def test_a_marker_that_is_no_name_names_nothing(paths: TeamPaths, named: str) -> None:
    append(paths, "go on", end=f'\n{{"taken_as": "{named}"}}\n')
    [message] = reader(paths).take().messages
    assert moment_of(message.id.rpartition("-")[0])


@pytest.mark.parametrize("ahead", range(0, 64, 7))
def test_markers_count_for_no_mail_wherever_a_part_of_the_file_ends(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr(lines, "_CHUNK", 16)
    append(paths, "x" * ahead, end="\n" + lines.marker(new_id()).decode() * 3)
    append(paths, "y", end='\n{"taken_as": "x", "content": "z"}\n{"taken_as": "torn')
    assert lines.count(paths.inbox("bob")) == 3


@given(st.integers(1, 90), st.integers(0, 3), st.integers(0, 40), st.booleans())
def test_a_marker_names_alike_wherever_a_part_of_the_file_ends(
    chunk: int, false: int, length: int, torn: bool
) -> None:
    """Also behind lines that begin as one does."""
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


class World:
    """A reader with its conversation, other programs that write to it, and what may befall them.

    What the disk is sure to have is what stood in the inbox when it was synced last; any state
    since then may be what a power cut leaves of it.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self.paths = paths
        self.sent = 0
        self.wanted: set[str] = set()
        self.sure: set[str] = set()
        self.known: set[str] = set()
        self.had: list[str] = []
        self.states: list[bytes] = [b""]
        self.box = Mailbox(paths, "bob")
        self.batch = EMPTY
        self.box.create()

    def see(self) -> None:
        """Note a state of the inbox."""
        self.states.append(self.paths.inbox("bob").read_bytes())

    def standing(self) -> set[str]:
        """Return what stands in the files."""
        files = (self.paths.inbox("bob"), self.paths.taken("bob"))
        content = b"".join(path.read_bytes() for path in files if path.exists())
        return set(re.findall(r'"content": "(\d+)"', content.decode()))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Know what is synced meanwhile."""
        with pytest.MonkeyPatch.context() as patched:
            real = os.fdatasync

            def sync(fd: int) -> None:
                real(fd)
                if is_open_as(self.paths.inbox("bob"), fd):
                    self.states.clear()
                    self.see()
                    self.sure |= self.standing() & self.wanted

            patched.setattr(os, "fdatasync", sync)
            yield
        self.see()

    def append(self, kind: str) -> None:
        """Be another program."""
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

    def take(self, most: int) -> None:
        """Take mail, and put it into the conversation."""
        with self.watched():
            self.batch = self.box.take(BatchLimit(messages=most, wary=most % 2 == 0))
        for message in self.batch.messages:
            if message.id not in self.known:
                self.known.add(message.id)
                self.had.append(message.content)

    def done(self) -> None:
        """Forget what was taken last."""
        with self.watched():
            self.box.done(self.batch)
        self.batch = EMPTY

    def kill(self) -> None:
        """Let another reader come."""
        self.box, self.batch = Mailbox(self.paths, "bob"), EMPTY

    def cut(self, which: int, header: bool) -> None:
        """Cut the power; a header alone, which waits for no disk, may be lost with it."""
        self.paths.inbox("bob").write_bytes(left := self.states[which % len(self.states)])
        self.states = [left]
        taken = self.paths.taken("bob")
        if header and taken.exists() and taken.read_bytes().count(b"\n") <= 1:
            taken.write_bytes(b"")
        left_over = self.standing().union(self.had)
        assert self.sure <= left_over
        self.wanted &= left_over
        self.kill()

    def finish(self) -> None:
        """Have a last reader take all that is left."""
        self.kill()
        while self.box.waiting():
            self.take(3)
            self.done()


OPERATIONS = st.one_of(
    st.tuples(
        st.just(World.append), st.sampled_from(["nameless"] * 3 + ["named", "garbage", "blank"])
    ),
    st.tuples(st.just(World.take), st.integers(1, 4)),
    st.tuples(st.just(World.done)),
    st.tuples(st.just(World.kill)),
    st.tuples(st.just(World.cut), st.integers(0, 20), st.booleans()),
)


@given(st.lists(OPERATIONS, max_size=40))
def test_whatever_befalls_its_readers_each_message_is_had_once(operations: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        paths = TeamPaths(Path(folder) / ".team")
        paths.create()
        world = World(paths)
        for work, *arguments in operations:
            work(world, *arguments)
        world.finish()
        assert sorted(world.had) == sorted(world.wanted)
