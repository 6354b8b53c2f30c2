"""Two machines and a simulated wire that the test controls; all files are real."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from teamd.files.paths import TeamPaths
from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.lines import MAIL, REQUEST, OutLine
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.postman.incoming import Incoming
from teamd.postman.link import Link
from teamd.postman.outgoing import WINDOW_LINES, Outgoing

MOST_ROUNDS: Final = 60
BATCH_LINES: Final = 3  # few, so that received lines need several rounds


class Killed(BaseException):
    """The process was killed at this point."""


@dataclass(slots=True)
class Fuse:
    """Kills the process at the nth effect on files; 0 for never."""

    left: int = 0

    def burn(self) -> None:
        """Count an effect, and raise `Killed` at the chosen one."""
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed


@dataclass(slots=True)
class DeadlyCursor(CursorFile):
    """A cursor whose writer may be killed before or after the write."""

    fuse: Fuse = field(default_factory=Fuse)

    def write(self, cursor: Cursor) -> None:
        """Write, and possibly be killed before or after."""
        self.fuse.burn()
        CursorFile.write(self, cursor)
        self.fuse.burn()


@dataclass(slots=True)
class Inbox:
    """A receiver that stores ids in a file, and skips known ids if lines are suspected."""

    path: Path
    fuse: Fuse
    asked: list[str] = field(default_factory=list)

    def deliver(self, _: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Append the ids."""
        ids = [line.fields()["message"]["id"] for line in lines]
        if suspected:
            known = set(self.ids())
            ids = [one for one in ids if one not in known]
        self.fuse.burn()
        with self.path.open("a") as file:
            file.writelines(f"{json.dumps(one)}\n" for one in ids)
        self.fuse.burn()

    def act(self, _: str, line: dict[str, Any]) -> None:
        """Record the request."""
        self.asked.append(line["id"])

    def ids(self) -> list[str]:
        """Return the ids of all mail in order."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@dataclass(slots=True)
class Side:
    """One machine.

    Attributes:
        out: the frames that it has sent and that are not delivered yet.
        acknowledged: the ids that its senders were told are safe.
        halves: the classes for the halves of the link; a test may use broken ones.
        unsent: the ids that were lost with the folder before the other side may have got them.
        forgotten: the ids of mail that was lost with the folder.
    """

    name: str
    far: str
    folder: Path
    out: list[bytes] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    halves: tuple[type[Outgoing], type[Incoming]] = (Outgoing, Incoming)
    reports: list[str] = field(default_factory=list)
    unsent: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    fuse: Fuse = field(default_factory=Fuse)
    asked: list[str] = field(default_factory=list)
    link: Link = field(init=False)
    _made: int = 0

    def __post_init__(self) -> None:
        self.begin()

    @property
    def paths(self) -> TeamPaths:
        return TeamPaths(self.folder / ".team")

    @property
    def inbox(self) -> Inbox:
        """The receiver of mail on this machine."""
        return Inbox(self.folder / "inbox", self.fuse, self.asked)

    @property
    def outbox(self) -> Outbox:
        """The outbox for the other machine."""
        return Outbox(self.paths, self.far, durable=False, max_bytes=1 << 16)

    def begin(self) -> None:
        """Start the postman."""
        self.paths.root.mkdir(parents=True, exist_ok=True)
        places = HostPlaces(self.paths)
        places.create()
        report = self.reports.append
        confirmed = DeadlyCursor(places.confirmed(self.far), durable=False, fuse=self.fuse)
        received = DeadlyCursor(places.received(self.far), durable=False, fuse=self.fuse)
        outgoing_type, incoming_type = self.halves
        incoming = incoming_type(
            self.far, received, self.inbox, window=WINDOW_LINES, batch=BATCH_LINES, report=report
        )
        outgoing = outgoing_type(self.outbox, confirmed, report=report)
        self.link = Link(outgoing, incoming, self.out.append)

    def restart(self, now: float) -> None:
        """Kill the postman, and start another one."""
        self.fuse.left = 0
        self.link.close()
        self.begin()
        self.link.connected(now)

    def send(self, kind: str = MAIL, text: str = "") -> str:
        """Append a line; return its id."""
        self._made += 1
        made = f"{self.name}{self._made}"
        if kind == REQUEST:
            self.outbox.append(REQUEST, id=made)
        else:
            self.outbox.append(MAIL, to="bob", message={"id": made, "content": text})
            self.acknowledged.append(made)
        return made

    def copy(self, to: Path) -> None:
        """Copy the folder."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.folder, to)

    def waiting(self) -> set[str]:
        """Return the ids in the outbox."""
        if not self.outbox.path.exists():
            return set()
        lines = map(json.loads, self.outbox.path.read_text().splitlines()[1:])
        return {line["message"]["id"] for line in lines if line["kind"] == MAIL}

    def come_back(self, copy: Path, now: float) -> None:
        """Continue with a copy of the folder, without any later changes."""
        self.link.close()
        waited, had = self.waiting(), set(self.inbox.ids())
        shutil.rmtree(self.folder)
        if copy.exists():
            shutil.copytree(copy, self.folder)
        else:
            self.folder.mkdir()
        self.unsent |= waited - self.waiting()
        self.forgotten |= had - set(self.inbox.ids())
        self.begin()
        self.link.connected(now)


@dataclass(slots=True)
class World:
    """Two machines.

    Attributes:
        halves: the classes for the halves of both links; a test may use broken ones.
    """

    folder: Path
    now: float = 0.0
    halves: tuple[type[Outgoing], type[Incoming]] = (Outgoing, Incoming)
    left: Side = field(init=False)
    right: Side = field(init=False)

    def __post_init__(self) -> None:
        self.left = Side("a", "b", self.folder / "a", halves=self.halves)
        self.right = Side("b", "a", self.folder / "b", halves=self.halves)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right

    def other(self, side: Side) -> Side:
        """Return the machine at the other end of the wire."""
        return self.right if side is self.left else self.left

    def connect(self) -> None:
        """Connect both machines to the broker."""
        for side in self.sides:
            side.link.connected(self.now)

    def look(self, side: Side) -> None:
        """Make a postman check its outbox."""
        self.do(side, lambda: side.link.look(self.now))

    def hear(self, side: Side, *payloads: bytes) -> None:
        """Deliver frames to a side in one round."""

        def hear() -> None:
            for payload in payloads:
                side.link.heard(payload, self.now)
            side.link.finish(self.now)

        self.do(side, hear)

    def do(self, side: Side, deed: Any) -> None:
        """Call `deed`, and restart the postman if it is killed by that."""
        try:
            deed()
        except Killed:
            side.restart(self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for side in self.sides:
            self.do(side, lambda side=side: side.link.due(self.now))

    def exchange(self) -> bool:
        """Deliver all frames in order; return whether there were any."""
        moved = False
        for side in self.sides:
            frames, side.out[:] = list(side.out), []
            if frames or self.other(side).link.pending:
                moved = True
                self.hear(self.other(side), *frames)
        return moved

    def heal(self) -> None:
        """Let time pass on a reliable wire until nothing moves."""
        for side in self.sides:
            side.fuse.left = 0
            self.look(side)
        for _ in range(MOST_ROUNDS):
            while self.exchange():
                pass
            self.wait(61.0)
            if not any(side.out for side in self.sides):
                return
        raise AssertionError("the two never come to rest")

    def close(self) -> None:
        """Close the descriptors."""
        for side in self.sides:
            side.link.close()
