"""Where the time of a turn, a wake, a spawn and a start goes: `python -m tests.bench.steps`.

A step ends where a given function begins or ends, in any process; the next step begins there.
Recording costs a few microseconds per step. The last step, except of a start, ends when the whole
request has reached the server, which answers at once.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from teamd import control
from teamd.control import ControlRequest
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.bench import imitation
from tests.bench.ruler import machine, median, options, table
from tests.bench.turn import Team
from tests.waiting import wait_until

_MARKS: Final = Path(__file__).with_name("marks")
# A delayed process may record the end of its step after the next step of another process.
_MORE_ROUNDS: Final = 5  # at most, until each scene was completely recorded
_RESTED_SECONDS: Final = 0.8  # by then the supervisor is idle again


@dataclass(frozen=True, slots=True)
class Step:
    """One of the consecutive steps of a scene.

    Attributes:
        what: the work in this step.
        why: the reason for it.
        place: the function that ends the step, with `>` for its begin, `<` for its end.
        supervisor: whether the step ends in the supervisor's process.
    """

    what: str
    why: str
    place: str
    supervisor: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A line of the recorded events."""

    moment: float
    process: int
    place: str


_ANSWERED: Final = (
    Step("the reply comes, and is read", "the model's own, and the SDK's",
         "<teamd.models.claude:Claude.reply"),
    Step("what it took is written down", "limits hold, whoever is killed next",
         "<teamd.budget.ledger:Ledger.settle"),
    Step("the reply is written down", "it is paid, and is not asked for twice",
         "<teamd.agent.conversation.conversation:Conversation.add_reply"),
)  # fmt: skip
_ASKS: Final = (
    Step("a slot is asked for, and granted", "few calls at once for a key, and all in their turn",
         "<teamd.agent.throttle:CallSlots.take"),
    Step("the most it may cost is kept back, and synced",
         "no call exceeds a limit, power cut or not", "<teamd.budget.ledger:Ledger.reserve"),
    Step("the conversation is on the disk", "what the model is asked about is never forgotten",
         "<teamd.agent.conversation.conversation:Conversation.settle"),
    Step("the request is encoded", "what is new of it alone; the rest is kept as it was sent",
         "<teamd.models.claude:Claude._body"),
)  # fmt: skip
_SENT: Final = "the SDK sends it, and the server has it"
_SDK: Final = "the SDK's own"
_TAKES: Final = (
    Step("mail is taken", "in hand, and nobody else's, before it is forgotten in the inbox",
         "<teamd.mail.mailbox:Mailbox.take"),
    Step("it stands in the conversation", "each message once, whoever is killed",
         "<teamd.agent.conversation.conversation:Conversation.deliver"),
)  # fmt: skip
_RESULT: Final = Step(
    "the result is written down", "a killed teammate goes on behind it",
    "<teamd.agent.conversation.conversation:Conversation.add_result",
)  # fmt: skip
READ: Final = (
    *_ANSWERED,
    Step("the call is allowed, and noted", "one that acts is never begun twice",
         "<teamd.agent.conversation.conversation:Conversation.begin_call"),
    _RESULT,
    *_ASKS,
)  # fmt: skip
BASH: Final = (
    *_ANSWERED,
    Step("the call is allowed, noted, and synced", "one that acts is never begun twice",
         "<teamd.agent.conversation.conversation:Conversation.begin_call"),
    Step("what stays as it is, is looked at and held", "hooks and the like run outside the sandbox",
         "<teamd.sandbox.placeholders:Placeholders.hold"),
    Step("bubblewrap's words are put together", "a sandbox for this very moment",
         ">subprocess:Popen.__init__"),
    Step("bubblewrap makes the sandbox", "the kernel's namespaces and mounts",
         "<teamd.programs.sandboxed:Gate.wait"),
    Step("what is mounted is compared with what was meant", "a link in the way leads nowhere",
         "<teamd.programs.sandboxed:Gate.open"),
    Step("bash runs the command, and all of it ends", "the command's own",
         ">teamd.sandbox.shells:SandboxedShell._clear"),
    Step("what no mount can hold is put right", "links, and a repository that was just made",
         "<teamd.sandbox.shells:SandboxedShell._clear"),
    _RESULT,
    *_ASKS,
)  # fmt: skip
WAKE: Final = (
    Step("the supervisor sees the mail, and rings", "nobody polls, and one looks for all",
         "<teamd.supervisor.children:Children.ring", supervisor=True),
    Step("the teammate wakes, and looks whether it may", "paused or asked to end, it takes none",
         ">teamd.mail.mailbox:Mailbox.take"),
    *_TAKES,
    *_ASKS,
)  # fmt: skip
SPAWN: Final = (
    Step("the supervisor sees the request", "nobody polls",
         ">teamd.supervisor.handlers:carry_out", supervisor=True),
    Step("the prompt is put, and synced", "the work is not lost, whoever is killed",
         ">teamd.supervisor.children:Children._fork_process", supervisor=True),
    Step("its process is forked", "a fork copies the table of all pages",
         ">teamd.agent.child:live"),
    Step("its files, tools and conversation are opened", "a teammate of its own",
         "<teamd.agent.child:build_loop"),
    *_TAKES,
    *_ASKS,
)  # fmt: skip
START: Final = (
    Step("Python starts", "the command's own process", "<python"),
    Step("the command is understood", "its modules, and what was said",
         ">teamd.__main__:_start_in_background"),
    Step("a process is started", "it outlives the terminal, and hides its memory", "<python"),
    Step("that one's modules are loaded", "all but the SDK, which comes behind",
         ">teamd.daemon:serve"),
    Step("the team is claimed, the supervisor built", "never two of one team; the sandbox is tried",
         ">teamd.supervisor.supervisor:Supervisor.resume"),
    Step("teammates are begun, and declared ones admitted", "all go on where they were",
         "<teamd.supervisor.supervisor:Supervisor.resume"),
)  # fmt: skip
_ENDED: Final = "the command says so, and ends"
_SCENES: Final = {
    "a turn with bash": (BASH, (_SENT, _SDK)),
    "a turn with read_file": (READ, (_SENT, _SDK)),
    "a wake": (WAKE, (_SENT, _SDK)),
    "a spawn": (SPAWN, (_SENT, _SDK)),
    "teamd start": (START, (_ENDED, "requests are taken by now")),
}


