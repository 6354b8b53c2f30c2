"""Waiting for a team: when it rests, who works for the lead, and how the wait is reported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from teamctl.chat.work import WorkDone, WorkWatch
from teamctl.mail.team_rest import Crew, RestWatch, explain_late
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.board.task import Task, TaskStatus
from teamd.errors import DeadlinePassed, NoTeamd
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.merges.queue import Entries, Entry, MergeState
from teamd.messages import LEAD, PROMPT_KEY, USER, Message
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools.background import Job
from teamd.transcript.file import Transcript
from teamd.transcript.records import PAUSED, Delivered, NoteAdded, Record, TurnEnded
from tests.unit.life import call, enrol


@pytest.fixture
def served(paths: TeamPaths) -> Iterator[TeamPaths]:
    """A team whose teamd seems to run."""
    claim = pidfile.claim(paths)
    yield paths
    os.close(claim)


def message(sender: str, to: str, **extra: object) -> Message:
    return Message(id=f"{sender}-{to}", sender=sender, to=to, content="Go.", extra=extra)


def put(paths: TeamPaths, sender: str, to: str, **extra: object) -> None:
    Mailbox(paths, to).put(message(sender, to, **extra))


def write(paths: TeamPaths, name: str, *records: Record) -> None:
    Transcript(paths.transcript(name), durable=False).append(NoteAdded(text="."), *records)


def deliver(paths: TeamPaths, sender: str, to: str, **extra: object) -> None:
    write(paths, to, Delivered(messages=(message(sender, to, **extra),)))


def change(paths: TeamPaths, name: str, **facts: Any) -> None:
    Roster(paths).update(lambda team: team.with_member(replace(team.get(name), **facts)))


class Watched:
    """A rest watch of a whole team with a clock of the test."""

    def __init__(self, paths: TeamPaths) -> None:
        self.now = 0.0
        everybody = RestWatch(paths, lambda team: list(team.members), lambda: self.now)
        self._look = everybody.look

    def rests_after(self, seconds: float) -> bool:
        self.now += seconds
        return self._look() is not None


def test_a_team_rests_once_nobody_has_worked_for_a_moment(served: TeamPaths) -> None:
    enrol(served, alice=Status.IDLE, bob=Status.SHUTDOWN)
    watched = Watched(served)
    assert not watched.rests_after(0)
    assert watched.rests_after(1)


def test_mail_on_its_way_is_work(served: TeamPaths) -> None:
    enrol(served, alice=Status.IDLE)
    watched = Watched(served)
    put(served, LEAD, "alice")
    assert not watched.rests_after(0)
    assert not watched.rests_after(1)
    batch = Mailbox(served, "alice").take()
    assert not watched.rests_after(1), "it was taken, but is not in the conversation"
    Mailbox(served, "alice").done(batch)
    assert not watched.rests_after(1)
    assert watched.rests_after(1)


def test_the_wait_for_a_quiet_moment_starts_again_when_a_conversation_grows(
    served: TeamPaths,
) -> None:
    """The whole turn may have passed between two looks."""
    enrol(served, alice=Status.IDLE)
    watched = Watched(served)
    assert not watched.rests_after(0)
    write(served, "alice", TurnEnded(outcome="end_turn"))
    assert not watched.rests_after(1)
    assert watched.rests_after(1)


def test_the_check_of_a_task_is_work_of_its_owner(served: TeamPaths) -> None:
    enrol(served, alice=Status.IDLE)
    watched = Watched(served)
    task = Task(id="1", subject="Build", owner="Alice", status=TaskStatus.CHECKING)
    served.task("1").write_bytes(task.encode())
    assert not watched.rests_after(0)
    assert not watched.rests_after(1)


@pytest.mark.parametrize(
    ("state", "why", "works"),
    [
        (MergeState.WAITING, "", True),
        (MergeState.CHECKING, "", True),
        (MergeState.WAITING, "the person's branch has moved", False),
        (MergeState.MERGED, "", False),
    ],
)
def test_a_merge_is_work_of_the_teammate_unless_it_waits_for_something(
    state: MergeState, why: str, served: TeamPaths, *, works: bool
) -> None:
    enrol(served, alice=Status.IDLE)
    entry = Entry(id="1", teammate="Alice", commit="0" * 40, state=state, why=why)
    served.queue.write_bytes(Entries((entry,), 1).encode())
    watched = Watched(served)
    assert not watched.rests_after(0)
    assert watched.rests_after(1) is not works


@pytest.mark.parametrize(
    ("subagent", "ended", "works"),
    [(True, None, True), (True, 2.0, False), (False, None, False)],
    ids=["running", "ended", "a command"],
)
def test_a_subagent_in_the_background_is_work_of_the_lead(
    served: TeamPaths, *, subagent: bool, ended: float | None, works: bool
) -> None:
    enrol(served, lead=Status.IDLE)
    served.jobs(LEAD).mkdir(parents=True)
    facts = {"id": "1", "what": "task: Find it.", "state": "running"}
    job = Job(**facts, started=1.0, ended=ended, subagent=subagent)
    (served.jobs(LEAD) / "1.json").write_bytes(job.encode())
    (served.jobs(LEAD) / "0.json").write_bytes(b"{")  # damaged: it hides no other
    watched = Watched(served)
    assert not watched.rests_after(0)
    assert watched.rests_after(1) is not works


def test_without_teamd_work_never_ends(paths: TeamPaths) -> None:
    enrol(paths, alice=Status.WORKING)
    with pytest.raises(NoTeamd):
        Watched(paths).rests_after(0)


def names(paths: TeamPaths, crew: Crew) -> list[str]:
    return [one.name for one in crew.choose(Roster(paths).read())]


def test_the_crew_is_the_lead_those_at_rest_and_those_with_a_task_of_the_lead(
    paths: TeamPaths,
) -> None:
    enrol(paths, lead=Status.IDLE, ann=Status.WORKING, bob=Status.WORKING, cay=Status.IDLE)
    deliver(paths, USER, "ann", **{PROMPT_KEY: True})
    deliver(paths, LEAD, "ann")
    deliver(paths, LEAD, "bob", **{PROMPT_KEY: True})
    deliver(paths, USER, "bob")
    assert names(paths, Crew(paths)) == ["lead", "cay"], "the person was the lead"
    write(paths, LEAD, TurnEnded())
    assert names(paths, Crew(paths)) == ["lead", "bob", "cay"]


def test_a_member_joins_once_one_of_the_crew_writes_to_it(paths: TeamPaths) -> None:
    enrol(paths, lead=Status.IDLE, ann=Status.WORKING, bob=Status.WORKING)
    crew = Crew(paths)
    put(paths, "ann", "bob")
    assert names(paths, crew) == ["lead"]
    put(paths, LEAD, "ann")
    assert names(paths, crew) == ["lead", "ann", "bob"]


def test_a_member_joins_if_its_mail_was_delivered_between_two_checks(paths: TeamPaths) -> None:
    enrol(paths, lead=Status.IDLE, ann=Status.WORKING)
    deliver(paths, LEAD, "ann")
    crew = Crew(paths)
    assert names(paths, crew) == ["lead"]
    deliver(paths, LEAD, "ann")
    assert names(paths, crew) == ["lead", "ann"]


def test_a_new_member_joins_if_the_lead_gave_its_task(paths: TeamPaths) -> None:
    enrol(paths, lead=Status.IDLE)
    crew = Crew(paths)
    enrol(paths, ann=Status.WORKING, bob=Status.WORKING)
    put(paths, USER, "ann", **{PROMPT_KEY: True})
    put(paths, LEAD, "bob", **{PROMPT_KEY: True})
    assert names(paths, crew) == ["lead", "bob"]


def work(paths: TeamPaths, *ends: TurnEnded) -> WorkDone:
    """Wait for the work on a message that ann was involved in."""
    crew = Crew(paths)
    deliver(paths, LEAD, "ann", **{PROMPT_KEY: True})
    write(paths, LEAD, Delivered(messages=(message(USER, LEAD),)), *ends)
    return WorkWatch(paths, f"{USER}-{LEAD}", crew).wait(60.0, lambda _: None)


def test_the_work_ends_with_the_last_text_of_the_lead(served: TeamPaths) -> None:
    enrol(served, lead=Status.IDLE, ann=Status.IDLE, bob=Status.FAILED)
    said = [TurnEnded(outcome="end_turn", text=one) for one in ("At it.", "Done.", "")]
    done = work(served, *said)
    assert (done.text, done.trouble) == ("Done.", None)
    assert [view.name for view in done.members] == ["lead", "ann"], "bob failed before"


@pytest.mark.parametrize("to", [USER, LEAD])
def test_an_open_request_is_named_with_the_commands(served: TeamPaths, to: str) -> None:
    """The lead has ended its turn without an answer, but the person may answer in its place."""
    enrol(served, lead=Status.IDLE, ann=Status.IDLE)
    approvals = Approvals(served, MailRouter(served, durable=False, max_bytes=10_000))
    facts = {"asker": "ann", "to": to, "content": "Dig.", "asked": 9e9}
    asked = approvals.ask(Approval(type=Kind.PLAN, **facts))  # type: ignore[arg-type]
    box = Mailbox(served, LEAD)
    box.done(box.take())
    done = work(served, TurnEnded(outcome="end_turn", text="At it."))
    assert done.trouble == (
        f"ann asks to approve a plan: Dig.; `teamctl approve {asked.id}` or "
        f"`teamctl reject {asked.id}`; then `teamctl wait --all` waits for the rest"
    )


def test_a_failure_is_named_with_the_command_to_continue(served: TeamPaths) -> None:
    enrol(served, lead=Status.IDLE, ann=Status.FAILED, bob=Status.PAUSED)
    change(served, "ann", reason="it crashed 6 times")
    crew = Crew(served)
    deliver(served, LEAD, "ann")
    deliver(served, LEAD, "bob")
    ended = TurnEnded(outcome="end_turn", text="At it.")
    write(served, LEAD, Delivered(messages=(message(USER, LEAD),)), ended)
    done = WorkWatch(served, f"{USER}-{LEAD}", crew).wait(60.0, lambda _: None)
    assert done.trouble == (
        "ann has failed: it crashed 6 times; `teamctl spawn ann tester 'Go on.'` resumes it; "
        "1 more: `teamctl team`; then `teamctl wait --all` waits for the rest"
    )


def test_a_paused_lead_is_named_once(served: TeamPaths) -> None:
    enrol(served, lead=Status.PAUSED, ann=Status.IDLE)
    done = work(served, TurnEnded(outcome=PAUSED, text="too dear; `teamctl resume lead`"))
    assert done.trouble == "lead is paused: too dear; `teamctl resume lead`"
    change(served, "ann", status=Status.FAILED, reason="it crashed 6 times")
    done = work(served, TurnEnded(outcome=PAUSED, text="too dear"))
    assert done.trouble is not None
    assert done.trouble.startswith("lead is paused: too dear; ann has failed: it crashed 6 times; ")


def test_at_the_deadline_those_at_work_are_named(served: TeamPaths) -> None:
    enrol(served, lead=Status.IDLE, ann=Status.IDLE)
    crew = Crew(served)
    put(served, LEAD, "ann")
    ended = TurnEnded(outcome="end_turn", text="At it.")
    write(served, LEAD, Delivered(messages=(message(USER, LEAD),)), ended)
    with pytest.raises(DeadlinePassed) as late:
        WorkWatch(served, f"{USER}-{LEAD}", crew).wait(0.0, lambda _: None)
    assert str(late.value) == (
        "ann is still at work after 0 s; `teamctl wait --all` waits on, and `teamctl transcript "
        "lead` shows the last words"
    )
    enrol(served, bob=Status.FAILED)
    change(served, "bob", reason="it crashed 6 times")
    deliver(served, LEAD, "bob")
    with pytest.raises(DeadlinePassed) as late:
        WorkWatch(served, f"{USER}-{LEAD}", crew).wait(0.0, lambda _: None)
    assert str(late.value) == (
        "ann is still at work after 0 s; bob has failed: it crashed 6 times; `teamctl spawn bob "
        "tester 'Go on.'` resumes it; then `teamctl wait --all` waits for the rest"
    )
    assert explain_late(["a", "b", "c"], 2.5) == "a, b and c are still at work after 2.5 s"


def test_a_lead_alone_is_done_with_its_turn_unless_something_will_wake_it(
    served: TeamPaths,
) -> None:
    enrol(served, lead=Status.IDLE)
    ended = TurnEnded(outcome="end_turn", text="At it.")
    write(served, LEAD, Delivered(messages=(message(USER, LEAD),)), ended)

    def look() -> WorkDone:
        return WorkWatch(served, f"{USER}-{LEAD}", Crew(served)).wait(0.0, lambda _: None)

    assert look().text == "At it."
    task = Task(id="1", subject="Build", owner=LEAD, status=TaskStatus.CHECKING)
    served.task("1").write_bytes(task.encode())
    with pytest.raises(DeadlinePassed, match="lead is still at work"):
        look()
    served.task("1").unlink()
    assert look().text == "At it."
    put(served, "ann", LEAD)
    with pytest.raises(DeadlinePassed):
        look()


def test_wait_for_all_leaves_out_those_that_are_shut_down(served: TeamPaths) -> None:
    enrol(served, ann=Status.IDLE, bob=Status.SHUTDOWN)
    done = call(served, "wait", "--all")
    assert (done.status, done.out) == (0, "ann is idle\n")
    assert call(served, "wait", "--all", "ann").status == 2
    change(served, "ann", status=Status.SHUTDOWN)
    done = call(served, "wait", "--all")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("teamctl: there is nobody to wait for; `teamctl spawn`")


def test_wait_for_all_reports_those_that_have_failed(served: TeamPaths) -> None:
    enrol(served, ann=Status.IDLE, bob=Status.FAILED)
    change(served, "bob", reason="it crashed 6 times")
    done = call(served, "wait", "--all")
    assert (done.status, done.out) == (1, "ann is idle\nbob is failed: it crashed 6 times\n")


def test_a_finished_lead_is_shown_as_a_notice_until_the_person_looks(served: TeamPaths) -> None:
    enrol(served, lead=Status.IDLE, ann=Status.IDLE)
    words = "All of it\nis done."
    write(served, LEAD, TurnEnded(outcome="end_turn", text=words, time=1.0))
    assert "lead finished" in call(served, "team").out
    assert "All of it is done; `teamctl chat` shows it all" in call(served, "team").out
    change(served, "ann", status=Status.WORKING)
    assert "lead finished" not in call(served, "team").out
    change(served, "ann", status=Status.IDLE)
    call(served, "inbox", "--peek")
    assert "lead finished" not in call(served, "team").out


def test_a_finished_board_is_shown_as_a_notice_until_the_person_looks(served: TeamPaths) -> None:
    enrol(served, ann=Status.IDLE)
    facts = {"subject": "Build", "status": TaskStatus.COMPLETED, "updated": 1.0}
    served.task("1").write_bytes(Task(id="1", **facts).encode())  # type: ignore[arg-type]
    assert "the only task was completed" in call(served, "team").out
    served.task("2").write_bytes(Task(id="2", subject="Test").encode())
    assert "completed" not in call(served, "team").out
    (served.tasks / "2.json").unlink()
    call(served, "tasks")
    assert "completed" not in call(served, "team").out
