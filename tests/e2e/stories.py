"""Models and settings that several end-to-end tests share."""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from teamd.agent.conversation.prompts import DEMAND
from tests.e2e.harness import Project, opened
from tests.strict.asked import Asked, Model
from tests.strict.exchange import Accepted, Plan
from tests.strict.faults import (
    MISSHAPEN,
    SPOILT,
    Cut,
    ErrorEvent,
    Fault,
    Malformed,
    Reset,
    Stall,
    Status,
    Trickle,
)
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

SPOILT_FILE: Final = "spoilt"  # written by a client that runs half a call
HALF: Final = use(("bash", {"command": f"touch {SPOILT_FILE}"}))
TRACES: Final = (SPOILT.text, SPOILT_FILE)
TURNS_A_WAKE: Final = 4
_MOST_IN_A_ROW: Final = 4
_TOO_LONG: Final = "4000000"  # seconds, 46 days: no service means that
_DATE: Final = "Wed, 21 Oct 2099 07:28:00 GMT"
_STREAMS: Final = (Cut, Malformed, ErrorEvent, Reset)
_MAKERS: Final[tuple[Callable[[], Fault], ...]] = (
    *(lambda s=status: Status(s) for status in (408, 409, 429, 500, 503, 504, 529)),
    *(
        lambda a=asked: Status(429, retry_after=a)
        for asked in (0.01, 0, "-5", "soon", "nan", "1e999", _TOO_LONG, "", _DATE)
    ),
    lambda: Status(529, retry_after=_TOO_LONG),
    lambda: Status(502, html=True),
    lambda: Status(503, html=True, retry_after=_DATE),
    Reset,
    Stall,
    lambda: Stall(after=4),
    lambda: Stall(after=6, answer=HALF),
    lambda: ErrorEvent(type="api_error"),
    *(lambda k=kind, a=after: k(after=a) for kind in _STREAMS for after in (0, 1, 4)),
    *(lambda k=kind: k(after=6, answer=HALF) for kind in _STREAMS),
    *(lambda f=fault: f for fault in MISSHAPEN),
)


class Weather(Plan):
    """The faults for each turn; if a turn is lost on its way, its retry succeeds.

    Attributes:
        struck: how often each kind was used.
    """

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._seed = seed
        self._coming: dict[tuple[str, int], list[Fault]] = {}
        self.struck: Counter[str] = Counter()

    def take(self, asked: Asked) -> Fault | None:
        """Return the fault for this request."""
        with self._lock:
            turn = asked.name, turn_of(asked)
            if turn not in self._coming:
                self._coming[turn] = self._forecast(*turn)
                self._watch(*self._coming[turn])
            coming = self._coming[turn]
            fault = coming.pop(0) if coming else None
            if fault is not None:
                self.struck[type(fault).__name__] += 1
            return fault

    @property
    def left(self) -> int:
        """The number of drawn faults that have not been used."""
        with self._lock:
            return sum(map(len, self._coming.values()))

    def _forecast(self, name: str, turn: int) -> list[Fault]:
        chance = Random(f"{self._seed} {name} {turn}")
        faults: list[Fault] = []
        for _ in range(chance.randrange(_MOST_IN_A_ROW + 1)):
            faults.append(chance.choice(_MAKERS)())
            if isinstance(faults[-1], Cut | Malformed):  # two of these in a row cause a pause
                faults.append(Status(503))
        return [*faults, Trickle()] if chance.random() < 0.2 else faults


def turn_of(asked: Asked) -> int:
    """Return the number of the requested turn of a teammate, counted from 0."""
    return sum(turn.role == "assistant" for turn in asked.turns)


def words(name: str, turn: int) -> str:
    """Return a teammate's words that occur only in this turn."""
    return f"{name} has come to turn {turn}."


def play(asked: Asked) -> Answer:
    """Play a wake: a command, mail to the lead, both at once, and the end."""
    name, turn = asked.name, turn_of(asked)
    mark = f"{name}-{turn}"
    bash = ("bash", {"command": f"echo {mark} >> done"})
    send = ("send_message", {"to": "lead", "content": mark})
    calls = ((bash,), (send,), (bash, send), ())[turn % TURNS_A_WAKE]
    return say(words(name, turn), calls=calls)


# The contract's table with these additions: a command's `description?`, a task's `role?`, jobs that
# are all listed without a `job_id`, and a leading agent, which answers a shutdown_request as every
# teammate does, and interrupts and pauses its teammates.
ALL: Final = {
    "bash": "command timeout? description?",
    "read_file": "path offset? limit?",
    "write_file": "path content",
    "edit_file": "path old_text new_text replace_all?",
    "send_message": "to content summary?",
    "read_inbox": "",
    "task_create": "subject description? blocked_by? role? check?",
    "task_get": "task_id",
    "task_update": "task_id status? owner? add_blocked_by? remove_blocked_by? check?",
    "task_list": "",
    "claim_task": "task_id",
    "shutdown_response": "request_id approve reason?",
    "background_run": "command",
    "check_background": "job_id?",
    "stop_background": "job_id",
    "load_skill": "name",
}
TEAMMATE: Final = ALL | {"submit_plan": "plan"}
LEAD: Final = ALL | {
    "task": "prompt background? name? role? team?",
    "spawn_teammate": "name role prompt team?",
    "list_teammates": "",
    "broadcast": "content",
    "shutdown_request": "teammate",
    "interrupt_teammate": "teammate text?",
    "pause_teammate": "teammate",
    "resume_teammate": "teammate",
    "review_plan": "request_id approve feedback?",
    "create_team": "name",
    "delete_team": "name",
}


