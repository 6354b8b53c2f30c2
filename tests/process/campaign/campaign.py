"""A working team and the killing of its processes, one after the other."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from teamd.files import locks, pidfile
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, Message
from teamd.process_id import Identity
from tests.e2e.harness import Project
from tests.process.campaign import places
from tests.process.campaign.killer import Killer
from tests.process.campaign.ledger import Ledger
from tests.process.campaign.places import Place, Streams
from tests.strict.asked import Asked
from tests.strict.replies import Answer, Call, say, use
from tests.waiting import wait_until


class Person:
    """Sends and reads mail as the person.

    Args:
        names: the receivers of the mail.
        ledger: records the acknowledged messages.
        label: a prefix of the contents, but not of the message ids.
    """

    def __init__(
        self,
        project: Project,
        names: tuple[str, ...],
        chance: Random,
        killer: Killer,
        ledger: Ledger,
        *,
        label: str = "",
    ) -> None:
        self._project = project
        self._names = names
        self._chance = chance
        self._killer = killer
        self._ledger = ledger
        self._label = label
        self._count = 0
        self._printed = project.root / "printed"

    @property
    def printed(self) -> str:
        """All output of `teamctl inbox`."""
        return self._printed.read_text(encoding="utf-8")

    def be_killed_sending(self, wanted: Place | None) -> bool:
        """Kill `teamctl send` and repeat half of the killed commands under the same id.

        A message of a command that was not repeated was never acknowledged: it may be delivered
        once.
        """
        self._count += 1
        made = f"command-{self._count}"
        to, content = self._chance.choice(self._names), f"{self._label}{made}"
        argv = ("teamctl", "send", to, content, "--id", made)
        command = self._project.begin(*argv, installed=True, stdout=subprocess.DEVNULL)
        paths = self._project.paths
        hit = self._killer.kill(
            "teamctl send",
            lambda: Identity.of(command.pid),
            lambda pid: places.of_sender(paths, pid),
            wanted,
            comes_back=False,
        )
        status = command.wait()
        assert status in (0, -signal.SIGKILL), f"{argv} ended with {status}"
        if status and self._count % 2:
            self._project.do(*argv)
            status = 0
        if not status:
            self._ledger.commands.append((to, content))
        return hit

    def be_killed_reading(self) -> bool:
        """Kill `teamctl inbox` while it takes at least one message."""
        paths = self._project.paths
        self._count += 1
        content = f"{self._label}note-{self._count}"
        Mailbox(paths, LEAD).put(Message(sender=self._names[0], to=LEAD, content=content))
        self._ledger.commands.append((LEAD, content))
        # Without the lock, the command would end before it is seen. The lock holds it at the inbox.
        with self._printed.open("ab") as printed, locks.locked(paths.inbox(LEAD)):
            command = self._project.begin("teamctl", "inbox", installed=True, stdout=printed)
            wait_until(lambda: places.of_reader(paths, command.pid) is Place.DRAIN)
        hit = self._killer.kill(
            "teamctl inbox",
            lambda: Identity.of(command.pid),
            lambda pid: places.of_reader(paths, pid),
            Place.DRAIN,
            comes_back=False,
        )
        status = command.wait()
        assert status in (0, -signal.SIGKILL), f"teamctl inbox ended with {status}"
        return hit

    def read(self) -> None:
        with self._printed.open("ab") as printed:
            printed.write(self._project.do("teamctl", "inbox").encode())


RUNAWAY: Final = ["sleep", "1000"]  # leaves the process group of its command
_LONG: Final = f"setsid {' '.join(RUNAWAY)} & sleep 60"


class Play:
    """A model that always acts until it is told to be quiet.

    Attributes:
        quiet: whether the model only ends its turns from now on.
        long_for: the teammate that runs long commands, whose child leaves the process group.

    Args:
        names: the teammates.
        chance: the source of its decisions.
        rests: the probability that it ends its turn.
    """

    def __init__(self, names: tuple[str, ...], chance: random.Random, rests: float = 0.2) -> None:
        self._names = names
        self._chance = chance
        self._rests = rests
        self._count = 0
        self._lock = threading.Lock()
        self.quiet = False
        self.long_for: str | None = None

    def __call__(self, asked: Asked) -> Answer:
        with self._lock:
            if self.quiet:
                return say("That is all for now.")
            if asked.name == self.long_for:
                return use(("bash", {"command": _LONG}))
            if self._chance.random() < self._rests:
                return say("That is all for now.")
            return use(*(self._call(asked.name) for _ in range(self._chance.choice((1, 1, 2, 3)))))

    def _call(self, name: str) -> Call:
        self._count += 1
        if self._chance.random() < 0.4:
            seconds = self._chance.choice(("0.01", "0.02", "0.05"))
            unlike = f"# {self._count}"  # a repeated call is answered as an error
            return "bash", {"command": f"echo begun; sleep {seconds}; echo done {unlike}"}
        to = self._chance.choice([other for other in (*self._names, "lead") if other != name])
        return "send_message", {"to": to, "content": f"tool-{name}-{self._count}"}


NAMES: Final = ("alice", "bob", "carol", "dave")
# Crashes are forgotten fast, so that a teammate restarts at once after repeated kills. Each killed
# call counts with its full reservation: hundreds of them would reach a normal daily limit. An idle
# teammate hibernates at once, so that kills hit hibernation too.
SETTINGS: Final = """\
[supervision]
hibernate_seconds = 0.02
crashes = 1000000
within_seconds = 0.05
[limits]
team_usd_per_day = 1000000.0
"""
TEAMMATE_PLACES: Final = (
    Place.TAKE,
    Place.DELIVERED,
    Place.STREAM,
    Place.TOOL,
    Place.SENT,
)
_TRIES: Final = 20
_SENDER = Path(__file__).with_name("sender.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The members of the team and the amount of their work.

    Attributes:
        names: the teammates.
        far: addresses on other hosts that receive mail as well.
        host: the name of this host, empty if there is no other.
        settings: additional content of `team.toml`.
        senders: the number of programs that send mail.
        pause_seconds: the average pause between two messages of one sender.
        rests: the probability that a teammate ends its turn.
    """

    names: tuple[str, ...] = NAMES
    far: tuple[str, ...] = ()
    host: str = ""
    settings: str = ""
    senders: int = 2
    pause_seconds: float = 0.03
    rests: float = 0.2

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.names, *self.far)


