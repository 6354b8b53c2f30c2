"""An idle teammate continues in a process that has loaded nothing, without visible change."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD, Message
from teamd.process_id import Identity
from teamd.team.states import ChildExit, ChildStart, Status
from tests.children import NOBODY, make_context
from tests.e2e.harness import Project, opened
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

SETTINGS = "[supervision]\nhibernate_seconds = 0.3\ncrashes = 1\nwithin_seconds = 600\n"
RULE = '[[permission]]\ntool = "bash"\nthen = "ask"\n'


@pytest.fixture(scope="module")
def sleepy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A team whose members hibernate soon and may crash once; each test uses its own names."""
    with opened(tmp_path_factory.mktemp("sleepy")) as made:
        made.write("team.toml", SETTINGS)
        made.start()
        yield made


def spawn(project: Project, name: str, *more: str) -> None:
    project.do("teamctl", "spawn", name, "clerk", "Remember: blue.", "--wait", *more)


def hibernated(project: Project, name: str, *, times: int = 1) -> int:
    """Wait until a teammate has hibernated `times` times; return the pid of the waiting process."""

    def pids() -> list[int]:
        return [one["pid"] for one in project.log("teamd", "hibernates") if one["name"] == name]

    wait_until(lambda: len(pids()) >= times, what=f"{name} hibernates")
    wait_until(lambda: project.member(name)["pid"] == pids()[-1], what="the roster says so")
    return pids()[-1]


def stopped_on_its_way(project: Project, name: str, pid: int) -> None:
    """Stop the supervisor and wait until a teammate's process has ended to hibernate."""
    os.kill(project.supervisor, signal.SIGSTOP)
    wait_until(lambda: Identity.of(pid) is None, what=f"{name} has ended")


def go_on(project: Project) -> None:
    os.kill(project.supervisor, signal.SIGCONT)


def shown(project: Project, name: str) -> dict[str, Any]:
    members = json.loads(project.do("teamctl", "team", "--json"))["members"]
    return next(member for member in members if member["name"] == name)


def test_a_hibernating_teammate_stays_idle_and_answers_with_its_whole_conversation(
    sleepy: Project,
) -> None:
    spawn(sleepy, "ann")
    before = sleepy.wait_for("ann", "idle", turns=1)
    pid = hibernated(sleepy, "ann")
    now = shown(sleepy, "ann")
    assert pid != before["pid"]
    assert (now["pid"], now["status"], now["reason"], now["turns"]) == (pid, "idle", None, 1)
    assert now["since_unix"] == before["status_since"]
    sleepy.do("teamctl", "send", "ann", "Which colour was it?", "--wait")
    assert "Remember: blue." in str(sleepy.asked("ann", least=2)[1].body["messages"][0])
    assert [one["pid"] for one in sleepy.log("ann", "wakes")] == [pid]
    log = sleepy.paths.log("ann").read_text().splitlines()
    assert {json.loads(line)["level"] for line in log} == {"info"}
    sleepy.wait_for("ann", "idle", turns=2)


def test_hibernation_does_not_count_as_a_crash(sleepy: Project) -> None:
    """The second crash in ten minutes would give the teammate up."""
    spawn(sleepy, "bea")
    for number in range(2):
        hibernated(sleepy, "bea", times=number + 1)
        sleepy.do("teamctl", "send", "bea", f"Message {number}.", "--wait")
    assert sleepy.member("bea")["status"] in ("idle", "working")
    for event in ("crashed", "exited", "failed"):
        assert not [one for one in sleepy.log("teamd", event) if one["name"] == "bea"]
    assert "bea" not in sleepy.mail("lead")


def test_mail_that_arrives_during_the_switch_to_hibernation_is_read_at_once(
    sleepy: Project,
) -> None:
    """The wake-up reaches the process that has ended.

    The next one checks for mail before it waits.
    """
    spawn(sleepy, "dora")
    pid = sleepy.wait_for("dora", "idle", turns=1)["pid"]
    stopped_on_its_way(sleepy, "dora", pid)
    Mailbox(sleepy.paths, "dora").put(Message(sender="lead", to="dora", content="Just now."))
    go_on(sleepy)
    last = sleepy.asked("dora", least=2)[-1]
    assert str(last.body["messages"]).count("Just now.") == 1


@pytest.mark.slow
def test_a_teammate_killed_during_hibernation_returns_with_its_conversation(
    sleepy: Project,
) -> None:
    """The kill counts as a crash, the only one that this team forgives."""
    name = "ed"
    spawn(sleepy, name)
    pid = hibernated(sleepy, name)
    Mailbox(sleepy.paths, name).put(Message(sender="lead", to=name, content="Which colour?"))
    os.kill(pid, signal.SIGKILL)
    last = sleepy.asked(name, least=2)[-1]
    assert "Remember: blue." in str(last.body["messages"][0])
    assert str(last.body["messages"]).count("Which colour?") == 1
    assert hibernated(sleepy, name, times=2) != pid


