"""Failures of a model's service, in any kind and order, cost time and never a turn."""

from __future__ import annotations

import json
import os
import signal
import time
from random import Random
from typing import Any, Final

import pytest

from tests.e2e import stories
from tests.e2e.harness import Project
from tests.e2e.stories import TURNS_A_WAKE, Weather, words
from tests.strict.faults import ErrorEvent, Reset, Status
from tests.strict.replies import say
from tests.waiting import wait_until

SEED_VARIABLE: Final = "TEAMD_FAULTS_SEED"
NAMES: Final = ("alice", "bob", "carol")
# The client gives up on a server that is silent for two seconds; the waits between tries are not
# under test. Each call that breaks off is charged at its highest possible cost; hundreds would
# reach a daily limit.
HASTY: Final = """\
[model]
timeout_seconds = 2
retry_seconds = 0.05
[limits]
team_usd_per_day = 1000000.0
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "wakes"),
    [
        pytest.param("1", 1, id="short"),
        pytest.param("2", 25, id="long", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_faults_in_any_order_cost_time_but_never_a_turn(
    project: Project, seed: str, wakes: int
) -> None:
    """Each turn is played once and in order, and broken streams leave no trace.

    The fixture `project` checks that the server has refused nothing.
    """
    seed = os.environ.get(SEED_VARIABLE, seed)
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    sky, chance = Weather(seed), Random(seed)
    project.server.faults = sky
    project.write("team.toml", HASTY)
    project.start()
    for name in NAMES:
        project.stage.act(name, stories.play)
        project.do("teamctl", "spawn", name, "clerk", "wake 0")
    for wake in range(1, wakes + 1):
        if wake > 1:
            for name in NAMES:
                project.do("teamctl", "send", name, f"wake {wake - 1}")
        for name in chance.sample(NAMES, len(NAMES)):
            project.wait_for(name, "idle", turns=wake * TURNS_A_WAKE)
    print(f"{sky.struck.total()} faults: {dict(sky.struck)}")  # noqa: T201

    turns = range(wakes * TURNS_A_WAKE)
    for name in NAMES:
        assert_played(project, name, turns, [f"wake {wake}" for wake in range(wakes)])
    assert sky.left == 0
    assert sky.struck.total() > len(turns)
    mail = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    assert sorted(m["content"] for m in mail) == marks(turns, (1, 2))
    done = (project.folder / "done").read_text(encoding="utf-8").split()
    assert sorted(done) == marks(turns, (0, 2))
    assert not (project.folder / stories.SPOILT_FILE).exists()


def marks(turns: range, kinds: tuple[int, ...]) -> list[str]:
    """Return the marks left by those turns of a wake that do one of these kinds of work."""
    mine = [turn for turn in turns if turn % TURNS_A_WAKE in kinds]
    return sorted(f"{name}-{turn}" for name in NAMES for turn in mine)


def assert_played(project: Project, name: str, turns: range, mail: list[str]) -> None:
    """Check that a transcript has each turn once in order, all mail once, and no fault's traces."""
    replies = project.records(name, "reply")
    assert [text_in(reply["content"]) for reply in replies] == [words(name, t) for t in turns]
    delivered = [m["content"] for r in project.records(name, "mail") for m in r["messages"]]
    assert delivered == mail
    assert not [result for result in project.records(name, "result") if result["is_error"]]
    assert [end["outcome"] for end in project.records(name, "ended")] == ["end_turn"] * len(mail)
    whole = project.paths.transcript(name).read_text(encoding="utf-8")
    whole += "".join(json.dumps(request.body) for request in project.asked(name))
    assert [trace for trace in stories.TRACES if trace in whole] == []


def text_in(content: list[dict[str, Any]]) -> str:
    """The text blocks of a reply."""
    return "".join(block["text"] for block in content if block["type"] == "text")


@pytest.mark.slow
def test_a_teammate_killed_while_it_waits_to_retry_does_not_lose_its_turn(project: Project) -> None:
    """The service asked for a minute, which is cut to two seconds; the new process waits, too."""
    project.server.faults.push(Status(429, retry_after=60))
    project.write("team.toml", "[model]\nretry_seconds = 2\n")
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.")
    wait_until(lambda: project.log("ann", "model call failed, trying again"), what="ann waits")
    (told,) = project.log("ann", "model call failed, trying again")
    assert 2 <= told["seconds"] <= 3
    assert (told["attempt"], told["attempts"]) == (2, 10)  # as `chat` and `transcript -f` show it
    os.kill(project.member("ann")["pid"], signal.SIGKILL)
    project.wait_for("ann", "idle", turns=1)
    assert len(project.asked("ann")) == 2
    assert [text_in(reply["content"]) for reply in project.records("ann", "reply")] == [
        "Nothing to do."
    ]
    assert project.asked("ann", least=1)[0].body == project.asked("ann", least=2)[1].body


@pytest.mark.slow
def test_a_teammate_waiting_to_retry_is_stopped_at_once_and_resumed(project: Project) -> None:
    project.server.faults.push(Status(529, retry_after=59))
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.")
    wait_until(lambda: project.log("ann", "model call failed, trying again"), what="ann waits")
    assert "teamd has stopped" in project.do("teamd", "stop")
    assert project.log("ann", "stops"), "it ended by itself, not by force"
    project.start()
    project.wait_for("ann", "idle", turns=1)


@pytest.mark.slow
def test_an_outage_is_reported_once_and_ends_on_its_own(project: Project) -> None:
    """Even if the error differs from try to try; one mail is enough."""
    failures = (Status(529), Status(500), Status(502, html=True), Reset(), ErrorEvent())
    project.server.faults.push(*failures, *failures)
    project.write("team.toml", "[model]\nattempts = 2\nretry_seconds = 0.01\nrest_seconds = 1\n")
    project.stage.play("ann", say("At last."))
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.")
    paused = project.wait_for("ann", "paused")
    assert "gave up after 2 attempts, next one in 1 s or with the next mail" in paused["reason"]
    idle = project.wait_for("ann", "idle", turns=1)
    assert idle["reason"] is None
    assert len(project.asked("ann")) == 11
    (told,) = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    assert told["content"].startswith("ann is paused: ")
    assert "answered 500" in told["content"]


def test_a_pause_that_the_service_asks_for_is_kept_unless_a_person_resumes(
    project: Project,
) -> None:
    """Otherwise each mail of a talkative team would be a request to an overloaded service."""
    project.server.faults.push(Status(429, retry_after=86400))
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.")
    paused = project.wait_for("ann", "paused")
    assert "the server takes the next try at" in paused["reason"]
    assert "`teamctl resume ann` tries now" in paused["reason"]
    assert 86_000 < paused["until"] - time.time() <= 86_400
    project.run("teamctl", "send", "ann", "Are you there?")
    wait_until(lambda: "Are you there?" in project.mail("ann"), what="it is in her inbox")
    assert len(project.asked("ann")) == 1
    project.do("teamctl", "resume", "ann")
    project.wait_for("ann", "idle", turns=1)
    assert len(project.asked("ann")) == 2
