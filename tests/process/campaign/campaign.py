"""A team at work, and somebody who kills its processes one after the other."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from teamd.identity import Identity
from teamd.store import running
from teamd.store.mailbox import Mailbox
from tests.process.campaign import places
from tests.process.campaign.ledger import Ledger
from tests.process.campaign.places import Place
from tests.process.campaign.play import Play
from tests.process.campaign.streams import Streams
from tests.process.campaign.target import kill_at
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tests.e2e.harness import Project

NAMES: Final = ("alice", "bob", "carol", "dave")
# A short memory for crashes, so that a teammate that is killed again and again is back at once.
SETTINGS: Final = "[supervision]\ncrashes = 1000000\nwithin_seconds = 0.05\n"
SENDERS: Final = 2
TEAMMATE_PLACES: Final = (
    Place.TAKE,
    Place.DELIVERED,
    Place.STREAM,
    Place.TOOL,
    Place.SENT,
)
_PATIENCE_SECONDS: Final = 3.0
_TRIES: Final = 20
_SENDER = Path(__file__).with_name("sender.py")


class Campaign:
    """One team and its killer.

    Attributes:
        hits: the kills by place.
        killed: the kills by whom they hit.
        ledger: what was sent.
    """

    def __init__(self, project: Project, seed: str) -> None:
        self._project = project
        self._chance = Random(seed)
        self._streams = Streams()
        self._play = Play(NAMES, Random(f"{seed} play"))
        self._senders: list[subprocess.Popen[str]] = []
        self._labels = 0
        self.hits: Counter[Place] = Counter()
        self.killed: Counter[str] = Counter()
        self.ledger = Ledger(project, NAMES)

    def begin(self) -> None:
        """Start the team, and let everybody work."""
        project = self._project
        project.write("team.toml", SETTINGS)
        project.server.faults = self._streams
        project.start()
        for name in NAMES:
            project.stage.act(name, self._play)
            project.do("teamctl", "spawn", name, "clerk", "Go.")
        for _ in range(SENDERS):
            self._begin_sender()

    def kill(self, wanted: Place) -> None:
        """Kill somebody at a place; for `ELSEWHERE`, wherever it is."""
        for _ in range(_TRIES):
            if self._kill_once(wanted):
                return
        raise AssertionError(f"in {_TRIES} tries nobody was found {wanted}")

    def _kill_once(self, wanted: Place) -> bool:
        if wanted in TEAMMATE_PLACES:
            return self._kill_teammate(wanted)
        if wanted in (Place.ROSTER, Place.CONTROL):
            return self._kill_supervisor(wanted)
        if wanted is Place.SEND:
            return self._chance.choice((self._kill_sender, self._kill_command))(wanted)
        kill = self._chance.choice((self._kill_teammate, self._kill_sender, self._kill_supervisor))
        return kill(None)

    def _kill_teammate(self, wanted: Place | None) -> bool:
        name = self._chance.choice(NAMES)

        def who() -> Identity | None:
            return _identity(self._project.member(name))

        def place_of(pid: int) -> Place:
            return places.of_teammate(self._project.paths, name, pid, self._streams)

        hit = self._kill("teammate", who, place_of, wanted)
        if hit:
            self._streams.forget(name)
        return hit

    def _kill_supervisor(self, wanted: Place | None) -> bool:
        paths = self._project.paths
        hit = self._kill(
            "supervisor",
            lambda: running.supervisor(paths),
            lambda pid: places.of_supervisor(paths, pid),
            wanted,
        )
        if hit:
            self._project.start()
        return hit

    def _kill_sender(self, wanted: Place | None) -> bool:
        sender = self._chance.choice(self._senders)
        hit = self._kill_program("sender", sender, wanted)
        if hit:
            sender.wait()
            self._senders.remove(sender)
            self._begin_sender()
        return hit

    def _kill_command(self, wanted: Place | None) -> bool:
        """Kill `teamctl send`, and send the same again under the same id, as one may."""
        self._labels += 1
        to, content = self._chance.choice(NAMES), f"command-{self._labels}"
        argv = ("teamctl", "send", to, content, "--id", content)
        command = self._project.begin(*argv, stdout=subprocess.DEVNULL)
        hit = self._kill_program("teamctl send", command, wanted)
        status = command.wait()
        assert status in (0, -signal.SIGKILL), f"{argv} ended with {status}"
        if status:
            self._project.do(*argv)
        self.ledger.commands.append((to, content))
        return hit

    def _kill_program(
        self, kind: str, program: subprocess.Popen[str], wanted: Place | None
    ) -> bool:
        paths = self._project.paths
        return self._kill(
            kind,
            lambda: Identity.of(program.pid),
            lambda pid: places.of_sender(paths, pid),
            wanted,
            comes_back=False,
        )

    def _kill(
        self,
        kind: str,
        who: Callable[[], Identity | None],
        place_of: Callable[[int], Place],
        wanted: Place | None,
        *,
        comes_back: bool = True,
    ) -> bool:
        place = kill_at(
            who,
            place_of,
            wanted,
            chance=self._chance,
            patience_seconds=_PATIENCE_SECONDS,
            comes_back=comes_back,
        )
        if place is not None:
            self.hits[place] += 1
            self.killed[kind] += 1
        return place is not None

    def _begin_sender(self) -> None:
        self._labels += 1
        label = f"sender{self._labels}"
        acknowledged = self._project.root / label
        self.ledger.files.append(acknowledged)
        argv = (sys.executable, _SENDER, self._project.paths.root, label, acknowledged, *NAMES)
        self._senders.append(self._project.begin(*map(str, argv)))

    def settle(self) -> None:
        """Let the senders end, and wait until everybody has read all mail and is idle."""
        for sender in self._senders:
            assert sender.poll() is None, f"a sender ended with {sender.returncode}"
            sender.kill()
            sender.wait()
        self._play.quiet = True
        for name in NAMES:
            wait_until(lambda: self._rests(name), timeout_seconds=30, what=f"{name} rests")  # noqa: B023
        self._project.do("teamctl", "inbox")

    def _rests(self, name: str) -> bool:
        member = self._project.member(name)
        box = Mailbox(self._project.paths, name)
        return (
            not box.waiting()
            and member["status"] == "idle"
            and member["turns"] == self.ledger.replies(name)
            and member["reason"] is None
            and (process := _identity(member)) is not None
            and process.alive
        )


def _identity(member: Mapping[str, Any]) -> Identity | None:
    if member["pid"] is None or member["started"] is None:
        return None
    return Identity(pid=member["pid"], started=member["started"])
