"""The board on disk: ids, mail, damage, and interrupted writers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamd.board.board import Board
from teamd.board.rules import Change, describe_proof, gone_from
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.errors import StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.life import enrol

DONE = Change(status=TaskStatus.COMPLETED)
FAILED = Attempt(time=1.0, seconds=2.0, status=3, command="false")
PASSED = replace(FAILED, status=0)


class Hall:
    """A team with a board."""

    def __init__(self, folder: Path) -> None:
        self.paths = TeamPaths(folder / ".team")
        enrol(self.paths, alice=Status.WORKING, bob=Status.IDLE, carol=Status.SHUTDOWN)
        self.post = MailRouter(self.paths, durable=False, max_bytes=100_000)

    def board(self, who: str) -> Board:
        """Return the board as a member sees it."""
        return Board(self.paths, self.post, who, durable=False)

    def mail(self, name: str) -> list[str]:
        """Return the mail in an inbox."""
        return [message.content for message in self.post.mailbox(name).peek()]

    def on_disk(self, task_id: str) -> dict[str, object]:
        """Return the content of a task's file."""
        document: dict[str, object] = json.loads(self.paths.task(task_id).read_bytes())
        return document


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path)


def test_a_task_is_a_file_that_any_program_can_read(hall: Hall) -> None:
    task = hall.board("alice").add("Write  the\nAPI", description="In Go.", role="coder")
    assert task.id == "1"
    found = hall.on_disk("1")
    shown = {key: found[key] for key in ("id", "subject", "description", "status", "owner")}
    assert shown == {
        "id": "1",
        "subject": "Write the API",
        "description": "In Go.",
        "status": "pending",
        "owner": "",
    }
    assert (found["blocked_by"], found["role"], found["created_by"]) == ([], "coder", "alice")
    assert hall.paths.task("1").stat().st_mode & 0o777 == 0o600


def test_an_id_is_never_reused(hall: Hall) -> None:
    """Not even after its task or the file is removed: mail may still name it."""
    board = hall.board("lead")
    for _ in range(3):
        board.add("x")
    board.update("3", Change(status=TaskStatus.DELETED))
    assert board.add("y").id == "4"
    hall.paths.task("4").unlink()
    assert board.add("z").id == "5"
    hall.paths.tasks_lock.write_text("not a number")
    assert board.add("z").id == "6"


def test_a_repeated_call_makes_one_task(hall: Hall) -> None:
    board = hall.board("alice")
    first = board.add("x", key="call-1")
    assert board.add("x", key="call-1").id == first.id
    assert board.add("x", key="call-2").id == "2"
    assert [board.add("x").id, board.add("x").id] == ["3", "4"]


def test_completing_a_task_mails_the_owners_of_freed_tasks_or_their_makers(hall: Hall) -> None:
    hall.board("lead").add("Write it", owner="alice")
    hall.board("lead").add("Test it", owner="bob", blocked_by=("1",))
    hall.board("bob").add("Describe it", blocked_by=("1",))
    hall.board("lead").add("Praise it", blocked_by=("1",))
    hall.board("lead").add("Sell it", owner="bob", blocked_by=("1", "2"))
    before = len(hall.mail("bob"))
    changed = hall.board("alice").update("1", DONE)
    assert changed.freed == ("2", "3", "4")
    why = "any more: task 1 (Write it) is completed."
    assert hall.mail("bob")[before:] == [
        f"Nothing blocks task 2 (Test it) {why} It is yours.",
        f"Nothing blocks task 3 (Describe it) {why} It has no owner yet; claim_task takes it.",
    ]
    (told, _) = hall.post.mailbox("bob").peek()[before:]
    assert (told.type, told.sender, told.extra["task_id"]) == ("message", "alice", "2")
    assert hall.mail("lead") == [], "a person looks at the board"
    hall.board("alice").update("1", DONE)
    assert len(hall.mail("bob")) == before + 2, "a repeated call tells nobody again"


def test_deleting_a_task_sends_no_mail_about_that_task(hall: Hall) -> None:
    hall.board("lead").add("Write it", owner="alice")
    hall.board("lead").add("Test it", owner="bob", blocked_by=("1",))
    hall.board("lead").update("2", Change(status=TaskStatus.DELETED))
    before = hall.mail("bob")
    assert hall.board("alice").update("1", DONE).freed == ()
    assert hall.mail("bob") == before


def test_a_task_assigned_by_another_member_is_mailed_to_its_owner(hall: Hall) -> None:
    hall.board("lead").add("Write it", description="In Go.", owner="BOB")
    (told,) = hall.mail("bob")
    assert told.startswith("lead gave you task 1: Write it\n\nIn Go.\n\nWhen it is done, set")
    hall.board("bob").claim("1")
    hall.board("bob").update("1", Change(owner="alice"))
    (told,) = hall.mail("alice")
    assert told.startswith("bob gave you task 1: Write it")
    assert len(hall.mail("bob")) == 1


