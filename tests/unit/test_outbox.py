"""The files of a link: their content, and the handling of damaged ones."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.errors import NotAMessage, Unsynced
from teamd.files.paths import TeamPaths
from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.lines import MAIL, REQUEST, START, OutLine
from teamd.hosts.outbox import Outbox, OutboxFull
from teamd.hosts.own_name import take_name
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import waiting
from tests.hosts.wire import World


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    paths = TeamPaths(tmp_path / ".team")
    paths.root.mkdir()
    return Outbox(paths, "h2", durable=False)


def test_lines_are_numbered_and_chained(outbox: Outbox) -> None:
    assert [outbox.append(MAIL, text=text) for text in "abc"] == [1, 2, 3]
    n, chain = 0, START
    for raw in outbox.path.read_bytes().splitlines(keepends=True)[1:]:
        line = OutLine.decode(raw)
        assert line is not None
        assert line.follows(n, chain)
        assert not line.follows(n + 1, chain)
        n, chain = line.n, line.chain
    assert waiting(outbox.paths, "h2") == 3


def test_a_message_that_no_broker_accepts_is_refused(outbox: Outbox) -> None:
    with pytest.raises(NotAMessage, match="over the 1000000 that another host takes"):
        outbox.append(MAIL, text="x" * 1_000_000)
    assert not outbox.path.exists()


def test_a_full_outbox_is_reported_in_a_sentence_and_one_message_always_fits(
    outbox: Outbox,
) -> None:
    small = Outbox(outbox.paths, "h2", durable=False, max_bytes=10)
    small.append(MAIL, text="one")
    with pytest.raises(OutboxFull, match=r"too much mail waits for h2: \[hosts\] outbox_bytes, 10"):
        small.append(MAIL, text="two")


def test_a_message_whose_sync_failed_is_stored_once_and_its_id_is_reported(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message may be on disk, so appending it again could send it twice."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    durable = replace(outbox, durable=True)
    durable.append(MAIL, message={"id": "m-1"})
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Unsynced, match="send it again with `--id m-2`"):
        durable.append(MAIL, message={"id": "m-2"})
    assert outbox.path.read_bytes().count(b"m-2") == 1


@pytest.mark.parametrize("where", ["first", "middle", "last", "behind", "changed"])
def test_a_damaged_outbox_is_kept_and_the_rest_arrives(tmp_path: Path, where: str) -> None:
    """Also if only senders run. A line that cannot be verified is not sent."""
    world = World(tmp_path)
    sent = [world.left.send(text=text) for text in ("one", "two", "three")]
    path = world.left.outbox.path
    hurt = {"middle": sent[1], "changed": sent[1], "last": sent[2]}
    header, *lines = path.read_bytes().splitlines(keepends=True)
    content = {
        "first": [b"rubbish\n", *lines],
        "middle": [header, lines[0], b"\0\xff\n", lines[2]],
        "last": [header, *lines[:2], b"[]\n"],
        "behind": [header, *lines, b"rubbish\n"],
        "changed": [header, lines[0], lines[1].replace(b"two", b"six"), lines[2]],
    }
    path.write_bytes(b"".join(content[where]))
    kept = path.read_bytes()
    if where in ("middle", "changed"):  # only the postman reads this far
        assert world.left.outbox.repair()
    later = world.left.send(text="later")
    assert kept in [one.read_bytes() for one in path.parent.glob("b.damaged-*")]
    world.connect()
    world.heal()
    arrived = [one for one in (*sent, later) if one != hurt.get(where)]
    assert world.right.inbox.ids() == arrived
    assert not world.left.outbox.repair()
    world.close()


def test_numbers_of_an_earlier_file_do_not_apply_to_a_file_without_a_header(outbox: Outbox) -> None:
    """The file was damaged twice while the other side was away; these lines were never sent."""
    for text in "abc":
        outbox.append(MAIL, text=text)
    header, *_, last = (json.loads(one) for one in outbox.path.read_bytes().splitlines())
    confirmed = CursorFile(HostPlaces(outbox.paths).confirmed("h2"), durable=False)
    confirmed.write(Cursor(header["epoch"], 3, last["chain"]))
    for text in "def":
        content = outbox.path.read_bytes()
        outbox.path.write_bytes(b"\0" * 20 + content[20:])
        outbox.append(MAIL, text=text)
    kept = [json.loads(one)["text"] for one in outbox.path.read_bytes().splitlines()[1:]]
    assert kept[-3:] == ["d", "e", "f"]


def test_after_damage_delivered_lines_are_not_sent_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = [world.left.send() for _ in range(3)]
    world.connect()
    world.heal()
    second = world.left.send(REQUEST), world.left.send()
    with world.left.outbox.path.open("ab") as file:
        file.write(b"rubbish\n")
    assert world.left.outbox.repair()
    world.heal()
    assert world.right.inbox.ids() == [*first, second[1]]
    assert world.right.asked == []
    world.close()


@pytest.mark.parametrize("torn", range(0, 512, 37))
def test_a_torn_cursor_file_gives_the_previous_cursor(tmp_path: Path, torn: int) -> None:
    """Damage to one of its two lines leaves the other; the torn one was never relied on."""
    file = CursorFile(tmp_path / "h2.json", durable=False)
    for n in (1, 2, 3):
        file.write(Cursor("e", n, "c"))
    content = file.path.read_bytes()
    third = b'"n": 3' in content[256:]
    start = 256 if third else 0
    inside = start + torn % 256
    file.path.write_bytes(content[:inside] + b"\0" * 5 + content[inside + 5 :])
    found = CursorFile(file.path, durable=False).read()
    assert found in (Cursor("e", 2, "c"), Cursor("e", 3, "c"))


@pytest.mark.parametrize("content", [b"", b"rubbish", b"{}\n", b'{"n": 1}' * 100])
def test_a_foreign_cursor_is_recognized_and_ignored(tmp_path: Path, content: bytes) -> None:
    file = CursorFile(tmp_path / "h2.json", durable=False)
    file.path.write_bytes(content)
    assert file.read() is None
    assert file.damaged


def test_a_damaged_cursor_is_reported_and_no_line_is_delivered_twice(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.connect()
    sent = [world.left.send() for _ in range(5)]
    world.heal()
    world.right.link.incoming.file.path.write_bytes(b"rubbish")
    world.right.restart(world.now)
    sent.append(world.left.send())
    world.heal()
    assert world.right.inbox.ids() == sent
    assert "its cursor was damaged" in world.right.reports[0]
    world.close()


def test_a_lost_folder_is_reported_on_both_sides_with_its_count(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.connect()
    for _ in range(5):
        world.left.send()
    world.heal()
    world.right.come_back(tmp_path / "none", world.now)
    world.heal()
    assert world.left.reports[0].startswith("it has lost its folder: 5 messages")
    assert "5 messages from it came to an earlier one" in world.right.reports[0]
    world.close()


def test_an_old_copy_of_a_sender_starts_a_new_epoch_and_duplicates_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.connect()
    first = [world.left.send() for _ in range(3)]
    world.left.copy(tmp_path / "copy")
    world.heal()
    first += [world.left.send() for _ in range(3)]
    world.heal()
    world.left.come_back(tmp_path / "copy", world.now)
    later = world.left.send()
    world.heal()
    assert world.right.inbox.ids() == [*first, later]
    assert "this team's folder is an old copy: 4 messages" in world.left.reports[0]
    assert "came back with an old copy" in world.right.reports[0]
    world.close()


def test_a_renamed_host_is_a_new_host(tmp_path: Path) -> None:
    """Lines of the former name are not reported as lost, and queued lines arrive."""
    world = World(tmp_path)
    world.left.send()
    world.right.send()
    world.connect()
    world.heal()
    paths, places = world.left.paths, HostPlaces(world.left.paths)
    assert take_name(paths, "a", durable=False) == {}
    assert take_name(paths, "a", durable=False) == {}
    assert places.received("b").exists()
    waits = world.left.send()
    world.left.send(REQUEST)
    (told,) = take_name(paths, "c", durable=False).values()
    assert told.startswith("this host was called a; what waited for it (1) is sent by c now, ")
    assert not places.received("b").exists()
    other = World(tmp_path / "other")
    shutil.rmtree(other.left.folder)
    shutil.copytree(world.left.folder, other.left.folder)
    other.left.restart(0.0)
    other.connect()
    other.heal()
    assert other.right.inbox.ids() == [waits]
    assert other.left.reports == other.right.reports == []
    assert take_name(paths, "c", durable=False) == {}
    world.close()
    other.close()
