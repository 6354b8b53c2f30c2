"""`teamd stop` leaves nothing behind, and the next start continues from there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.e2e.harness import Ended, Project, opened
from tests.strict.faults import Stall
from tests.strict.replies import say, use
from tests.waiting import wait_until

# The current command of each teammate; the file `{name}` shows that it runs.
COMMANDS: Final = {
    "sleeper": "touch {name}; sleep 1000",
    "stubborn": "trap '' TERM; touch {name}; while :; do sleep 1000; done",
    "leaver": "setsid sleep 1000 & disown; touch {name}; sleep 1000",
    "frozen": "touch {name}; setsid sleep 1000 & sleep 1000",  # and it is stopped by SIGSTOP
}
EVERYBODY: Final = ("idler", "caller", *COMMANDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One stop and the start after it.

    Attributes:
        before: the processes while all teammates worked.
        stopped: the result of `teamd stop`.
        left: the processes after it.
        roster: the members after it.
        resumed: the first request of each teammate after the next start.
    """

    before: dict[int, str]
    stopped: Ended
    left: dict[int, str]
    roster: dict[str, dict[str, Any]]
    resumed: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Stop and restart a team in which each teammate does something different."""
    with opened(tmp_path_factory.mktemp("story")) as project:
        project.write("team.toml", "[supervision]\nstop_seconds = 1\n")
        project.start()
        _bring_to_work(project)
        before = project.survivors()
        stopped = project.run("teamd", "stop")
        left = project.survivors()
        roster = {name: project.member(name) for name in EVERYBODY}
        seen = len(project.server.requests)
        for name in EVERYBODY:
            project.stage.play(name, say("I go on."))
        project.start()
        project.do("teamctl", "send", "idler", "Go on.")
        for name in EVERYBODY:
            wait_until(lambda: _first(project, name, seen) is not None, what=f"{name} goes on")  # noqa: B023 -- called at once
            project.wait_for(name, "idle")
        resumed = {name: _first(project, name, seen) or {} for name in EVERYBODY}
        yield Story(before=before, stopped=stopped, left=left, roster=roster, resumed=resumed)


def _bring_to_work(project: Project) -> None:
    project.do("teamctl", "spawn", "idler", "worker", "Task of idler.", "--wait")
    project.wait_for("idler", "idle")
    stall = Stall()
    project.server.faults.when(lambda asked: asked.name == "caller", stall)
    project.do("teamctl", "spawn", "caller", "worker", "Task of caller.")
    for name, command in COMMANDS.items():
        project.stage.play(name, use(("bash", {"command": command.format(name=name)})))
        project.do("teamctl", "spawn", name, "worker", f"Task of {name}.")
    for name in COMMANDS:
        wait_until((project.folder / name).exists, what=f"{name} runs its command")
        project.wait_for(name, "working")
    wait_until(lambda: _sleeping(project) == 6, what="all commands run")
    assert stall.reached.wait(20)
    os.kill(project.member("frozen")["pid"], signal.SIGSTOP)


def _sleeping(project: Project) -> int:
    return list(project.survivors().values()).count("sleep 1000")


def _first(project: Project, name: str, seen: int) -> dict[str, Any] | None:
    later = [one.body for one in project.server.requests[seen:] if one.asked.name == name]
    return later[0] if later else None


def test_a_stop_leaves_no_process_whatever_the_teammates_did(story: Story) -> None:
    """Users of the nearest product complain about orphaned processes more than most things."""
    assert len(story.before) >= 1 + len(EVERYBODY) + len(COMMANDS)
    assert (story.stopped.status, story.stopped.stderr) == (0, "")
    assert story.left == {}


def test_after_a_stop_the_roster_keeps_each_status_without_a_process(story: Story) -> None:
    for name, member in story.roster.items():
        expected = "idle" if name == "idler" else "working"
        assert (member["status"], member["pid"]) == (expected, None), name


def test_the_next_start_continues_the_same_conversations(story: Story) -> None:
    for name, request in story.resumed.items():
        messages = request["messages"]
        assert f"Task of {name}." in messages[0]["content"][0]["text"]
        assert len(messages) == (1 if name == "caller" else 3), name


def test_an_interrupted_call_is_answered_with_an_error(story: Story) -> None:
    """The API requires a result for each call; the effect of the interrupted call is unknown."""
    for name in COMMANDS:
        (result,) = story.resumed[name]["messages"][-1]["content"]
        assert (result["type"], result["is_error"]) == ("tool_result", True)
        assert "Whether it had any effect is not known" in result["content"][0]["text"]


def _in_a_command(project: Project) -> None:
    project.stage.play(
        "ann", use(("bash", {"command": COMMANDS["leaver"].format(name="busy")})), say("Done.")
    )
    project.start()
    project.do("teamctl", "spawn", "ann", "worker", "Task of ann.")
    wait_until(lambda: _sleeping(project) == 2, what="the command runs")


def _goes_on(project: Project) -> None:
    project.start()
    project.wait_for("ann", "idle", turns=2)
    last = project.asked("ann", least=1)[-1].asked
    assert "Task of ann." in last.messages[0]["content"][0]["text"]
    assert [result.is_error for result in last.last_results] == [True]


@pytest.mark.slow
def test_a_supervisor_that_does_not_react_is_killed_with_all_its_children(project: Project) -> None:
    """A stopped process ignores SIGTERM, as does one that waits for a dead disk."""
    _in_a_command(project)
    os.kill(project.supervisor, signal.SIGSTOP)
    stopped = project.run("teamd", "stop", "--timeout", "2")
    assert stopped.status == 4
    assert stopped.complaint == "teamd: teamd did not end within 2 s and was killed"
    assert project.survivors() == {}
    _goes_on(project)