@pytest.mark.parametrize(
    ("owner", "sentence"),
    [
        ("bbo", "no teammate named 'bbo'; the team is: alice, bob, carol"),
        ("carol", "carol is shut down and cannot own a task; `teamctl spawn carol …`"),
    ],
)
def test_a_teammate_that_is_not_running_cannot_own_a_task(
    hall: Hall, owner: str, sentence: str
) -> None:
    board = hall.board("lead")
    with pytest.raises(TeamError, match=sentence):
        board.add("x", owner=owner)
    board.add("x")
    with pytest.raises(TeamError, match=sentence):
        board.update("1", Change(owner=owner))
    with pytest.raises(TeamError, match=sentence):
        board.claim("1", owner=owner)
    assert hall.on_disk("1")["owner"] == ""


def test_a_damaged_file_is_reported_and_does_not_hide_the_others(hall: Hall) -> None:
    board = hall.board("lead")
    for _ in range(3):
        board.add("x")
    board.update("3", Change(add_blocked_by=("2",)))
    hall.paths.task("2").write_text('{"id": "2", "subj')
    tasks = board.read()
    assert list(tasks.by_id) == ["1", "3"]
    assert "tasks/2.json is damaged (" in tasks.damaged["2"]
    assert "; repair it, or move it away" in tasks.damaged["2"]
    with pytest.raises(StoreError, match=r"2\.json is damaged"):
        board.claim("2")
    with pytest.raises(TeamError, match="task 3 is blocked by task 2"):
        board.claim("3")  # the damaged task may or may not be done
    assert board.add("y").id == "4"
    assert hall.paths.task("2").read_text() == '{"id": "2", "subj', "it is kept for mending"


def test_a_folder_in_place_of_a_task_is_reported_and_does_not_hide_the_others(hall: Hall) -> None:
    board = hall.board("lead")
    board.add("x")
    hall.paths.task("2").mkdir()
    tasks = board.read()
    assert list(tasks.by_id) == ["1"]
    assert "tasks/2.json is not a regular file" in tasks.damaged["2"]
    assert board.add("y").id == "3"


def test_keys_of_other_programs_are_kept_and_numeric_ids_are_read(hall: Hall) -> None:
    hall.paths.task("1").write_text(
        '{"id": 1, "subject": "x", "priority": 7, "owner": null, "blocked_by": [2]}'
    )
    hall.paths.task("2").write_text('{"subject": "y"}')
    hall.paths.tasks.joinpath("notes.json").write_text("[]")
    board = hall.board("alice")
    assert list(board.read().by_id) == ["1", "2"]
    board.update("1", Change(remove_blocked_by=("2",)))
    board.claim("1")
    assert (hall.on_disk("1")["priority"], hall.on_disk("1")["owner"]) == (7, "alice")


def test_the_next_writer_delivers_the_mail_of_a_killed_writer(hall: Hall) -> None:
    """Killed between the task's file and the mail: the mail keeps its id."""
    hall.board("lead").add("Write it", owner="alice")
    hall.board("bob").add("Test it", blocked_by=("1",))
    hall.board("alice").update("1", DONE)
    (told,) = hall.post.mailbox("bob").peek()
    before = Task.decode(hall.paths.task("1").read_bytes(), named="1")
    hall.paths.task("1").write_bytes(replace(before, untold=(told,)).encode())
    hall.paths.inbox("bob").write_bytes(b"")

    assert hall.board("teamd").flush()
    (again,) = hall.post.mailbox("bob").peek()
    assert again.is_same_as(told)
    assert "untold" not in hall.on_disk("1")
    assert not hall.board("teamd").flush()

    hall.paths.task("1").write_bytes(replace(before, untold=(told,)).encode())
    hall.board("alice").add("and more")  # any writer will do
    assert len(hall.mail("bob")) == 2
    assert "untold" not in hall.on_disk("1")


def test_a_change_is_kept_if_its_mail_cannot_be_written_and_mailed_later(hall: Hall) -> None:
    hall.board("bob").add("Write it", owner="alice")
    hall.board("bob").add("Test it", blocked_by=("1",))
    hall.paths.inbox("bob").unlink(missing_ok=True)
    hall.paths.inbox("bob").mkdir()
    assert hall.board("alice").update("1", DONE).task.status is TaskStatus.COMPLETED
    assert hall.on_disk("1")["untold"]
    hall.paths.inbox("bob").rmdir()
    assert hall.board("lead").flush()
    assert len(hall.mail("bob")) == 1


def test_a_teammate_that_is_gone_loses_its_open_tasks(hall: Hall) -> None:
    board = hall.board("lead")
    for owner in ("alice", "alice", "alice", "bob", "lead"):
        board.add("x", owner=owner)
    hall.board("alice").claim("1")
    hall.board("alice").update("2", DONE)
    enrol(hall.paths, alice=Status.FAILED)
    released = hall.board("teamd").release(gone_from(Roster(hall.paths).read()))
    assert [task.id for task in released] == ["1", "3"]
    found = [(t.id, str(t.status), t.owner) for t in board.read().by_id.values()]
    assert found == [
        ("1", "pending", ""),
        ("2", "completed", "alice"),
        ("3", "pending", ""),
        ("4", "pending", "bob"),
        ("5", "pending", "lead"),
    ]
    assert hall.on_disk("1")["notes"] == ["released: alice has failed"]
    hall.board("bob").claim("1")


