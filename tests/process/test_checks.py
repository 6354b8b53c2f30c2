"""Checks over real processes: whatever is killed, each claim is judged once, and by a whole run."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from teamd.process_id import Identity
from tests.strict.replies import say, use
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.harness import Project

# It says that it runs, sees whether another one does, and counts whole runs.
ALONE = "exec 7>>lock; flock -n 7 || { echo > twice; exit 1; }; echo $$ >> begun; sleep %s; %s"


def task(project: Project, task_id: str = "1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.paths.tasks / f"{task_id}.json").read_bytes())
    return found


def claim(project: Project, check: str, *options: str) -> str:
    """Make a task with a check, and say that it is done; its id."""
    made = json.loads(
        project.do("teamctl", "task", "add", "Work", "--check", check, *options, "--json")
    )
    project.do("teamctl", "task", "update", made["id"], "--status", "completed")
    return str(made["id"])


def wait_judged(project: Project, task_id: str, *, seconds: float = 60.0) -> dict[str, Any]:
    wait_until(
        lambda: task(project, task_id)["status"] != "checking",
        timeout_seconds=seconds,
        what=f"task {task_id} is judged",
    )
    return task(project, task_id)


def checker(project: Project) -> int | None:
    """The pid of the process that checks now."""
    begun = {entry["pid"] for entry in project.log("teamd", "check begins")}
    ended = {entry["pid"] for entry in project.log("teamd", "check ended")}
    return next(iter(begun - ended), None)


def below(pid: int) -> list[int]:
    """The pids of a process's descendants."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [found for child in map(int, children) for found in (child, *below(child))]
    return []


def shells(pid: int) -> list[int]:
    """The pids of bubblewrap and the shells below a checker; what they run is a check's own."""
    names = {one: Path(f"/proc/{one}/comm") for one in below(pid)}
    found = []
    for one, path in names.items():
        with suppress(OSError):
            if path.read_text().strip() in ("bwrap", "sh", "bash"):
                found.append(one)
    return found


def begun(project: Project) -> int:
    path = project.folder / "begun"
    return path.read_text().count("\n") if path.exists() else 0


def test_a_teammate_is_believed_only_by_its_check(project: Project) -> None:
    """It hears of a failure by mail, mends it, and the task is completed."""
    done = ("task_update", {"task_id": "1", "status": "completed"})
    project.stage.play(
        "ann",
        use(("claim_task", {"task_id": "1"}), done),
        say("Done."),
        use(("bash", {"command": "touch made"}), done),
        say("Really done."),
    )
    project.start()
    project.do("teamctl", "task", "add", "Make it", "--check", "echo looking; test -e made")
    project.do("teamctl", "spawn", "ann", "coder", "Make it.")
    wait_until(lambda: task(project)["status"] == "completed", timeout_seconds=60, what="proven")
    first, second = task(project)["attempts"]
    assert (first["status"], second["status"], task(project)["proven"]) == (1, 0, True)
    (mail,) = (one for one in project.records("ann", "mail") if "looking" in json.dumps(one))
    assert "The check of task 1 (Make it) failed" in json.dumps(mail)
    shown = project.do("teamctl", "task", "show", "1")
    assert "proof: proven" in shown
    assert shown.count("\nattempt: ") == 2
    assert "PROOF" in project.do("teamctl", "tasks")
    assert not list(project.paths.homes.glob("check.*"))


@pytest.mark.parametrize("victim", ["checker", "command", "supervisor", "stopped"])
def test_what_is_killed_is_checked_again_and_counts_for_nothing(
    project: Project, victim: str
) -> None:
    project.ask_no_service()
    project.start()
    claim(project, ALONE % ("1", "true"))
    wait_until(lambda: begun(project) == 1, what="it runs")
    pid = checker(project)
    assert pid is not None
    inside = [Identity.of(one) for one in shells(pid)]
    match victim:
        case "checker":
            os.kill(pid, signal.SIGKILL)
        case "command":
            os.kill(shells(pid)[-1], signal.SIGKILL)
        case "supervisor":
            os.kill(project.supervisor, signal.SIGKILL)
            project.start()
        case "stopped":
            project.restart()
    judged = wait_judged(project, "1")
    assert (judged["status"], len(judged["attempts"])) == ("completed", 1)
    assert not (project.folder / "twice").exists()
    assert begun(project) == 2
    assert not [one for one in inside if one is not None and one.alive]


