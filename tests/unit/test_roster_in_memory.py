"""Notices about a teammate go to the lead; those about an agent that leads go to the person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.supervisor import roster_in_memory
from teamd.supervisor.roster_in_memory import RosterWriter
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.life import enrol
from tests.waiting import wait_until


@contextmanager
def writing(folder: Path) -> Iterator[tuple[MailRouter, RosterWriter]]:
    """Yield the mail router and the roster writer of a new team."""
    paths = TeamPaths(folder / "project" / ".team")
    paths.create()
    post = MailRouter(paths, durable=False, max_bytes=1000)
    with closing(Journal(paths.log("teamd"), "teamd")) as journal:
        yield post, RosterWriter(post, journal, team_name="project")


@pytest.mark.parametrize(
    ("name", "told", "again"),
    [("bob", "lead", "`teamctl spawn bob"), ("lead", "user", "`teamctl chat")],
)
def test_trouble_is_reported_to_a_receiver_that_can_read_it(
    tmp_path: Path, name: str, told: str, again: str
) -> None:
    """A lead agent that is stuck or has failed reads no mail about it."""
    with writing(tmp_path) as (post, writer):
        for member in ("lead", "bob"):
            writer.admit(member, "r")
        writer.publish()
        writer.stuck(name, "no progress", restart=False)
        writer.failed(name, "it crashed")
    stuck, failed = (message.content for message in post.mailbox(told).peek())
    assert stuck.startswith(f"{name} is stuck: no progress; ")
    assert stuck.endswith("then resumes it")
    assert again in stuck
    assert failed.startswith(f"{name} has failed: it crashed; ")
    assert again in failed


def test_an_admission_can_be_undone(tmp_path: Path) -> None:
    """For example, if a spawn's prompt cannot be written: the team is as it was before."""
    with writing(tmp_path) as (_, writer):
        writer.admit("ann", "coder", model="m")
        before = writer.team
        writer.admit("bob", "tester")
        writer.restore("bob", None)
        assert writer.team == before
        writer.admit("ann", "coder", model="other")
        writer.restore("ann", before.find("ann"))
        assert writer.team == before


@pytest.mark.parametrize(
    ("spawned_by", "led", "told"),
    [
        ("lead@project", False, "lead@project"),
        ("lead@project", True, "lead"),
        ("lead@gone", False, "lead"),
        (None, False, "lead"),
    ],
)
def test_trouble_is_reported_to_the_spawning_team_unless_an_agent_leads_its_own(
    tmp_path: Path, spawned_by: str | None, told: str, *, led: bool
) -> None:
    """Its own team has no reader for the notice."""
    project = tmp_path / "project"
    enrol(TeamPaths(project / ".team"))
    paths = TeamPaths(project / ".teams" / "web")
    paths.create()
    post = MailRouter(paths, durable=False, max_bytes=1000)
    with closing(Journal(paths.log("teamd"), "teamd")) as journal:
        writer = RosterWriter(post, journal, team_name="web")
        if led:
            writer.admit("lead", "lead")
        writer.admit("bob", "r", spawned_by=spawned_by)
        writer.publish()
        writer.failed("bob", "it crashed")
    assert post.above("bob") == told
    (news,) = post.inbox(told).peek()
    assert news.content.startswith("bob has failed")
    assert "`teamctl --team web spawn bob r 'Go on.'` resumes it" in news.content
    assert news.sender == ("teamd@web" if "@" in told else "teamd")
    assert Roster(TeamPaths(tmp_path / "none")).above("bob") == "lead"


def test_a_status_is_as_old_as_its_last_change(tmp_path: Path) -> None:
    """Token counts and pids change often, and do not affect the idle time."""
    with writing(tmp_path) as (post, writer):
        writer.admit("ann", "coder")
        began = writer.team.get("ann").status_since
        writer.change("ann", turns=1, status=Status.WORKING)
        writer.ended("ann")
        assert writer.team.get("ann").status_since == began is not None
        writer.change("ann", status=Status.IDLE)
        assert (writer.team.get("ann").status_since or 0) > began
        writer.publish()
    assert Roster(post.paths).read().get("ann") == writer.team.get("ann")


def test_restarts_are_counted_until_the_next_spawn(tmp_path: Path) -> None:
    with writing(tmp_path) as (post, writer):
        writer.admit("ann", "coder")
        writer.crashed("ann", "its process was ended by SIGKILL")
        writer.crashed("ann", "its process was ended by SIGKILL")
        writer.publish()
        assert Roster(post.paths).read().get("ann").restarts == 2
        writer.admit("ann", "coder")
        assert writer.team.get("ann").restarts == 0


def test_a_failed_notice_is_sent_later_and_does_not_block_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, an inbox stays locked, or the disk is full."""
    monkeypatch.setattr(roster_in_memory, "_TELL_AGAIN_SECONDS", 0.01)
    with writing(tmp_path) as (post, writer):
        writer.admit("lead", "r")
        writer.publish()
        post.paths.inbox("lead").unlink()
        post.paths.inbox("lead").mkdir()
        writer.tell_lead("one")
        writer.tell_lead("two")
        writer.tell_lead("three", to="user")
        post.paths.inbox("lead").rmdir()

        def told() -> list[str]:
            writer.publish()
            return [message.content for message in post.mailbox("lead").peek()]

        wait_until(lambda: told() == ["one", "two"], what="the lead is told of both")
        assert [message.content for message in post.mailbox("user").peek()] == ["three"]
