"""A task is completed only after its check has passed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from teamd.board.board import Board
from teamd.board.rules import Change, describe_proof, gone_from
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.settings.schema import Settings, TaskSettings
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.life import enrol

DONE = Change(status=TaskStatus.COMPLETED)
PASSED = Attempt(time=1.0, seconds=2.0, status=0, command="true")
FAILED = Attempt(time=1.0, seconds=2.0, status=3, command="false")


class Hall:
    """A team whose tasks have checks."""

    def __init__(self, folder: Path) -> None:
        self.paths = TeamPaths(folder / ".team")
        enrol(self.paths, alice=Status.WORKING, bob=Status.IDLE)
        self.post = MailRouter(self.paths, durable=False, max_bytes=100_000)

    def board(self, who: str, check: str = "") -> Board:
        """Return the board as a member sees it."""
        return Board(self.paths, self.post, who, check=check, durable=False)

    def mail(self, name: str) -> list[str]:
        """Return the mail in an inbox."""
        return [message.content for message in self.post.mailbox(name).peek()]

    def claimed(self, check: str = "true") -> Task:
        """Return a task of the lead that alice has marked done."""
        made = self.board("lead").add("Write it", check=check)
        self.board("alice").claim(made.id)
        return self.board("alice").update(made.id, DONE).task

    def judge(self, task: Task, attempt: Attempt | None, *, most: int = 5) -> Task | None:
        """Judge a claim by a check with this result."""
        return self.board("teamd").judge(task.id, task.claim, attempt, "the end", most=most)


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path)


def test_a_task_with_a_check_is_not_completed_before_it_has_passed(hall: Hall) -> None:
    """Not even if the lead or the person marks it done."""
    task = hall.claimed()
    assert (task.status, task.proven, task.owner) == (TaskStatus.CHECKING, False, "alice")
    for who in ("alice", "lead"):
        assert hall.board(who).update(task.id, DONE).task == task, "it is under way"
    judged = hall.judge(task, PASSED)
    assert judged is not None
    assert (judged.status, judged.proven, judged.attempts) == (
        TaskStatus.COMPLETED,
        True,
        (PASSED,),
    )
    assert hall.mail("alice") == []
    made = hall.board("lead").add("Test it", check="true")
    assert hall.board("lead").update(made.id, DONE).task.status is TaskStatus.CHECKING


def test_a_task_without_a_check_is_completed_and_unproven(hall: Hall) -> None:
    made = hall.board("lead").add("Write it")
    task = hall.board("lead").update(made.id, DONE).task
    assert (task.status, task.proven, describe_proof(task)) == (
        TaskStatus.COMPLETED,
        None,
        "unproven",
    )


def test_the_check_of_the_team_applies_to_every_task(hall: Hall) -> None:
    made = hall.board("alice").add("Write it")
    hall.board("alice").claim(made.id)
    task = hall.board("alice", check="pytest").update(made.id, DONE).task
    assert task.status is TaskStatus.CHECKING


def test_a_failed_check_returns_the_task_and_mails_its_owner(hall: Hall) -> None:
    task = hall.claimed()
    judged = hall.judge(task, FAILED)
    assert judged is not None
    assert (judged.status, judged.owner, judged.proven) == (TaskStatus.IN_PROGRESS, "alice", False)
    (mail,) = hall.mail("alice")
    assert mail == (
        "The check of task 1 (Write it) failed: `false` ended with exit status 3 after 2.0 s. The "
        "task is in_progress again. Fix it, then set its status to completed once more.\n\n"
        "The end of its output:\n\nthe end"
    )
    assert hall.mail("lead") == []


def test_after_enough_failures_the_lead_gets_mail(hall: Hall) -> None:
    task = hall.claimed()
    for count in range(1, 5):
        judged = hall.judge(task, FAILED, most=2)
        assert judged is not None
        assert len(hall.mail("lead")) == count // 2
        task = hall.board("alice").update(task.id, DONE).task
    assert hall.mail("lead")[0] == (
        "The check of task 1 (Write it) of alice has failed 2 times; the last time `false` ended "
        "with exit status 3 after 2.0 s. alice has it still. To change what is checked: `teamctl "
        "task update 1 --check COMMAND`, or task_update.\n\nThe end of its output:\n\nthe end"
    )
    assert len(hall.mail("alice")) == 4
    assert describe_proof(task) == "checking"


def test_a_judgement_of_an_old_claim_is_ignored(hall: Hall) -> None:
    """The task was reopened, or its check was changed, while the former check ran."""
    task = hall.claimed()
    hall.board("alice").update(task.id, Change(status=TaskStatus.IN_PROGRESS))
    assert hall.judge(task, PASSED) is None
    again = hall.board("alice").update(task.id, DONE).task
    assert hall.judge(task, PASSED) is None
    hall.board("lead").update(task.id, Change(check="stricter"))
    assert hall.judge(again, PASSED) is None
    now = hall.board("lead").read().get(task.id)
    assert (now.status, now.attempts) == (TaskStatus.CHECKING, ())
    assert hall.judge(now, PASSED) is not None
    assert hall.judge(now, FAILED) is None, "twice"


def test_kills_of_the_check_of_one_claim_are_counted(hall: Hall) -> None:
    task = hall.claimed()
    teamd = hall.board("teamd")
    assert teamd.find_claim(task.id, "other") is None
    for count in (1, 2):
        teamd.note_kill(task.id, "other")
        teamd.note_kill(task.id, task.claim)
        found = teamd.find_claim(task.id, task.claim)
        assert found is not None
        assert found.kills == count
    judged = hall.judge(task, FAILED)
    assert judged is not None
    assert judged.kills == 0
    assert teamd.find_claim(task.id, task.claim) is None


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_only_the_maker_and_the_lead_may_change_a_check(hall: Hall, who: str) -> None:
    """Not the owner, and not together with a claim in the same call."""
    task = hall.claimed("false")
    hall.board("alice").update(task.id, Change(status=TaskStatus.IN_PROGRESS))
    for change in (Change(check="true"), Change(check=""), replace(DONE, check="true")):
        with pytest.raises(TeamError) as refused:
            hall.board(who).update(task.id, change)
        why = "the check of task 1 is lead's; only lead may change it: mail lead"
        assert str(refused.value) == why
    assert hall.board("lead").update(task.id, Change(check="true")).task.check == "true"
    made = hall.board("bob").add("x", check="true")
    assert hall.board("bob").update(made.id, Change(check="make")).task.check == "make"
    with pytest.raises(TeamError, match="only bob or lead may change it: mail bob"):
        hall.board("alice").update(made.id, Change(check="true"))


def test_removing_a_check_removes_the_need_for_a_proof(hall: Hall) -> None:
    task = hall.claimed()
    after = hall.board("lead").update(task.id, Change(check="")).task
    assert (after.status, after.proven) == (TaskStatus.COMPLETED, None)
    with pytest.raises(TeamError, match="task 1 is completed; set its status to pending as well"):
        hall.board("lead").update(task.id, Change(check="x"))
    task = hall.claimed()
    judged = hall.judge(task, None)  # the check of the team was removed meanwhile
    assert judged is not None
    assert (judged.status, judged.proven) == (TaskStatus.COMPLETED, None)


def test_a_reopened_task_must_be_proven_again(hall: Hall) -> None:
    task = hall.claimed()
    hall.judge(task, PASSED)
    opened = hall.board("lead").update(task.id, Change(status=TaskStatus.PENDING)).task
    assert (opened.proven, describe_proof(opened)) == (False, "not yet")
    hall.board("alice").claim(task.id)
    assert hall.board("alice").update(task.id, DONE).task.status is TaskStatus.CHECKING


def test_a_task_that_is_being_checked_blocks_others_until_it_is_completed(hall: Hall) -> None:
    task = hall.claimed()
    hall.board("lead").add("Test it", owner="bob", blocked_by=(task.id,))
    with pytest.raises(TeamError, match="blocked by task 1"):
        hall.board("bob").claim("2")
    hall.judge(task, PASSED)
    assert "Nothing blocks task 2" in hall.mail("bob")[-1]


def test_a_task_that_is_being_checked_cannot_be_claimed(hall: Hall) -> None:
    task = hall.claimed()
    for who, why in (
        ("alice", "is being checked; wait for the"),
        ("bob", "is alice's already"),
    ):
        with pytest.raises(TeamError, match=f"task 1 {why}"):
            hall.board(who).claim(task.id)
    hall.board("lead").add("x")
    with pytest.raises(TeamError, match="task 2 is checked once its status is set to completed"):
        hall.board("lead").update("2", Change(status=TaskStatus.CHECKING))


def test_a_teammate_whose_task_is_being_checked_gets_no_other_task(hall: Hall) -> None:
    task = hall.claimed()
    hall.board("lead").add("Test it")
    assert hall.board("alice").take_next("tester") is None
    hall.judge(task, PASSED)
    assert hall.board("alice").take_next("tester") is not None


def test_a_claim_is_checked_after_its_owner_is_gone(hall: Hall) -> None:
    """The check still runs; the task is released only if it fails."""
    task = hall.claimed()
    enrol(hall.paths, alice=Status.SHUTDOWN)
    lead, gone = hall.board("lead"), gone_from(Roster(hall.paths).read())
    assert lead.release(gone) == []
    hall.judge(task, FAILED)
    assert [one.id for one in lead.release(gone)] == ["1"]


def test_mail_of_a_killed_checker_is_delivered_once(hall: Hall) -> None:
    task = hall.claimed()
    judged = hall.judge(task, FAILED)
    assert judged is not None
    mail = hall.post.mailbox("alice").peek()
    untold = replace(judged, untold=tuple(mail))
    hall.paths.task("1").write_bytes(untold.encode())
    assert hall.board("teamd").flush()
    assert len({message.id for message in hall.post.mailbox("alice").peek()}) == 1


def test_a_task_is_decoded_as_it_was_encoded(hall: Hall) -> None:
    task = hall.claimed()
    hall.judge(task, FAILED)
    found = hall.board("lead").read().get("1")
    assert found.attempts == (FAILED,)
    assert Task.decode(found.encode(), named="1") == found
    shown = found.to_json()
    assert (shown["check"], shown["proven"]) == ("true", False)
    assert {"time", "seconds", "status"} <= shown["attempts"][0].keys()
    assert not {"claim", "kills"} & shown.keys()


def test_odd_checks_are_refused(hall: Hall) -> None:
    board = hall.board("lead")
    for check, why in (("x" * 5000, "over the limit of 4000"), ("a\0b", "cannot hold NULs")):
        with pytest.raises(TeamError, match=why):
            board.add("x", check=check)
    assert board.add("x", check="  true \n").check == "true"


@pytest.mark.parametrize(
    ("pattern", "place"),
    [("tests/**", "tests"), (".ci/**", ".ci"), ("a/b.py", "a/b.py"), ("**/conftest.py", None),
     ("a/*.cfg", "a"), ("*.toml", None)],
)  # fmt: skip
def test_in_a_shared_folder_the_parent_of_a_pattern_is_protected(
    pattern: str, place: str | None
) -> None:
    settings = Settings(tasks=TaskSettings(protect=(pattern,)))
    assert settings.tools_of("alice", "coder").protect == (() if place is None else (place,))
