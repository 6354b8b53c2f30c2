"""Checks with real processes: despite kills, each claim is judged once, by a complete run."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from teamd.process_id import Identity
from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until

# Records its start, detects a concurrent run, and counts complete runs.
ALONE = "exec 7>>lock; flock -n 7 || { echo > twice; exit 1; }; echo $$ >> begun; sleep %s; %s"


def task(project: Project, task_id: str = "1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.paths.tasks / f"{task_id}.json").read_bytes())
    return found


def claim(project: Project, check: str, *options: str) -> str:
    """Create a task with a check and claim it as done; return its id."""
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
    """Return the pid of the current checker: a child of the supervisor that its log names."""
    begun = {entry["pid"] for entry in project.log("teamd", "check begins")}
    with suppress(OSError):
        supervisor = project.supervisor
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return next((pid for pid in map(int, children) if pid in begun), None)
    return None


def shells(pid: int | None) -> list[int]:
    """Return the pids of bubblewrap and the shells below a checker, down to the shell of the check.

    The children of that shell are left out: a kill of them does not make the check invalid.
    """
    found = []
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, children if pid else ()):
            inner = Path(f"/proc/{child}/comm").read_text().strip() != "bash"
            found += [child, *(shells(child) if inner else ())]
    return found


def begun(project: Project) -> int:
    path = project.folder / "begun"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.slow
def test_a_teammate_s_claim_is_accepted_only_after_its_check_passes(project: Project) -> None:
    """Mail informs the teammate of a failure; it repairs the work, and the task is completed."""
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
    assert shown.count(": exit status 1 after 0.") == 1, "the command has been named"
    assert "PROOF" in project.do("teamctl", "tasks")
    assert not list(project.paths.homes.glob("check.*"))


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["checker", "stopped"])
def test_a_killed_check_is_repeated_and_its_first_run_does_not_count(
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
        case "stopped":
            project.restart()
    judged = wait_judged(project, "1")
    assert (judged["status"], len(judged["attempts"])) == ("completed", 1)
    assert not (project.folder / "twice").exists()
    assert begun(project) == 2
    assert not [one for one in inside if one is not None and one.alive]


@pytest.mark.slow
def test_a_check_that_hangs_is_ended_and_fails(project: Project) -> None:
    project.ask_no_service("[tasks]\ncheck_seconds = 0.5\n")
    project.start()
    (attempt,) = wait_judged(project, claim(project, "sleep 100"))["attempts"]
    assert (attempt["status"], attempt["why"]) == (124, "it took longer than 0.5 s, and was ended")
    wait_until(lambda: "its check failed" in project.mail("lead"), what="the lead is told")


@pytest.mark.slow
def test_the_check_of_a_withdrawn_claim_is_stopped(project: Project) -> None:
    project.ask_no_service()
    project.start()
    claim(project, "touch begun; sleep 100")
    wait_until((project.folder / "begun").exists, what="it runs")
    refused = project.run("teamctl", "task", "claim", "1")
    assert (refused.status, refused.complaint) == (
        1,
        "teamctl: task 1 is being checked; wait for the result: its owner gets mail if it fails",
    )
    project.do("teamctl", "task", "update", "1", "--status", "pending")
    wait_until(lambda: checker(project) is None, what="its process has ended")
    assert task(project)["attempts"] == []
    judged = wait_judged(project, claim(project, "true"))
    assert judged["status"] == "completed"


@pytest.mark.slow
def test_a_check_that_is_always_killed_finally_fails(project: Project) -> None:
    """Endless repeats would block the task; a program that always kills itself is no accident."""
    project.ask_no_service()
    project.enlist("ann")
    path = project.paths.task(claim(project, "touch ran"))
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "kills": 20}))  # saves minutes
    project.start()
    (attempt,) = wait_judged(project, "1")["attempts"]
    assert attempt["why"] == "it was killed or could not be started, 20 times in a row"
    assert not (project.folder / "ran").exists()


def test_a_claim_made_without_teamd_is_checked_at_its_start(project: Project) -> None:
    project.ask_no_service('[tasks]\ncheck = "test -e made"\n')
    project.enlist("ann")
    task_id = claim(project, "true")
    assert "its check runs as soon as teamd does" in project.do(
        "teamctl", "task", "update", task_id, "--status", "completed"
    )
    shown = project.do("teamctl", "task", "show", task_id)
    assert "check: true\ncheck of the team: test -e made\nproof: checking\n" in shown
    project.start()
    judged = wait_judged(project, task_id)
    assert judged["attempts"][0]["command"] == "test -e made", "that of the team comes first"
    (project.folder / "made").touch()
    project.do("teamctl", "task", "update", task_id, "--status", "completed")
    assert wait_judged(project, task_id)["status"] == "completed"


def test_a_check_has_its_own_home(project: Project) -> None:
    """A teammate's programs and settings in its own home are not there."""
    project.ask_no_service()
    project.start()
    task_id = claim(project, "ls -A ~ /tmp > home; test ! -e ~/mark && touch ~/mark /tmp/mark")
    assert wait_judged(project, task_id)["status"] == "completed"
    project.do("teamctl", "task", "update", task_id, "--status", "pending")
    project.do("teamctl", "task", "update", task_id, "--status", "completed")
    assert wait_judged(project, task_id)["status"] == "completed"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_long_campaign_of_kills_blocks_no_task_and_completes_none_falsely(
    project: Project,
) -> None:
    campaign(project, claims=40, kills=50, seed=12)