class Scene:
    """A team whose processes record their steps.

    Args:
        root: an empty folder.
    """

    def __init__(self, root: Path, service: imitation.Imitation) -> None:
        self.team, self._service = Team(root, service), service
        self._paths, self._notes = TeamPaths(self.team.folder / ".team"), root / "notes"
        places = {one.place[1:] for steps, _ in _SCENES.values() for one in steps} - {"python"}
        self.team.environment |= {
            "PYTHONPATH": str(_MARKS),
            "BENCH_MARKS": str(self._notes),
            "BENCH_PLACES": " ".join(sorted(places)),
        }

    def notes(self) -> list[Note]:
        """Return the recorded events since the last call."""
        lines = self._notes.read_text(encoding="ascii").splitlines()
        os.truncate(self._notes, 0)
        found = (line.split() for line in lines)
        return sorted(
            (Note(float(moment), int(process), place) for moment, process, place in found),
            key=lambda note: note.moment,
        )

    @property
    def supervisor(self) -> int:
        """The pid of the supervisor."""
        found = pidfile.supervisor(self._paths)
        assert found is not None
        return found.pid

    def turns(self, tool: str, given: dict[str, str], calls: int) -> list[tuple[float, float]]:
        """Have a teammate call a tool so many times; return the times of consecutive requests."""
        self._service.seen()
        self._service.answer(tool=tool, given=given, calls=calls + 1)
        self.team.run("teamctl", "send", "ann", "go on")
        seen: list[imitation.Request] = []

        def done() -> bool:
            seen.extend(self._service.seen())
            return len(seen) > calls

        wait_until(done, timeout_seconds=120, what="the turns are over")
        self._rest("ann")
        return [(one.whole, other.whole) for one, other in pairwise(seen)]

    def wake(self) -> tuple[float, float]:
        """Send mail to an idle teammate; return the times of sending and of its request."""
        self._service.answer()
        return self._asked("ann", lambda: Mailbox(self._paths, "ann", durable=False).put(_mail()))

    def spawn(self, name: str) -> tuple[float, float]:
        """Request a teammate; return the times of that request and of its first model request."""
        self._service.answer()
        facts = {"name": name, "role": "clerk", "prompt": "Go."}
        request = ControlRequest.within(60, "spawn", arguments=facts)
        return self._asked(name, lambda: control.submit(self._paths, request))

    def start(self) -> tuple[float, float]:
        """Start the supervisor; return the times when the command began and ended."""
        begun = time.monotonic()
        self.team.run("teamd", "start")
        return begun, time.monotonic()

    def _asked(self, name: str, do: Any) -> tuple[float, float]:
        time.sleep(_RESTED_SECONDS)
        self._service.seen()
        begun = time.monotonic()
        do()
        self._service.wait_for(name, after=begun)
        (whole,) = (one.whole for one in self._service.seen() if one.name == name)
        self._rest(name)
        return begun, whole

    def _rest(self, name: str) -> None:
        roster = Roster(self._paths)
        wait_until(lambda: roster.read().get(name).status is Status.IDLE, what="it is idle")


