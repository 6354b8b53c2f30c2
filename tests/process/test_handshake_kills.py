"""Every handshake ends and is answered once, no matter which process is killed when."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.team.states import Status
from tests.children import kill_at_each_step
from tests.e2e.harness import Project
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.unit.life import enrol
from tests.waiting import wait_until

QUESTION: Final = Approval(
    id="f00df00d", type=Kind.PLAN, asker="bob", to="lead", content="x", asked=1.0
)
BUSY: Final = "touch busy-{name}; until [ -e go-{name} ]; do sleep 0.1; done"
REQUEST: Final = re.compile(r'type="shutdown_request" request_id="([^"]+)"')
VICTIMS: Final = ("teammate", "supervisor", "teamctl")
STEPS: Final = ("asked", "read", "answered")
# Each step with one answer: whether the teammate approves.
SOME: Final = tuple(zip(STEPS, (True, False, True), strict=True))
EVERY: Final = tuple(itertools.product(STEPS, (True, False)))


@pytest.mark.slow
@pytest.mark.parametrize("step", ["ask", "answer"])
def test_one_question_and_one_answer_arrive_after_a_kill_before_any_file_operation(
    tmp_path: Path, step: str
) -> None:
    """A repeated request or the next check completes the handshake; each message is sent once."""

    def act(arm: Callable[[], None]) -> None:
        own = Approvals(paths, MailRouter(paths, durable=True, max_bytes=10_000))
        arm()
        if step == "ask":
            own.ask(QUESTION)
        else:
            own.answer(QUESTION.id, by="lead", approve=True)

    for kill in kill_at_each_step(least=10):
        paths = TeamPaths(tmp_path / str(kill.number) / ".team")
        enrol(paths, bob=Status.IDLE)
        post = MailRouter(paths, durable=False, max_bytes=10_000)
        approvals = Approvals(paths, post)
        if step == "answer":
            approvals.ask(QUESTION)
        kill.during(act)
        if approvals.open_ones() or not approvals.all():  # the request was not recorded: repeat it
            approvals.ask(QUESTION)
            approvals.answer(QUESTION.id, by="lead", approve=True)
        list(approvals.repeat())
        (there,) = approvals.all()
        assert (there.status, there.told) == ("approved", True)
        for name, sent in (("lead", "f00df00d"), ("bob", "f00df00d-answer")):
            assert {message.id for message in post.mailbox(name).peek()} == {sent}


class Round:
    """One handshake with a kill of the victim at one step."""

    def __init__(self, project: Project, name: str, victim: str, step: str, approve: bool) -> None:
        self.project = project
        self.name = name
        self.victim = victim
        self.step = step
        self.approve = approve
        self.killed = False
        self.teamctl: subprocess.Popen[str] | None = None

    def play(self) -> None:
        """Ask, kill the victim, and wait for the end."""
        project, name = self.project, self.name
        project.stage.act(name, self._model)
        project.do("teamctl", "spawn", name, "clerk", "Go.")
        wait_until((project.folder / f"busy-{name}").exists, what="it works")
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.teamctl = project.begin("teamctl", "shutdown", name, "--timeout", "5", **quiet)
        wait_until(lambda: self.question().get("sent"), what="it is asked")
        if self.step == "asked":
            self.kill()
        project.write(f"go-{name}", "")
        if self.step == "answered":
            wait_until(lambda: self.question()["status"] != "open", what="the answer")
            self.kill()
        wait_until(lambda: self.killed, what="the kill")
        if self.victim == "supervisor":
            project.start()
        wait_until(self.ended, timeout_seconds=40, what=f"the end of {self.__dict__}")

    def status(self) -> int:
        """Wait for the end of `teamctl shutdown` and return its exit status."""
        assert self.teamctl is not None
        return self.teamctl.wait(40)

    def kill(self) -> None:
        if self.killed:
            return
        assert self.teamctl is not None
        pids = {
            "teammate": self.project.member(self.name)["pid"],
            "supervisor": self.project.supervisor,
            "teamctl": self.teamctl.pid,
        }
        if (pid := pids[self.victim]) is not None:
            # A teammate that has answered may already have ended.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.killed = True

    def question(self) -> dict[str, Any]:
        """Return the request from its file, or an empty dictionary before the file exists."""
        for path in self.project.paths.requests.glob("*.json"):
            found: dict[str, Any] = json.loads(path.read_bytes())
            if found["to"] == self.name:
                return found
        return {}

    def ended(self) -> bool:
        """Return whether the handshake and its consequences are complete on disk."""
        question = self.question()
        if question["status"] == "open" or not question["told"]:
            return False
        member = self.project.member(self.name)
        down = (member["status"], member["pid"], question["settled"]) == ("shutdown", None, True)
        return question["status"] == "rejected" or down

    def _model(self, asked: Asked) -> Answer:
        found = REQUEST.search(asked.last_text)
        if found is None:
            if len(asked.turns) == 1:
                return use(("bash", {"command": BUSY.format(name=self.name)}))
            return say("Nothing to do.")
        if self.step == "read":
            self.kill()
        given = {"request_id": found[1], "approve": self.approve, "reason": "so"}
        return use(("shutdown_response", given))


@pytest.mark.slow
@pytest.mark.timeout(400)  # handshakes of real processes, with one kill each
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize(
    "steps", [SOME, pytest.param(EVERY, marks=pytest.mark.long)], ids=["some", "every"]
)
def test_every_handshake_completes_whichever_process_is_killed_at_any_step(
    project: Project, victim: str, steps: tuple[tuple[str, bool], ...]
) -> None:
    """Users of the nearest product complain about shutdowns that never end."""
    project.start()
    rounds = [Round(project, f"n{n}", victim, *step) for n, step in enumerate(steps)]
    begun = time.monotonic()
    for one in rounds:
        one.play()
        question = one.question()
        if victim == "teamctl":
            assert one.status() == -signal.SIGKILL or one.step == "answered"
        elif victim == "teammate" and question["status"] == "approved":
            assert one.status() == 0
        answers = project.mail("lead").count(f'"id": "{question["id"]}-answer"')
        assert (answers >= 1) is (question["status"] != "expired")
        if question["status"] == "rejected":
            project.run("teamctl", "shutdown", one.name, "--force")
    shown = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    told = [m["request_id"] for m in shown if m["type"] == "shutdown_response"]
    assert len(told) == len(set(told))
    assert json.loads(project.do("teamctl", "requests", "--json"))["requests"] == []
    # After kills of the supervisor all commands wait for their timeouts at the same time.
    for one in rounds:
        one.status()
    ended = time.monotonic() - begun
    print(f"{len(rounds)} handshakes with a kill of the {victim} ended in {ended:.0f} s")  # noqa: T201 -- pytest -s