def inputs(accepted: Accepted) -> dict[str, str]:
    """Return the tools that the server received, with their inputs in the contract's notation."""
    found = {}
    for tool in accepted.body["tools"]:
        schema = tool["input_schema"]
        given = schema.get("properties", {})
        needed = schema.get("required", [])
        found[tool["name"]] = " ".join(key if key in needed else f"{key}?" for key in given)
    order = TEAMMATE | LEAD
    return {name: _in_order(text, order.get(name, "")) for name, text in found.items()}


def _in_order(found: str, wanted: str) -> str:
    """Return the same inputs in the contract's order, since the order does not matter."""
    return wanted if set(found.split()) == set(wanted.split()) else found


REQUEST = re.compile(r'type="shutdown_request" request_id="([^"]+)"')
WORK = "touch busy-{name}; until [ -e go-{name} ]; do sleep 0.02; done; rm go-{name}"


def at_work(team: Project, name: str) -> None:
    """Have a teammate run a command until `go-NAME` exists."""
    team.do("teamctl", "spawn", name, "clerk", "Go.")
    wait_until((team.folder / f"busy-{name}").exists, what=f"{name} works")


def ask_at_work(
    team: Project, name: str, *command: str, inbox: Path | None = None
) -> tuple[int, str, str]:
    """Ask a working teammate to shut down, and end its work once the request waits.

    Without work, it would answer at once, with the next model call.

    Args:
        team: where the command runs.
        name: the teammate at work.
        command: the words after `teamctl` that ask for the shutdown.
        inbox: where the request waits; by default this team's inbox.

    Returns:
        Its exit code, stdout and stderr.
    """
    busy, pipe = team.folder / f"busy-{name}", subprocess.PIPE
    inbox = inbox or team.paths.inbox(name)
    wait_until(busy.exists, what=f"{name} works")
    asking = team.begin("teamctl", *command, "--timeout", "50", stdout=pipe, stderr=pipe)
    wait_until(lambda: "shutdown_request" in inbox.read_text(), what="the request")
    busy.unlink()
    team.write(f"go-{name}", "")
    stdout, stderr = asking.communicate(timeout=60)
    return asking.returncode, stdout, stderr


def answering(name: str, *verdicts: tuple[bool, str]) -> Model:
    """Return a model that works, and answers shutdown requests with these verdicts, one each."""
    left = list(verdicts)

    def model(asked: Asked) -> Answer:
        found = REQUEST.findall(asked.last_text)
        if found:
            approve, reason = left.pop(0)
            given = {"request_id": found[-1], "approve": approve, "reason": reason}
            return use(("shutdown_response", given))
        return use(("bash", {"command": WORK.format(name=name)}))

    return model


CONTEXT = 6000  # tokens; tools and system prompt take over a third of them
TASK = "Do every step, one command each. The password is XYZZY; mail it to lead in the end."
STEP = re.compile(r"(?:step|through) (\d+)\b")
OUTPUT_BYTES = 3000


@contextmanager
def small(
    root: Path,
    settings: str = f"context_tokens = {CONTEXT}",
    *,
    context_tokens: int = CONTEXT,
    no_page_status: int | None = None,
) -> Iterator[Project]:
    """A project whose model and settings have a small context."""
    with opened(root, context_tokens=context_tokens, no_page_status=no_page_status) as project:
        project.write(
            "team.toml",
            f"[model]\n{settings}\n[limits]\ncalls_per_wake = 1000\n"
            "[supervision]\ncrashes = 1000\n[mail]\ndurability = 'os'\n",
        )
        yield project


def demands(asked: Asked) -> bool:
    return asked.last_text.endswith(DEMAND)


def steps(last: int) -> Model:
    """Return a model that does the steps, counting only those that are in the conversation."""

    def answer(asked: Asked) -> Answer:
        heard = asked.heard
        done = max((int(number) for number in STEP.findall(heard)), default=0)
        if demands(asked):
            return say(f"I have come through {done}.")
        if "sent to lead" in heard:
            return say("All is done.")
        if done >= last:
            found = re.search(r"The password is (\w+)", heard)
            password = found[1] if found else "forgotten"
            return use(("send_message", {"to": "lead", "content": f"It is {password}."}))
        command = f"echo {done + 1} >> steps; head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x; "
        return use(("bash", {"command": f"{command} echo; echo step {done + 1}"}), thinking="Hm.")

    return answer


def first_text(accepted: Accepted) -> str:
    return str(accepted.asked.messages[0]["content"][0]["text"])


def summarised(project: Project) -> list[Accepted]:
    """Return alice's requests that begin with a summary."""
    return [one for one in project.asked("alice") if "<summary>" in first_text(one)]


Line = tuple[str, Answer | Callable[[re.Match[str]], Answer]]


def told(*lines: Line) -> Model:
    """Return a model that says its lines in order, each once, when a pattern matches.

    Args:
        lines: a pattern and the answer once the conversation matches it; a function gets the last
            match. A teammate ends its turn until the next pattern matches.
    """
    left = deque(lines)
    lock = threading.Lock()

    def answer(asked: Asked) -> Answer:
        with lock:
            found = [*re.finditer(left[0][0], asked.heard)] if left else []
            if not found:
                return say("I wait.")
            _, line = left.popleft()
        return line if isinstance(line, Answer) else line(found[-1])

    return answer