def _mail() -> Message:
    return Message(sender="lead", to="ann", content="go on")


def split(
    steps: Sequence[Step], notes: Iterable[Note], supervisor: int, begun: float, ended: float
) -> list[float] | None:
    """Return the seconds of each step and of the rest; `None` if a step was not recorded."""
    moments, left = [begun], iter(notes)
    for step in steps:
        moment = next(
            (
                note.moment
                for note in left
                if moments[-1] <= note.moment <= ended
                and note.place == step.place
                and (note.process == supervisor) == step.supervisor
            ),
            None,
        )
        if moment is None:
            return None
        moments.append(moment)
    return [after - before for before, after in pairwise([*moments, ended])]


def measure(rounds: int, calls: int) -> dict[str, list[list[float]]]:
    """Return the seconds of the steps of each scene, for each round."""
    found: dict[str, list[list[float]]] = {scene: [] for scene in _SCENES}

    def keep(scene: str, spans: Iterable[tuple[float, float]], supervisor: int) -> None:
        notes = subject.notes()
        for begun, ended in spans:
            took = split(_SCENES[scene][0], notes, supervisor, begun, ended)
            found[scene] += [took] if took else []

    with tempfile.TemporaryDirectory() as name, imitation.running() as service:
        subject = Scene(Path(name), service)
        for number in range(rounds + _MORE_ROUNDS):
            if number >= rounds and all(found.values()):
                break
            span = subject.start()
            keep("teamd start", [span], 0)
            pid = subject.supervisor
            try:
                # This ends when everything that a start loads in the background is ready, and ann
                # has worked.
                _ = subject.wake() if number else subject.spawn("ann")
                subject.notes()
                keep("a spawn", [subject.spawn(f"t{number}")], pid)
                keep("a wake", [subject.wake()], pid)
                for tool, given in (
                    ("bash", {"command": "true # {}"}),
                    ("read_file", {"path": "note.txt", "limit": "{}"}),
                ):
                    keep(f"a turn with {tool}", subject.turns(tool, given, calls), pid)
            finally:
                subject.team.run("teamd", "stop", "--timeout", "60")
    return found


def main() -> int:
    """Print a table for each scene; return 1 if a scene was never completely recorded."""
    short = options(__doc__).short
    figures = measure(1 if short else 12, 3 if short else 10)
    print(machine())
    for scene, (steps, (last, why)) in _SCENES.items():
        took = figures[scene]
        if not took:
            print(f"{scene}: a step was never seen", file=sys.stderr)
            return 1
        names = [*((step.what, step.why) for step in steps), (last, why)]
        rows = [["step", "median ms", "why"]]
        for (what, reason), each in zip(names, zip(*took, strict=True), strict=True):
            rows.append([what, _ms(median(each)), reason])
        rows.append(["all", _ms(median([sum(one) for one in took])), ""])
        print(table(scene, rows))
    return 0


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


if __name__ == "__main__":
    sys.exit(main())
