"""The outbox for another host, and the small files about how far its mail has come."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import NotAMessage, StoreError, Unsynced
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import (
    MAX_LINE_BYTES,
    ConfirmedPosition,
    Outbox,
    OutboxFull,
    OutLine,
    count_waiting,
)
from teamd.hosts.places import HostPlaces
from teamd.postman.process import read_folder, take_name, write_folder


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    paths = TeamPaths(tmp_path / ".team")
    paths.root.mkdir()
    return Outbox(paths, "h2", durable=False)


def write(outbox: Outbox, *ids: str, content: str = "x") -> None:
    for made in ids:
        outbox.append(to="bob", team="project", message={"id": made, "content": content})


def ids(outbox: Outbox) -> list[Any]:
    return [line.fields["message"]["id"] for line in outbox.read() if line.fields]


def test_lines_are_read_in_the_order_of_their_senders(outbox: Outbox) -> None:
    write(outbox, "a", "b", "é\u2028")
    first, *rest = outbox.read()
    assert first.fields == {
        "kind": "mail", "to": "bob", "team": "project", "message": {"id": "a", "content": "x"},
    }  # fmt: skip
    assert first.is_mail
    assert not first.is_damaged
    assert list(outbox.read(len(first.raw))) == rest
    assert ids(outbox) == ["a", "b", "é\u2028"]
    assert count_waiting(outbox.paths, "h2") == 3


def test_a_missing_outbox_is_empty(outbox: Outbox) -> None:
    assert list(outbox.read()) == []
    assert count_waiting(outbox.paths, "h2") == 0


def test_a_message_that_no_broker_accepts_is_refused(outbox: Outbox) -> None:
    with pytest.raises(NotAMessage, match="over the 1000000 that another host takes"):
        write(outbox, "a", content="x" * 1_000_000)
    with pytest.raises(NotAMessage, match="a message cannot hold an infinite number"):
        outbox.append(to="bob", team="project", message={"timestamp": float("inf")})
    assert not outbox.path.exists()


def test_a_full_outbox_is_reported_in_a_sentence_and_one_message_always_fits(
    outbox: Outbox,
) -> None:
    small = replace(outbox, max_bytes=10)
    write(small, "one")
    with pytest.raises(OutboxFull, match=r"too much mail waits for h2: \[hosts\] outbox_bytes, 10"):
        write(small, "two")
    small.remove_start(small.path.stat().st_size)
    write(small, "three")
    assert ids(outbox) == ["three"]


def test_a_message_whose_sync_failed_is_stored_once_and_its_id_is_reported(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message may be on disk, so appending it again could send it twice."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    durable = replace(outbox, durable=True)
    write(durable, "m-1")
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Unsynced, match="send it again with `--id m-2`"):
        write(durable, "m-2")
    assert outbox.path.read_bytes().count(b"m-2") == 1


@pytest.mark.parametrize("torn", [b"{", b'{"kind": "mail", "to": "b', b"x" * 9000])
@pytest.mark.parametrize("before", [(), ("a", "b")])
def test_a_torn_last_line_is_not_read_and_the_next_sender_removes_it(
    outbox: Outbox, before: tuple[str, ...], torn: bytes
) -> None:
    """Its sender was killed, and nobody was told that the message was written."""
    HostPlaces(outbox.paths).create()
    write(outbox, *before)
    with outbox.path.open("ab") as file:
        file.write(torn)
    assert ids(outbox) == [*before]
    assert count_waiting(outbox.paths, "h2") == len(before)
    write(outbox, "c")
    assert ids(outbox) == [*before, "c"]
    assert torn not in outbox.path.read_bytes().splitlines()


@pytest.mark.parametrize(
    ("raw", "mail", "damaged"),
    [
        (b'{"kind": "mail"}\n', True, False),
        (b'{"n": 1, "chain": "x", "kind": "mail", "to": "bob"}\n', True, False),
        (b'{"epoch": "e", "first": 1, "chain": ""}\n', False, False),
        (b'{"n": 1, "chain": "x", "kind": "request"}\n', False, False),
        (b'{"kind": ["mail"]}\n', False, False),
        (b"[]\n", False, True),
        (b"\n", False, True),
        (b"\0\xff\n", False, True),
        (b'{"kind": "mail"' + b" " * MAX_LINE_BYTES + b"}\n", True, True),
    ],
)
def test_lines_of_other_kinds_are_told_from_mail_and_from_damage(
    raw: bytes, *, mail: bool, damaged: bool
) -> None:
    line = OutLine.decode(raw)
    assert (line.is_mail, line.is_damaged) == (mail, damaged)


MADE = st.none() | st.integers() | st.text(max_size=9) | st.from_regex(r"[A-Za-z0-9-]{1,120}")


@given(MADE, st.text(max_size=5))
def test_the_key_of_a_line_fits_into_a_header_and_depends_on_the_link(made: Any, to: str) -> None:
    raw = json.dumps({"kind": "mail", "to": to, "message": {"id": made}}).encode() + b"\n"
    line = OutLine.decode(raw)
    key = line.key("h1>h2")
    assert key == OutLine.decode(raw).key("h1>h2")
    assert key != line.key("h1>h3")
    assert key.replace("-", "").isalnum()
    assert key.isascii()
    assert len(key) <= 121


def test_one_id_to_two_receivers_gives_two_keys(outbox: Outbox) -> None:
    for name in ("bob", "carol"):
        outbox.append(to=name, team="project", message={"id": "m-1"})
    one, other = (line.key("h1>h2") for line in outbox.read())
    assert one != other
    assert one.startswith("m-1-")


def test_the_start_is_removed_once_it_is_a_quarter_of_the_file(outbox: Outbox) -> None:
    write(outbox, *"abcdefgh")
    size = outbox.path.stat().st_size // 8
    assert outbox.remove_start(size) == size
    assert ids(outbox) == [*"abcdefgh"]
    assert outbox.remove_start(2 * size) == 0
    assert ids(outbox) == [*"cdefgh"]
    assert outbox.remove_start(6 * size) == 0
    assert outbox.path.read_bytes() == b""


def test_a_start_beyond_the_end_removes_nothing(outbox: Outbox) -> None:
    """A person has changed the file; its lines are sent again."""
    write(outbox, "a")
    assert outbox.remove_start(10_000) == 0
    assert ids(outbox) == ["a"]


def test_a_removal_waits_for_a_writer_and_then_fails_without_a_change(outbox: Outbox) -> None:
    write(outbox, "a")
    before = outbox.path.read_bytes()
    with locks.locked(outbox.path), pytest.raises(StoreError):
        replace(outbox, patience_seconds=0.01).remove_start(len(before))
    assert outbox.path.read_bytes() == before


def test_a_folder_in_place_of_an_outbox_is_a_store_error(outbox: Outbox) -> None:
    HostPlaces(outbox.paths).create()
    outbox.path.mkdir()
    with pytest.raises(StoreError):
        list(outbox.read())
    with pytest.raises(StoreError):
        write(outbox, "a")


def test_damaged_lines_are_collected_in_a_file_of_which_nothing_is_sent(outbox: Outbox) -> None:
    write(outbox, "a")
    for raw in (b"\xff\n", b"[]\n"):
        outbox.keep_aside(OutLine.decode(raw))
    rejected = outbox.path.with_name("h2.rejected.jsonl")
    assert rejected.read_bytes() == b"\xff\n[]\n"
    assert HostPlaces(outbox.paths).known() == ["h2"]


def test_a_position_is_read_as_it_was_written_and_counts_what_waits(outbox: Outbox) -> None:
    write(outbox, "a", "b", "c")
    path = HostPlaces(outbox.paths).confirmed("h2")
    ConfirmedPosition(7, "key", 2).write(path, durable=False)
    assert ConfirmedPosition.read(path) == ConfirmedPosition(7, "key", 2)
    assert count_waiting(outbox.paths, "h2") == 1
    ConfirmedPosition(7, "key", 9).write(path, durable=False)
    assert count_waiting(outbox.paths, "h2") == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"rubbish",
        b"{}\n",
        b"[]\n",
        b'{"n": 1}\n',
        b'{"n": "1", "key": "a"}\n',
        b'{"epoch": "e", "n": 3, "chain": "c"}\n'.ljust(512),
        b'{"n": 3, "key": "a", "chain": "c"}\n',
    ],
)
def test_a_position_of_another_version_or_a_damaged_one_counts_as_missing(
    outbox: Outbox, content: bytes
) -> None:
    write(outbox, "a")
    path = HostPlaces(outbox.paths).confirmed("h2")
    path.write_bytes(content)
    assert ConfirmedPosition.read(path) is None
    assert count_waiting(outbox.paths, "h2") == 1


def test_a_renamed_host_forgets_the_counts_of_its_former_name_and_keeps_its_mail(
    outbox: Outbox,
) -> None:
    places = HostPlaces(outbox.paths)
    write(outbox, "a")
    files = [places.received("h2"), places.confirmed("h2")]
    for path in files:
        path.write_text('{"n": 1}\n')
    for _ in range(2):
        take_name(outbox.paths, "h1", durable=False)
        assert all(path.exists() for path in files), "a first name is not a change"
    take_name(outbox.paths, "h9", durable=False)
    assert not any(path.exists() for path in files)
    assert ids(outbox) == ["a"]
    assert places.name.read_text() == "h9\n"


def test_a_folder_keeps_its_id_until_it_turns_out_to_be_an_old_copy(outbox: Outbox) -> None:
    HostPlaces(outbox.paths).create()
    first = read_folder(outbox.paths, durable=False)
    assert first["former"] == ""
    assert read_folder(outbox.paths, durable=False) == first
    other = write_folder(outbox.paths, first["folder"], durable=False)
    assert other["folder"] != first["folder"]
    assert other["former"] == first["folder"]
    assert read_folder(outbox.paths, durable=False) == other


@pytest.mark.parametrize("content", ["", "{", "[]", '{"folder": 7, "former": ""}'])
def test_a_damaged_id_of_a_folder_is_replaced(outbox: Outbox, content: str) -> None:
    places = HostPlaces(outbox.paths)
    places.create()
    places.folder_id.write_text(content)
    found = read_folder(outbox.paths, durable=False)
    assert read_folder(outbox.paths, durable=False) == found
    assert len(found["folder"]) == 16