def test_take_next_gives_the_first_free_task_of_the_role_and_one_at_a_time(hall: Hall) -> None:
    lead = hall.board("lead")
    lead.add("blocked", blocked_by=())
    lead.update("1", Change(status=TaskStatus.IN_PROGRESS))
    lead.add("waits", blocked_by=("1",))
    lead.add("for others", role="tester")
    lead.add("for her", role="Coder", description="With care.")
    lead.add("for anybody")
    alice = hall.board("alice")
    first = alice.take_next("coder")
    assert first is not None
    assert (first.id, first.owner, str(first.status)) == ("4", "alice", "in_progress")
    (told,) = hall.mail("alice")
    assert told.startswith("You are free, and so was task 4, so it is yours now: for her")
    assert "With care." in told
    assert alice.take_next("coder") is None, "she has one"
    alice.update("4", DONE)
    second = alice.take_next("coder")
    assert second is not None
    assert second.id == "5"
    alice.update("5", Change(status=TaskStatus.PENDING))
    assert alice.take_next("coder") is None, "she has given it back"
    assert len(hall.mail("alice")) == 2


# tasks from other programs: a mistake in one is reported and hides no other


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"blocked_by": "2"}, "its 'blocked_by' is '2'"),
        ({"blocked_by": [{"id": 2}]}, "its 'blocked_by' is [{'id': 2}]"),
        ({"notes": {"a": 1}}, "its 'notes' is {'a': 1}"),
        ({"attempts": [{"status": "0"}]}, "an entry of its 'attempts' is not an attempt"),
        ({"attempts": [{"status": True}]}, "an entry of its 'attempts' is not an attempt"),
        ({"attempts": ["passed"]}, "an entry of its 'attempts' is not an attempt"),
        ({"untold": [{"content": "x"}]}, "an entry of its 'untold' is not a message"),
        ({"untold": ["x"]}, "an entry of its 'untold' is not a message"),
        (
            {"untold": [{"to": "bob", "from": "eve"}]},
            "an entry of its 'untold' is not a message: ",
        ),
    ],
)
def test_a_mistake_in_a_task_is_reported(hall: Hall, fields: dict[str, Any], why: str) -> None:
    board = hall.board("alice")
    board.add("sound")
    file = hall.paths.task("2")
    file.write_text(json.dumps({"subject": "x", **fields}))
    tasks = board.read()
    assert list(tasks.by_id) == ["1"]
    assert f"{file} is damaged ({why}" in tasks.damaged["2"]
    assert board.add("next").id == "3"


def test_a_task_that_is_nested_too_deeply_is_reported(hall: Hall) -> None:
    """Python's RecursionError must not end a process that reads the board."""
    board = hall.board("alice")
    file = hall.paths.task("1")
    file.write_text('{"subject": ' + "[" * 100_000)
    assert "is damaged (it is nested too deeply)" in board.read().damaged["1"]


def test_one_damaged_task_reads_as_missing(hall: Hall) -> None:
    """Checkers and the merge queue continue with other tasks."""
    board = hall.board("alice")
    board.add("x")
    found = board.read_one("1")
    assert found is not None
    assert found.subject == "x"
    hall.paths.task("1").write_text("{")
    assert board.read_one("1") is None


@pytest.mark.parametrize(
    ("attempts", "word"),
    [
        ((FAILED,), "failed once"),
        ((FAILED, FAILED), "failed 2 times"),
        ((FAILED, PASSED, FAILED), "failed once"),
        ((FAILED, PASSED), "not yet"),
        ((), "not yet"),
    ],
)
def test_a_task_says_how_often_its_check_failed_since_it_last_passed(
    attempts: tuple[Attempt, ...], word: str
) -> None:
    task = Task(id="1", subject="x", check="true", attempts=attempts)
    assert describe_proof(task) == word


def test_a_long_check_is_cut_in_the_mail_about_it(hall: Hall) -> None:
    board = hall.board("alice")
    command = f"test {'x' * 294} && rm y"
    board.add("Write it", check=command)
    board.claim("1")
    task = board.update("1", Change(status=TaskStatus.COMPLETED)).task
    board.judge("1", task.claim, replace(FAILED, command=command), "", most=5)
    (mail,) = hall.mail("alice")
    assert f"failed: `{command[:300]} …` ended with exit status 3" in mail
    assert "rm y" not in mail


@pytest.mark.parametrize("more", [0, 1])
def test_a_long_description_is_cut_in_the_mail_to_the_owner(hall: Hall, more: int) -> None:
    board = hall.board("alice")
    text = "d" * (2000 + more)
    board.add("Write it", description=text)
    assert board.take_next("tester") is not None
    (mail,) = hall.mail("alice")
    assert ("d" * 2000 in mail, text in mail) == (True, not more)
    assert ("d … (task_get shows all of it)" in mail) is bool(more)