def test_a_teammate_shut_down_during_the_switch_to_hibernation_does_not_restart(
    sleepy: Project,
) -> None:
    spawn(sleepy, "gil")
    pid = sleepy.wait_for("gil", "idle", turns=1)["pid"]
    stopped_on_its_way(sleepy, "gil", pid)
    asking = sleepy.begin("teamctl", "shutdown", "gil", "--force")
    wait_until(lambda: "shutdown" in sleepy.mail(TEAMD), what="that is asked for")
    go_on(sleepy)
    asking.wait(20)
    member = sleepy.wait_for("gil", "shutdown")
    assert member["pid"] is None


@pytest.mark.slow
def test_a_teammate_stays_awake_for_a_permission_but_not_for_a_plan(project: Project) -> None:
    project.write("team.toml", SETTINGS + RULE)
    project.stage.play("ann", use(("bash", {"command": "touch ann-was-here"})), say("Done."))
    plan = "submit_plan", {"plan": "1. Write it."}
    write = "write_file", {"path": "by-bob", "content": "x"}
    project.stage.play("bob", use(plan), say("I wait."), use(write), say("Done."))
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.")
    project.wait_for("ann", "paused")
    request = shown(project, "ann")["waiting_request"]
    pid = project.member("ann")["pid"]
    spawn(project, "bob", "--plan")
    hibernated(project, "bob")
    assert (project.member("ann")["status"], project.member("ann")["pid"]) == ("paused", pid)
    project.do("teamctl", "approve", request)
    project.wait_for("ann", "idle", turns=2)
    assert (project.folder / "ann-was-here").exists()
    asked = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    project.do("teamctl", "approve", next(one["id"] for one in asked if one["from"] == "bob"))
    wait_until((project.folder / "by-bob").exists, what="bob does as planned")
    hibernated(project, "bob", times=2)
    hibernated(project, "ann")


@pytest.mark.parametrize("late", [False, True], ids=["at rest", "on its way"])
def test_a_new_task_wakes_a_hibernating_teammate_that_claims_tasks(
    project: Project, late: bool
) -> None:
    project.write("team.toml", f"{SETTINGS}[tasks]\nauto_claim = true\n")
    project.start()
    spawn(project, "ann")
    if late:
        pid = project.wait_for("ann", "idle", turns=1)["pid"]
        stopped_on_its_way(project, "ann", pid)
    else:
        hibernated(project, "ann")
    project.do("teamctl", "task", "add", "Write it")
    go_on(project)
    assert "Write it" in project.asked("ann", least=2)[-1].asked.last_text


def test_a_report_read_after_its_process_hibernated_is_accepted(tmp_path: Path) -> None:
    """Otherwise a teammate that has just worked would be shown as working until its next wake."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()

    def run(start: ChildStart) -> int:
        if not start.hibernates:
            return ChildExit.HIBERNATES
        os.set_blocking(start.bell, True)
        return len(os.read(start.bell, 1))

    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        context = make_context(paths, journal, replace(NOBODY, run=run))
        roster, children = context.roster, context.children
        roster.admit("ann", "clerk")
        children.begin()
        children.start("ann")
        first = children.process("ann")
        wait_until(children.reap, what="ann hibernates")
        second = children.process("ann")
        assert first is not None
        assert second not in (None, first)
        for process in filter(None, (first, second)):
            assert children.believes("ann", process.pid, process.started)
        assert not children.believes("ann", first.pid, first.started + 1)
        assert not children.believes("bob", first.pid, first.started)
        assert roster.team.get("ann").process == second
        assert roster.team.get("ann").status is Status.WORKING, "as it was"
        children.stop("ann", seconds=0)
        children.kill_all()
        wait_until(children.reap, what="ann has ended")


@pytest.mark.slow
def test_the_temporary_folder_of_commands_survives_hibernation(sleepy: Project) -> None:
    """A minute without work does not delete it; a new start empties the folder."""
    keep, look = "echo blue > $TMPDIR/kept", "cat $TMPDIR/kept"
    plays = [play for command in (keep, look, look) for play in _bash(command)]
    sleepy.stage.play("jil", *plays)
    spawn(sleepy, "jil")
    hibernated(sleepy, "jil")
    sleepy.do("teamctl", "send", "jil", "What did you keep?")
    (result,) = sleepy.asked("jil", least=4)[3].asked.last_results
    assert result.text == "blue"
    sleepy.wait_for("jil", "idle", turns=4)
    sleepy.do("teamctl", "shutdown", "jil")
    sleepy.do("teamctl", "spawn", "jil", "clerk", "And now?")
    (result,) = sleepy.asked("jil", least=6)[5].asked.last_results
    assert "No such file" in result.text


def _bash(command: str) -> list[Answer]:
    return [use(("bash", {"command": command})), say("Done.")]
