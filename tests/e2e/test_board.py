"""The shared board over real processes: tools, `teamctl`, and teammates that end."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.e2e.harness import Project
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

REFUSED = [
    ("task claim 9", "no task has the id '9'; there are: 1, 2, 3"),
    ("task show x", "no task has the id 'x'; there are: 1, 2, 3"),
    ("task claim 2", "task 2 is blocked by task 1; take another one until that is completed"),
    ("task claim 3", "task 3 is bob's already; take one that has no owner"),
    ("task claim 1 --owner bbo", "no teammate named 'bbo'; the team is: ann, bob"),
    ("task update 1 --owner bbo", "no teammate named 'bbo'; the team is: ann, bob"),
    ("task update 1 --add-blocked-by 2", "task 1 would wait for itself: 1 waits for 2 waits for 1"),
    ("task update 1 --add-blocked-by 9", "no task has the id '9'; there are: 1, 2, 3"),
    ("task add x --blocked-by 9", "no task has the id '9'; there are: 1, 2, 3"),
    (
        f"task add x --check {'y' * 4001}",
        "a check of 4001 characters is over the limit of 4000; put it into a file and name that",
    ),
    (
        f"task update 1 --check {'y' * 4001}",
        "a check of 4001 characters is over the limit of 4000; put it into a file and name that",
    ),
]


def board(project: Project) -> dict[str, dict[str, Any]]:
    found = json.loads(project.do("teamctl", "tasks", "--json"))["tasks"]
    return {task["id"]: task for task in found}


def stored(project: Project, task_id: str) -> dict[str, Any]:
    """Return a task's file for polling; running the command in a loop would use a whole core."""
    found: dict[str, Any] = json.loads((project.paths.tasks / f"{task_id}.json").read_bytes())
    return found


def test_shared_board(project: Project) -> None:
    """The lesson's row: `.team/tasks/`, seen by all, with blocked-by."""

    def alice(asked: Asked) -> Answer:
        if "Share the work out" in asked.last_text:
            return use(
                ("task_create", {"subject": "Write the API"}),
                ("task_create", {"subject": "Test the API", "blocked_by": ["1"]}),
                ("claim_task", {"task_id": "1"}),
            )
        if "finish" in asked.last_text:
            return use(("task_update", {"task_id": "1", "status": "completed"}))
        return say("Nothing to do.")

    def bob(asked: Asked) -> Answer:
        if "Take task 2" in asked.last_text or "Nothing blocks task 2" in asked.last_text:
            return use(("claim_task", {"task_id": "2"}), ("task_list", {}))
        return say("Nothing to do.")

    project.stage.act("alice", alice)
    project.stage.act("bob", bob)
    project.start()
    project.do("teamctl", "spawn", "alice", "coder", "Share the work out.", "--wait")
    file = json.loads((project.paths.tasks / "1.json").read_bytes())
    assert (file["status"], file["owner"]) == ("in_progress", "alice")
    project.do("teamctl", "spawn", "bob", "tester", "Take task 2.", "--wait")
    refused, _ = project.records("bob", "result")
    assert refused["is_error"]
    assert "task 2 is blocked by task 1" in refused["content"]
    project.do("teamctl", "task", "update", "2", "--owner", "bob")
    wait_until(lambda: "lead gave you task 2" in _read(project, "bob"), what="bob knows")

    project.do("teamctl", "send", "alice", "Please finish.")
    wait_until(lambda: stored(project, "2")["status"] == "in_progress", what="bob has begun")
    assert _read(project, "bob").count("Nothing blocks task 2 (Test the API) any more") == 1
    assert board(project)["2"]["owner"] == "bob"
    rows = [line.split() for line in project.do("teamctl", "tasks").splitlines()[:3]]
    assert rows == [
        ["ID", "STATUS", "OWNER", "SUBJECT"],
        ["1", "completed", "alice", "Write", "the", "API"],
        ["2", "in_progress", "bob", "Test", "the", "API"],
    ]
    for name in ("alice", "bob"):
        project.wait_for(name, "idle")