def test_a_check_that_hangs_is_ended_and_has_failed(project: Project) -> None:
    project.ask_no_service("[tasks]\ncheck_seconds = 0.5\n")
    project.start()
    judged = wait_judged(project, claim(project, "sleep 100"))
    (attempt,) = judged["attempts"]
    assert (attempt["status"], attempt["why"]) == (124, "it took longer than 0.5 s, and was ended")
    assert "its check failed" in project.mail("lead")


def test_a_check_that_kills_itself_ends_as_a_failure(project: Project) -> None:
    """For ever would be a task that hangs; a program that does so by itself is no kill."""
    project.ask_no_service()
    project.start()
    path = project.paths.task(claim(project, "sleep 1; kill -9 $$"))
    project.do("teamd", "stop")
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "runs": 20}))  # minutes, otherwise
    project.start()
    judged = wait_judged(project, "1")
    assert judged["attempts"][0]["why"] == (
        "it was killed or could not be started, 20 times in a row"
    )


def test_a_claim_that_is_taken_back_is_checked_no_more(project: Project) -> None:
    project.ask_no_service()
    project.start()
    claim(project, "touch begun; sleep 100")
    wait_until((project.folder / "begun").exists, what="it runs")
    project.do("teamctl", "task", "update", "1", "--status", "pending")
    wait_until(lambda: checker(project) is None, what="its process has ended")
    assert task(project)["attempts"] == []
    judged = wait_judged(project, claim(project, "true"))
    assert judged["status"] == "completed"


def test_what_is_claimed_without_teamd_is_checked_at_its_start(project: Project) -> None:
    project.ask_no_service('[tasks]\ncheck = "test -e made"\n')
    project.enlist("ann")
    task_id = claim(project, "true")
    assert "its check runs as soon as teamd does" in project.do(
        "teamctl", "task", "update", task_id, "--status", "completed"
    )
    project.start()
    judged = wait_judged(project, task_id)
    assert judged["attempts"][0]["command"] == "test -e made", "that of the team comes first"
    (project.folder / "made").touch()
    project.do("teamctl", "task", "update", task_id, "--status", "completed")
    assert wait_judged(project, task_id)["status"] == "completed"


def test_a_check_has_a_home_of_its_own(project: Project) -> None:
    """What a teammate has put into its own, such as programs and settings, is not there."""
    project.ask_no_service()
    project.start()
    task_id = claim(project, "ls -A ~ /tmp > home; test ! -e ~/mark && touch ~/mark /tmp/mark")
    assert wait_judged(project, task_id)["status"] == "completed"
    project.do("teamctl", "task", "update", task_id, "--status", "pending")
    project.do("teamctl", "task", "update", task_id, "--status", "completed")
    assert wait_judged(project, task_id)["status"] == "completed"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_campaign_of_kills_hangs_no_task_and_completes_none_falsely(project: Project) -> None:
    campaign(project, claims=40, kills=50, seed=12)


def test_a_short_campaign_of_kills(project: Project) -> None:
    campaign(project, claims=6, kills=6, seed=7)


def campaign(project: Project, *, claims: int, kills: int, seed: int) -> None:
    """Kill checkers, their commands and supervisors at random moments of many claims."""
    project.ask_no_service()
    project.start()
    random, made = Random(seed), {}
    for n in range(claims):
        made[claim(project, ALONE % ("0.3", "false" if n % 2 else "true"))] = n % 2

    def open_ones() -> list[str]:
        return [one for one in made if task(project, one)["status"] == "checking"]

    struck = 0
    while struck < kills and open_ones():
        seen = begun(project)
        wait_until(lambda: checker(project) or not open_ones(), what="one runs")
        if random.random() < 0.5:
            wait_until(lambda: begun(project) > seen or not open_ones(), what="and its command")  # noqa: B023
        pid = checker(project)
        victims = [project.supervisor, *([pid, *shells(pid)] if pid else [])]
        victim = random.choice(victims)
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
            struck += 1
        if victim == project.supervisor:
            project.start()
    wait_until(lambda: not open_ones(), timeout_seconds=300, what="all are judged")
    assert not (project.folder / "twice").exists()
    for one, false in made.items():
        judged = task(project, one)
        assert (judged["status"] == "completed") == (not false), judged
        assert [attempt["status"] for attempt in judged["attempts"]] == [false]
        assert project.mail("lead").count(f"The check of task {one} ") == false
