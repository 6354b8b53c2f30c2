"""The link over a wire that loses, repeats and reorders, between postmen that are killed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.hosts.cursor import Cursor
from teamd.hosts.lines import MAIL, REQUEST, OutLine
from teamd.postman.frames import LineFrame
from teamd.postman.incoming import Incoming
from teamd.postman.outgoing import Outgoing
from tests.hosts.wire import Side, World

WIRE: Final = ("arrive", "all", "lose", "repeat")

BAD_WIRE = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.integers(1, 40)),
    st.tuples(st.just("request"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("arrive"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("arrive"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("all"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("lose"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("repeat"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(0, 1), st.integers(1, 9)),
    st.tuples(st.just("restart"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("arm"), st.integers(0, 1), st.integers(1, 8)),
    st.tuples(st.just("cut"), st.integers(0, 1), st.just(0)),
)
COPIES = st.one_of(
    BAD_WIRE,
    st.tuples(st.just("copy"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("come back"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("lose folder"), st.integers(0, 1), st.just(0)),
)


def play(world: World, what: str, which: int, count: int) -> None:
    """Do one step at a side or on the wire."""
    side = world.sides[which]
    if what in WIRE:
        if side.out:
            play_wire(world, what, side, count)
    elif what in ("copy", "come back", "lose folder"):
        play_copies(world, what, side)
    elif what in ("send", "request"):
        for _ in range(count if what == "send" else 1):
            side.send(MAIL if what == "send" else REQUEST)
        world.look(side)
    else:
        play_process(world, what, side, count)


def play_process(world: World, what: str, side: Side, count: int) -> None:
    if what == "wait":
        world.wait(float(count))
    elif what == "restart":
        side.restart(world.now)
    elif what == "arm":
        side.fuse.left = count
    else:
        for one in world.sides:
            one.out.clear()
            one.link.disconnected()
        world.connect()


def play_wire(world: World, what: str, side: Side, count: int) -> None:
    place = count % len(side.out)
    if what == "all":
        frames, side.out[:] = list(side.out), []
        world.hear(world.other(side), *frames)
    elif what == "repeat":
        world.hear(world.other(side), side.out[place])
    else:
        frame = side.out.pop(place)
        if what == "arrive":
            world.hear(world.other(side), frame)


def play_copies(world: World, what: str, side: Side) -> None:
    if what == "copy":
        side.copy(world.folder / f"{side.name}.copy")
    else:
        copy = f"{side.name}.copy" if what == "come back" else "none"
        side.come_back(world.folder / copy, world.now)


def find_fault(world: World, steps: Iterable[tuple[str, int, int]]) -> str:
    """Play the steps, heal the wire, and return the first fault, or an empty text."""
    world.connect()
    for what, which, count in steps:
        play(world, what, which, count)
    world.heal()
    for side in world.sides:
        there = world.other(side)
        if there.inbox.ids() != side.acknowledged:
            return f"{there.name} has {there.inbox.ids()}, not {side.acknowledged}"
        if len(there.asked) != len(set(there.asked)):
            return "a request came twice"
        if side.reports or side.link.outgoing.waiting:
            return f"{side.name} is not at rest: {side.reports}"
    return ""


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(BAD_WIRE, max_size=60))
def test_every_line_arrives_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    with TemporaryDirectory() as folder, closing(World(Path(folder))) as world:
        assert find_fault(world, steps) == ""


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(COPIES, max_size=60))
def test_old_copies_and_lost_folders_duplicate_nothing(steps: list[tuple[str, int, int]]) -> None:
    """A loss with a folder is reported by the side that knows of it; later lines arrive."""
    with TemporaryDirectory() as folder, closing(World(Path(folder))) as world:
        world.connect()
        for what, which, count in steps:
            play(world, what, which, count)
        world.heal()
        later = {side.name: [side.send() for _ in range(3)] for side in world.sides}
        world.heal()
        for side in world.sides:
            there = world.other(side)
            got = there.inbox.ids()
            assert len(got) == len(set(got))
            assert got[-3:] == later[side.name]
            assert len(there.asked) == len(set(there.asked))
            missing = set(side.acknowledged) - set(got) - side.unsent
            assert missing <= there.forgotten
            assert not missing or side.reports or there.reports


class SentIsDone(Outgoing):
    """Treats sent lines as confirmed."""

    def take(self) -> Iterator[LineFrame]:
        """Send, and forget."""
        yield from super().take()
        if self._flying and self.header is not None:
            last = self._flying[-1]
            self.confirm(Cursor(self.header.epoch, last.n, last.chain))


class CursorFirst(Incoming):
    """Records received lines before they are in an inbox."""

    def _deliver(self, lines: list[OutLine]) -> None:
        self._note(lines[-1])
        super()._deliver(lines)


class Believing(Incoming):
    """Treats no line as delivered before."""

    def _deliver(self, lines: list[OutLine]) -> None:
        self._suspected = 0
        super()._deliver(lines)


@pytest.mark.parametrize(
    ("halves", "found"),
    [
        ((Outgoing, Incoming), False),
        ((SentIsDone, Incoming), True),
        ((Outgoing, CursorFirst), True),
        ((Outgoing, Believing), True),
    ],
    ids=["sound", "sent is done", "cursor before inbox", "no de-duplication"],
)
def test_each_deliberate_fault_in_the_link_is_found(
    tmp_path: Path, halves: tuple[type[Outgoing], type[Incoming]], found: bool
) -> None:
    """Three well-known faults of such links; the steps above must reveal each."""
    faults = set()
    for seed in range(5):
        chance = random.Random(seed)
        steps = [random_step(chance) for _ in range(100)]
        with closing(World(tmp_path / str(seed), halves=halves)) as world:
            faults.add(find_fault(world, steps))
    assert (faults != {""}) == found


def random_step(chance: random.Random) -> tuple[str, int, int]:
    what = chance.choice(["send", "arrive", "lose", "wait", "restart", *4 * ["all"], *2 * ["arm"]])
    return what, chance.randrange(2), chance.randint(1, 5)