def _read(project: Project, name: str) -> str:
    """Return all mail in a conversation."""
    return "\n".join(m["content"] for r in project.records(name, "mail") for m in r["messages"])


def test_a_teammate_gives_its_task_back_on_shutdown_or_failure_but_not_on_a_crash(
    project: Project,
) -> None:
    project.write("team.toml", "[supervision]\ncrashes = 1\n")
    project.start()
    for name in ("ann", "bob"):
        project.do("teamctl", "spawn", name, "coder", "Wait.", "--wait")
        project.wait_for(name, "idle")
        project.do("teamctl", "task", "add", f"{name}'s")
    project.do("teamctl", "task", "claim", "1", "--owner", "ann")
    project.do("teamctl", "task", "claim", "2", "--owner", "bob")
    project.do("teamctl", "shutdown", "ann")
    one = board(project)["1"]
    assert (one["status"], one["owner"]) == ("pending", "")
    assert "note: released: ann is shut down" in project.do("teamctl", "task", "show", "1")

    first = project.wait_for("bob", "idle")["pid"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: project.member("bob")["pid"] not in (None, first), what="a new process")
    assert board(project)["2"]["owner"] == "bob", "it goes on where it was"
    wait_until(lambda: _killed(project, "bob"), what="it has failed")
    wait_until(lambda: stored(project, "2")["owner"] == "", what="it has given it back")
    assert board(project)["2"]["notes"] == ["released: bob has failed"]


def _killed(project: Project, name: str) -> bool:
    member = project.member(name)
    if member["pid"] is not None:
        with suppress(ProcessLookupError):  # the roster is updated a moment later
            os.kill(member["pid"], signal.SIGKILL)
    return bool(member["status"] == "failed")


def test_tasks_of_owners_that_are_gone_are_released_at_the_start(project: Project) -> None:
    project.enlist("ann")
    project.do("teamctl", "task", "add", "x", "--owner", "ann")
    project.do("teamctl", "task", "add", "y", "--owner", "lead")
    for number, owner in ((1, "zoe"), (2, "lead")):
        file = project.paths.task(str(number))
        file.write_text(json.dumps({**json.loads(file.read_bytes()), "owner": owner}))
    project.start()
    assert [task["owner"] for task in board(project).values()] == ["", "lead"]
    assert project.log("teamd", "task released")[0]["reason"].endswith(
        "zoe is not in the team any more"
    )


def test_an_idle_teammate_takes_the_next_task_of_its_role_at_once(project: Project) -> None:
    """A change of the board wakes idle teammates; a poll would be late or never rest."""
    project.write("team.toml", "[tasks]\nauto_claim = true\n")

    def worker(asked: Asked) -> Answer:
        found = re.findall(r"so was task (\d+), so it is", asked.last_text)
        if found:
            return use(("task_update", {"task_id": found[-1], "status": "completed"}))
        return say("Nothing to do.")

    for name in ("ann", "tim"):
        project.stage.act(name, worker)
    project.start()
    for name, role in (("ann", "coder"), ("tim", "tester")):
        project.do("teamctl", "spawn", name, role, "Wait.", "--wait")
        project.wait_for(name, "idle")
    project.do("teamctl", "task", "add", "Test it", "--role", "tester")
    made = time.time()
    wait_until(lambda: "Test it" in _read(project, "tim"), what="he knows")
    (delivery,) = [r for r in project.records("tim", "mail") if "Test it" in str(r)]
    print(f"claimed {1000 * (delivery['time'] - made):.0f} ms after the command's end")  # noqa: T201
    wait_until(lambda: stored(project, "1")["status"] == "completed", what="he has done it")
    assert "Test it" not in _read(project, "ann")
    assert delivery["time"] - made < 5.0, "not at the look that comes twice a minute"