class Campaign:
    """One team and its killer.

    Attributes:
        hits: the number of kills by place.
        killed: the number of kills by kind of process.
        ledger: the sent messages.
        killer: kills the processes.
    """

    def __init__(self, project: Project, seed: str, crew: Crew = Crew()) -> None:
        self._project = project
        self._crew = crew
        self._chance = Random(seed)
        self._streams = Streams()
        self._play = Play(crew.all, Random(f"{seed} play"), crew.rests)
        self._senders: list[subprocess.Popen[str]] = []
        self._labels = 0
        self.ledger = Ledger(project, crew.names)
        self.killer = Killer(self._chance)
        self.hits: Counter[Place] = self.killer.hits
        self.killed: Counter[str] = self.killer.killed
        self._person = Person(
            project, crew.all, self._chance, self.killer, self.ledger, label=crew.host
        )
        self._special = {
            Place.DRAIN: self._person.be_killed_reading,
            Place.START: self._kill_starting,
            Place.BOTH: self._kill_both,
        }

    def prepare(self) -> None:
        self._project.write("team.toml", SETTINGS + self._crew.settings)

    def begin(self) -> None:
        """Start the team and all work."""
        self.enrol()
        self.work()

    def enrol(self) -> None:
        """Start the team; its members exist but have no work yet."""
        self.prepare()
        self._project.start()
        for name in self._crew.names:
            self._project.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")

    def work(self) -> None:
        """Start the work of all teammates and senders."""
        project = self._project
        project.server.faults = self._streams
        for name in self._crew.names:
            project.stage.act(name, self._play)
        for _ in range(self._crew.senders):
            self._begin_sender()

    def go_down(self, end: Callable[[Sequence[int]], None]) -> None:
        """End all processes at once and start again from the disk.

        Args:
            end: ends the processes, given the pids of those that teamd did not start.
        """
        end([sender.pid for sender in self._senders])
        for sender in self._senders:
            sender.wait()
        self._senders.clear()
        for name in self._crew.names:
            self._streams.forget(name)
        self.killed["host"] += 1
        self._project.start()
        for _ in range(self._crew.senders):
            self._begin_sender()

    def kill(self, wanted: Place) -> None:
        """Kill a process at a place; for `ELSEWHERE`, at any place."""
        for _ in range(_TRIES):
            if self.kill_once(wanted):
                return
        raise AssertionError(f"in {_TRIES} tries nobody was found {wanted}")

    def kill_once(self, wanted: Place) -> bool:
        """Try to kill a process at a place; return whether a process was killed there."""
        if wanted in TEAMMATE_PLACES:
            return self._kill_teammate(wanted)
        if wanted in (Place.ROSTER, Place.CONTROL):
            return self._kill_supervisor(wanted)
        if wanted is Place.SEND:
            return self._chance.choice((self._kill_sender, self._person.be_killed_sending))(wanted)
        if wanted in self._special:
            return self._special[wanted]()
        kill = self._chance.choice((self._kill_teammate, self._kill_sender, self._kill_supervisor))
        return kill(None)

    def _kill_teammate(self, wanted: Place | None, name: str | None = None) -> bool:
        name = name or self._chance.choice(self._crew.names)

        def place_of(pid: int) -> Place:
            return places.of_teammate(self._project.paths, name, pid, self._streams)

        hit = self.killer.kill("teammate", lambda: self._process(name), place_of, wanted)
        if hit:
            self._streams.forget(name)
        return hit

    def _kill_supervisor(self, wanted: Place | None, *, again: bool = True) -> bool:
        paths = self._project.paths
        hit = self.killer.kill(
            "supervisor",
            lambda: pidfile.supervisor(paths),
            lambda pid: places.of_supervisor(paths, pid),
            wanted,
        )
        if hit and again:
            self._project.start()
        return hit

    def _kill_sender(self, wanted: Place | None) -> bool:
        sender = self._chance.choice(self._senders)
        paths = self._project.paths
        hit = self.killer.kill(
            "sender",
            lambda: Identity.of(sender.pid),
            lambda pid: places.of_sender(paths, pid),
            wanted,
            comes_back=False,
        )
        if hit:
            sender.wait()
            self._senders.remove(sender)
            self._begin_sender()
        return hit

    def _kill_starting(self) -> bool:
        """Kill a supervisor that has claimed the team but has not reported that it is ready."""
        if not self._kill_supervisor(None, again=False):
            return False
        paths = self._project.paths
        nowhere = subprocess.DEVNULL
        command = self._project.begin(
            "teamd", "start", installed=True, stdout=nowhere, stderr=nowhere
        )
        hit = self.killer.kill(
            "supervisor",
            lambda: pidfile.supervisor(paths),
            lambda pid: places.of_starting(paths, pid),
            Place.START,
        )
        assert (command.wait() == 0) != hit, f"{hit}, and it ended with {command.returncode}"
        if hit:
            self._project.start()
        return hit

    def _kill_both(self) -> bool:
        """Kill a teammate with a running tool and its supervisor.

        None of their processes may survive.
        """
        name = self._chance.choice(self._crew.names)
        paths = self._project.paths
        self._play.long_for = name
        hit = self.killer.kill(
            "teammate",
            lambda: self._process(name),
            lambda pid: places.of_commander(paths, name, pid, self._streams, RUNAWAY),
            Place.BOTH,
            along=lambda: pidfile.supervisor(paths),
        )
        self._play.long_for = None
        if hit:
            self.killed["supervisor"] += 1
            wait_until(lambda: not self._left(), what="all under the killed has ended")
            self._streams.forget(name)
            self._project.start()
        else:  # its long command would take a minute
            self._kill_teammate(None, name)
        return hit

    def _left(self) -> list[str]:
        """Return the command lines of all processes except the senders."""
        senders = {sender.pid for sender in self._senders}
        return [line for pid, line in self._project.survivors().items() if pid not in senders]

    def _process(self, name: str) -> Identity | None:
        return _identity(self._project.member(name))

    def _begin_sender(self) -> None:
        self._labels += 1
        label = f"{self._crew.host}sender{self._labels}"
        acknowledged = self._project.root / label
        self.ledger.files.append(acknowledged)
        given = (label, acknowledged, self._crew.pause_seconds, self._crew.host, *self._crew.all)
        argv = (sys.executable, _SENDER, self._project.paths.root, *given)
        self._senders.append(self._project.begin(*map(str, argv)))

    def settle(self) -> None:
        """Stop the senders, then wait until all teammates have read their mail and are idle."""
        self.hush()
        self.rest()
        self._person.read()

    def hush(self) -> None:
        """Stop the senders; teammates only end their turns from now on."""
        for sender in self._senders:
            assert sender.poll() is None, f"a sender ended with {sender.returncode}"
            sender.kill()
            sender.wait()
        self._senders.clear()
        self._play.quiet = True

    def rest(self, timeout_seconds: float = 30) -> None:
        """Wait until all teammates have read their mail and are idle."""
        for name in self._crew.names:
            wait_until(
                lambda: self._rests(name),  # noqa: B023
                timeout_seconds=timeout_seconds,
                what=f"{name} rests",
            )

    def read(self) -> None:
        self._person.read()

    @property
    def unseen(self) -> list[str]:
        """Messages that are recorded as read by the person but were never displayed."""
        return self.ledger.unseen(self._person.printed)

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
