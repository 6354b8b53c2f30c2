"""Two ends of a link after one of them lost data: both report it, in either order of hellos."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from teamd.hosts.places import HostPlaces
from tests.hosts.wire import Side, World

SENT = 8
LONG = "x" * 6000  # after three confirmed lines the outbox is shortened


@pytest.mark.parametrize("content", [b"", bytes(512)], ids=["killed", "power cut"])
def test_a_cursor_file_that_was_never_written_is_not_damage(tmp_path: Path, content: bytes) -> None:
    """Its writer was stopped after creating the file: no line had arrived yet."""
    with closing(World(tmp_path)) as made:
        HostPlaces(made.right.paths).received(made.left.name).write_bytes(content)
        made.right.begin()
        made.connect()
        made.left.send()
        made.heal()
        assert made.right.inbox.ids() == made.left.acknowledged
        assert [*made.left.reports, *made.right.reports] == []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two ends: one message has crossed, then its receiver was copied, then more have crossed."""
    with closing(World(tmp_path)) as made:
        made.connect()
        made.left.send()
        made.heal()
        made.right.copy(tmp_path / "copy")
        for _ in range(SENT):
            made.left.send(text=LONG)
            made.heal()
        yield made


def asked_first(world: World, first: Side) -> None:
    """Let one end say hello before the other is connected."""
    other = world.other(first)
    other.link.connected(world.now)
    other.out.clear()  # the other end was not connected yet
    first.link.connected(world.now)
    world.heal()


@pytest.mark.parametrize("first", ["a", "b"])
def test_lines_missing_in_an_old_copy_are_sent_again_or_counted_by_both(
    world: World, tmp_path: Path, first: str
) -> None:
    left, right = world.sides
    for side in world.sides:
        side.link.disconnected()
    right.come_back(tmp_path / "copy", world.now)
    asked_first(world, left if first == "a" else right)
    gone = 1 + SENT - len(right.inbox.ids())
    assert gone > 1
    assert len(set(right.inbox.ids())) == 1 + SENT - gone
    assert right.reports == [f"this team's folder is an old copy: {gone} messages from it are gone"]
    assert left.reports[0] == (
        f"it is an old copy of its folder: {gone} messages that it had are gone"
    )
    assert right.inbox.ids()[1:] == left.acknowledged[1 + gone :], "without any new message"


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_lost_folder_is_reported_by_both(world: World, tmp_path: Path, first: str) -> None:
    left, right = world.sides
    for side in world.sides:
        side.link.disconnected()
    right.come_back(tmp_path / "none", world.now)
    asked_first(world, left if first == "a" else right)
    assert right.inbox.ids() == []
    had = 1 + SENT
    assert left.reports == [f"it has lost its folder: {had} messages that it had are gone with it"]
    assert right.reports == [
        f"this team's folder is a new one: {had} messages from it came to an earlier one"
    ]
