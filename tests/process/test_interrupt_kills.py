"""An interrupt takes effect once and a pause holds, no matter which process is killed when."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

import pytest

from teamd import control
from teamd.errors import DeadlinePassed, ExitCode, NoTeamd
from teamd.messages import INTERRUPT_TYPE, TEAMD, Message
from teamd.transcript.records import Opened
from tests.children import kill_at_each_step
from tests.e2e.harness import Project
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.unit.life import SYSTEM, Life, replied
from tests.waiting import wait_until

INSTEAD: Final = "Do something else."
# After more than five crashes in a minute the supervisor would give the teammate up.
ROUNDS: Final = (2, pytest.param(5, marks=pytest.mark.long))
MOMENTS: Final = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
ANSWER_SECONDS: Final = 5.0
SEED_VARIABLE: Final = "TEAMD_INTERRUPT_SEED"


def in_a_turn(folder: Path) -> Life:
    """Make a life whose process was killed while a tool call of its teammate ran."""
    life = Life(folder, say("I do."))
    talk = life.conversation()
    talk.open(Opened(system=SYSTEM))
    talk.deliver([Message(sender="lead", to="alice", content="work")])
    reply = replied(use(("do", {"word": "a"}), ("do", {"word": "b"})))
    talk.add_reply(reply)
    talk.settle()
    life.judge.remember(reply)
    return life


@pytest.mark.slow
@pytest.mark.parametrize("text", [INSTEAD, ""])
def test_an_interrupt_takes_effect_once_after_a_kill_before_any_file_operation(
    tmp_path: Path, text: str
) -> None:
    """The next process neither repeats the interrupted call nor reads the text twice."""
    for kill in kill_at_each_step(least=10):
        life = in_a_turn(tmp_path / str(kill.number))
        life.send(text, type=INTERRUPT_TYPE)

        def act(arm: Callable[[], None], life: Life = life) -> None:
            async def deliver() -> None:
                async with life.made() as loop:
                    arm()
                    loop.delivery.deliver()

            asyncio.run(deliver())

        kill.during(act)
        life.live(calls=1 if text else 0)
        assert life.do.done == [], kill
        assert life.mailbox.peek() == [], kill
        lines = life.paths.transcript("alice").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        mails = [mail for one in records for mail in one.get("messages", [])]
        assert [mail["type"] for mail in mails].count("interrupt") == 1, kill


class Round:
    """One interrupt of a teammate during a long command, with a kill of the victim."""

    def __init__(self, project: Project, name: str, victim: str) -> None:
        self.project = project
        self.name = name
        self.victim = victim

    def play(self, wait: float) -> bool:
        """Interrupt, kill the victim after `wait` seconds, wait for the end.

        Returns:
            Whether teamd accepted the interrupt.
        """
        project, name = self.project, self.name
        project.stage.act(name, self._model)
        project.do("teamctl", "spawn", name, "clerk", "Go.")
        wait_until((project.folder / f"{name}.begun").exists, what="it works")
        pids = {"teammate": project.wait_for_process(name), "supervisor": project.supervisor}
        os.kill(pids["supervisor"], signal.SIGSTOP)  # so that the wait begins with the request
        with ThreadPoolExecutor(1) as person:
            asked = person.submit(self._interrupt)
            wait_until(lambda: project.paths.has_mail(TEAMD), what="the request")
            os.kill(pids["supervisor"], signal.SIGCONT)
            time.sleep(wait)  # a random moment, not a wait for an event
            os.kill(pids[self.victim], signal.SIGKILL)
            if self.victim == "supervisor":
                project.start()
            accepted = asked.result()
        project.wait_for(name, "idle")
        return accepted

    def told(self) -> int:
        """Count the copies of the text in the conversation."""
        mails = [
            one for record in self.project.records(self.name, "mail") for one in record["messages"]
        ]
        return sum(one["content"] == INSTEAD for one in mails)

    def begun(self) -> int:
        """Count how often the command was started."""
        return (self.project.folder / f"{self.name}.begun").read_text().count("x")

    def _interrupt(self) -> bool:
        """Ask as `teamctl interrupt` does, which would wait 30 s for a lost answer."""
        facts = {"name": self.name, "text": INSTEAD}
        try:
            reply = control.ask(
                self.project.paths, "interrupt", facts, timeout_seconds=ANSWER_SECONDS
            )
        except (NoTeamd, DeadlinePassed):
            return False
        return reply.exit_code is ExitCode.DONE

    def _model(self, asked: Asked) -> Answer:
        if len(asked.turns) == 1:
            return use(("bash", {"command": f"echo x >> {self.name}.begun; sleep 1000"}))
        return say("I do.")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("victim", ["teammate", "supervisor"])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_an_interrupt_takes_effect_once_whichever_process_is_killed(
    project: Project, victim: str, rounds: int
) -> None:
    """An accepted text is read once, and the interrupted command has ended."""
    seed = os.environ.get(SEED_VARIABLE, "1")
    chance = Random(seed)
    project.start()
    done = 0
    for number in range(rounds):
        one = Round(project, f"n{number}", victim)
        accepted = one.play(chance.choice(MOMENTS))
        assert one.told() == 1 if accepted else one.told() <= 1
        assert one.begun() == 1
        done += accepted
    assert not [line for line in project.survivors().values() if "sleep 1000" in line]
    print(f"{SEED_VARIABLE}={seed}: {done} of {rounds} accepted, a {victim} killed in each")  # noqa: T201


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("victim", ["teammate", "supervisor"])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_pause_holds_whichever_process_is_killed(
    project: Project, victim: str, rounds: int
) -> None:
    chance = Random(2)
    project.start()
    project.do("teamctl", "spawn", "alice", "clerk", "Go.", "--wait")
    for turns in range(1, rounds + 1):
        project.wait_for("alice", "idle", turns=turns)
        pids = {"teammate": project.wait_for_process("alice"), "supervisor": project.supervisor}
        project.do("teamctl", "pause", "alice")
        time.sleep(chance.choice((0.0, 0.01, 0.1)))  # a random moment, see above
        os.kill(pids[victim], signal.SIGKILL)
        if victim == "supervisor":
            project.start()
        project.do("teamctl", "send", "alice", f"mail {turns}")
        why = "paused by the person; `teamctl resume alice` resumes it"
        wait_until(
            lambda why=why: project.member("alice")["reason"] == why,  # type: ignore[misc]
            what="it is paused",
        )
        assert project.member("alice")["status"] == "paused"
        assert len(project.asked("alice")) == turns
        project.do("teamctl", "resume", "alice")
    project.wait_for("alice", "idle", turns=rounds + 1)