@pytest.fixture(scope="module")
def still(running: Project) -> Project:
    """A board of three tasks: 2 waits for 1, and bob owns 3."""
    for name in ("ann", "bob"):
        running.do("teamctl", "spawn", name, "coder", "Wait.", "--wait")
    running.do("teamctl", "task", "add", "one")
    running.do("teamctl", "task", "add", "two", "--blocked-by", "1")
    running.do("teamctl", "task", "add", "three", "--owner", "bob")
    return running


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[call for call, _ in REFUSED])
def test_a_refusal_is_one_sentence_and_changes_nothing(
    call: str, sentence: str, still: Project, team: Project
) -> None:
    before = board(team)
    refused = team.run("teamctl", *call.split())
    assert (refused.status, refused.stdout) == (1, "")
    assert refused.complaint.startswith(f"teamctl: {sentence}")
    assert board(team) == before


def test_wrong_usage_of_task_exits_with_code_2(still: Project) -> None:
    for call, sentence in (
        ("task update 1", "say what to change"),
        ("task update 1 --status done", "Invalid value for '--status'"),
        ("task frobnicate", "no command 'frobnicate'; there are: add, claim, show, update"),
        ("task add", "Missing argument 'SUBJECT'"),
    ):
        misused = still.run("teamctl", *call.split())
        assert misused.status == 2
        assert sentence in misused.stderr


def test_the_board_says_which_check_is_in_force_and_which_tasks_nobody_works_on(
    project: Project,
) -> None:
    project.write("team.toml", '[tasks]\ncheck = "make test"\n')
    project.enlist("ann")
    for facts in (("--role", "tester"), ("--check", "true"), ("--role", "coder")):
        project.do("teamctl", "task", "add", "One", *facts)
    project.do("teamctl", "task", "claim", "2", "--for", "ann")
    shown = project.do("teamctl", "tasks").splitlines()
    assert ["make test" in line for line in shown[1:4]] == [True, False, True]
    hints = "`teamctl spawn NAME tester PROMPT` starts one", "`teamctl send ann TEXT` gives it a"
    assert shown[4].startswith(f"task 1 waits for a tester, and there is none; {hints[0]}")
    assert shown[5].startswith(f"task 2 is in progress, but ann is idle; {hints[1]}")
    rows = json.loads(project.do("teamctl", "tasks", "--json"))["tasks"]
    assert [row["check_in_force"] for row in rows] == ["make test", "true", "make test"]
    assert [row["note"] for row in rows] == [*shown[4:], None]


def test_the_board_works_without_teamd(project: Project) -> None:
    project.enlist("ann", "bob")
    assert project.do("teamctl", "tasks") == 'no tasks; `teamctl task add "…"` makes one\n'
    project.do("teamctl", "task", "add", "one", "--description", "-", stdin="All of it.")
    made = json.loads(project.do("teamctl", "task", "add", "two", "--blocked-by", "1", "--json"))
    assert (made["id"], made["blocked_by"], made["created_by"]) == ("2", ["1"], "lead")
    assert "All of it." in project.do("teamctl", "task", "show", "1")
    assert json.loads(project.do("teamctl", "task", "claim", "1", "--json"))["owner"] == "lead"
    assert project.do("teamctl", "task", "update", "1", "--status", "completed").splitlines() == [
        "task 1 (completed; owner lead): one",
        "no longer blocked: 2",
    ]
    project.do("teamctl", "task", "update", "2", "--status", "deleted")
    assert list(board(project)) == ["1"]
    every = json.loads(project.do("teamctl", "tasks", "--all", "--json"))["tasks"]
    assert [task["status"] for task in every] == ["completed", "deleted"]
    (project.paths.tasks / "1.json").write_text("{")
    looked = project.run("teamctl", "tasks")
    assert looked.status == 0
    assert "tasks/1.json is damaged (" in looked.complaint
    completed = project.run(
        "teamctl",
        env={
            "_TEAMCTL_COMPLETE": "bash_complete",
            "COMP_CWORD": "3",
            "COMP_WORDS": "teamctl task show ",
        },
    )
    assert completed.stdout.split() == ["plain,1", "plain,2"]