@pytest.mark.slow
def test_a_short_campaign_of_kills_blocks_no_task_and_completes_none_falsely(
    project: Project,
) -> None:
    campaign(project, claims=6, kills=6, seed=7)


def campaign(project: Project, *, claims: int, kills: int, seed: int) -> None:
    """Kill checkers, their commands and supervisors at random moments of many claims."""
    project.ask_no_service()
    project.start()
    random, made = Random(seed), dict[str, int]()

    def open_ones() -> list[str]:
        return [one for one in made if task(project, one)["status"] == "checking"]

    struck = dict.fromkeys(("supervisor", "checker", "command"), 0)
    while sum(struck.values()) < kills or len(made) < claims:
        if len(open_ones()) < 2:
            status = len(made) % 2
            made[claim(project, ALONE % ("0.3", "false" if status else "true"))] = status
        if random.random() < 0.7:
            wait_until(lambda: shells(checker(project)) or not open_ones(), what="a command runs")
        pid = checker(project)
        victims = {
            "supervisor": [project.supervisor],
            "checker": [pid] if pid else [],
            "command": shells(pid),
        }
        kind, found = random.choice([*victims.items()])
        if not found or sum(struck.values()) == kills:
            continue
        with suppress(ProcessLookupError):
            os.kill(random.choice(found), signal.SIGKILL)
            struck[kind] += 1
        if kind == "supervisor":
            project.start()
    wait_until(lambda: not open_ones(), timeout_seconds=300, what="all are judged")
    print(f"{len(made)} claims, killed: {struck}")  # noqa: T201 -- the figures
    assert not (project.folder / "twice").exists()
    assert_judged_once(project, made)


def assert_judged_once(project: Project, made: dict[str, int]) -> None:
    """Check that each claim has the result of its command, and each recipient is informed once."""
    # The recipients are recorded with the judgement; the mail follows later, maybe repeatedly.
    wait_until(lambda: not any("untold" in task(project, one) for one in made), what="all told")
    mail = [json.loads(line) for line in project.mail("lead").splitlines()]
    for one, status in made.items():
        judged = task(project, one)
        assert (judged["status"] == "completed") == (status == 0), judged
        assert [attempt["status"] for attempt in judged["attempts"]] == [status]
        words = f"The check of task {one} "
        assert len({one["id"] for one in mail if words in one["content"]}) == status
