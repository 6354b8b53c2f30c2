"""The tools of a lead: refusals in words, and actions that need no supervisor."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import pytest

from teamd.approvals.approval import Approval, Kind, Verdict
from teamd.approvals.store import Approvals
from teamd.control import Asking
from teamd.files import directories
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.hosts.view import HostState, Views
from teamd.mail.routing import MailRouter
from teamd.team import teams
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools import Result, Tool, Toolbox
from teamd.tools.approval import ReviewPlan, SubmitPlan
from teamd.tools.background import Jobs
from teamd.tools.lead import (
    NOT_FROM_HERE,
    DelegateTask,
    DeleteTeam,
    InterruptTeammate,
    ListTeammates,
    PauseTeammate,
    ResumeTeammate,
    ShutdownRequest,
    SpawnTeammate,
)
from teamd.tools.mail import Broadcast
from tests.unit.life import enrol

FAR: Final = "bob@project@h2"


class Hall:
    """A project of two teams without a supervisor; requests to one fail with that reason."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.paths = TeamPaths(project / ".team")
        enrol(self.paths, alice=Status.WORKING, carol=Status.SHUTDOWN)
        self.other = teams.make(project, "other")
        enrol(self.other, dora=Status.SHUTDOWN)
        self.post = MailRouter(self.paths, durable=False, max_bytes=100_000)

    def asking(self, _team: str | None = None) -> Asking:
        """The client for requests to the supervisor."""
        return Asking(self.paths, "alice")

    def approvals(self, paths: TeamPaths) -> Approvals:
        """The approvals of a team."""
        return Approvals(paths, MailRouter(paths, durable=False, max_bytes=100_000))

    def run(self, tool: Tool[Any], **arguments: Any) -> Result:
        return asyncio.run(Toolbox([tool]).run(tool.name, arguments, key="k-1-0"))


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path / "project")


def refused(result: Result) -> str:
    assert result.is_error, result.text
    return result.text


def test_an_agent_cannot_send_commands_to_another_host(hall: Hall) -> None:
    shutdown = ShutdownRequest(hall.asking, Roster(hall.paths))
    spawned = hall.run(SpawnTeammate(hall.asking), name=FAR, role="coder", prompt="work")
    assert refused(spawned) == NOT_FROM_HERE
    assert refused(hall.run(shutdown, teammate=FAR)) == NOT_FROM_HERE
    for tool in (InterruptTeammate, PauseTeammate, ResumeTeammate):
        assert refused(hall.run(tool(hall.asking), teammate=FAR)) == NOT_FROM_HERE
        assert "no teamd runs" in refused(hall.run(tool(hall.asking), teammate="alice"))


def test_a_stopped_teammate_is_not_asked_to_shut_down(hall: Hall) -> None:
    tool = ShutdownRequest(hall.asking, Roster(hall.paths))
    assert hall.run(tool, teammate="CAROL") == Result(text="carol is shut down already")
    assert "no teamd runs" in refused(hall.run(tool, teammate="alice"))


def test_a_task_for_a_teammate_refuses_options_for_subagents(hall: Hall, tmp_path: Path) -> None:
    async def delegate(*_: Any, **__: Any) -> str:
        return "never"

    jobs = Jobs(tmp_path / "jobs", ring=lambda: None)
    tool = DelegateTask(delegate, jobs, hall.asking)
    said = refused(hall.run(tool, prompt="work", name="eve", background=True))
    assert said == "a teammate always works in the background; leave `background` out"
    said = refused(hall.run(tool, prompt="work", team="other"))
    assert said == "only a teammate with a `name` can be in another team"
    assert hall.run(tool, prompt="work") == Result(text="never")


def test_a_host_without_a_roster_does_not_hide_the_others(hall: Hall) -> None:
    HostPlaces(hall.paths).create()
    views = Views(hall.paths)
    for host in ("h2", "h3"):
        views.change(host, state=HostState.REACHABLE, since=time.time())
    views.write()
    told = FarMember(name="bob", role="coder", status=Status.IDLE)
    rosters.keep(HostPlaces(hall.paths).roster("h3"), FarRoster(team="project", members=(told,)))
    tool = ListTeammates(Roster(hall.paths), "alice", FarHosts(hall.paths, "h1", durable=False))
    here, far = hall.run(tool).text.splitlines()
    assert here == "carol (tester): shutdown"
    assert far.startswith("bob@project@h3 (coder): ")


def test_a_team_whose_members_are_all_shut_down_is_deleted_at_once(hall: Hall) -> None:
    tool = DeleteTeam(hall.paths, lambda: "alice@project")
    assert hall.run(tool, name="OTHER") == Result(text="the team other is deleted")
    assert not hall.other.root.exists()
    assert [team.name for team in teams.teams(hall.project)] == ["project"]


def test_a_team_with_a_working_member_is_not_deleted_without_confirmation(hall: Hall) -> None:
    enrol(hall.other, dora=Status.IDLE)
    tool = DeleteTeam(hall.paths, lambda: "alice@project")
    assert "no teamd runs" in refused(hall.run(tool, name="other"))
    assert hall.other.config.exists()
    own = DeleteTeam(hall.other, lambda: "dora@other")
    said = refused(hall.run(own, name="other"))
    assert said == "you are in this team; the person deletes it with `teamctl delete other`"


def test_a_plan_of_another_team_is_answered_only_by_its_receiver(hall: Hall) -> None:
    own, other = hall.approvals(hall.paths), hall.approvals(hall.other)
    for name, to in (("p-1", "LEAD@project"), ("p-2", "lead")):
        plan = Approval(id=name, asker="dora", to=to, type=Kind.PLAN, content="?", asked=1.0)
        hall.other.request(name).write_bytes(plan.encode())
    tool = ReviewPlan(own, lambda: [hall.approvals(hall.other)], lambda: "lead@project")
    said = hall.run(tool, request_id="p-1", approve=True, feedback="Good.")
    assert said == Result(text="approved; dora is told")
    answered = other.find("p-1")
    assert answered is not None
    assert (answered.status, answered.answered_by) == (Verdict.APPROVED, "lead@project")
    inbox = MailRouter(hall.other, durable=False, max_bytes=100_000).mailbox("dora")
    assert [mail.content for mail in inbox.peek()] == ["Good."]
    assert "no request 'p-2'" in refused(hall.run(tool, request_id="p-2", approve=True))
    unanswered = other.find("p-2")
    assert unanswered is not None
    assert unanswered.is_open


def test_a_team_with_unreadable_requests_does_not_hide_the_others(hall: Hall) -> None:
    damaged = teams.make(hall.project, "damaged")
    damaged.request("p-1").mkdir()
    plan = Approval(id="p-1", asker="dora", to="lead@project", type=Kind.PLAN, content="?", asked=1)
    hall.other.request("p-1").write_bytes(plan.encode())
    others = [hall.approvals(damaged), hall.approvals(hall.other)]
    tool = ReviewPlan(hall.approvals(hall.paths), lambda: others, lambda: "lead@project")
    said = hall.run(tool, request_id="p-1", approve=False, feedback="Why?")
    assert said == Result(text="rejected; dora is told")


@pytest.mark.parametrize("plan", [" ", "\n\t"])
def test_an_empty_plan_is_refused_and_sends_no_request(hall: Hall, plan: str) -> None:
    approvals = hall.approvals(hall.paths)
    tool = SubmitPlan(approvals, "alice", lambda: "t-1", lambda: "secret")
    assert refused(hall.run(tool, plan=plan)) == "a plan is needed; this one is empty"
    assert approvals.all() == []
    assert hall.post.mailbox("lead").peek() == []


def test_a_broadcast_without_receivers_is_an_error(hall: Hall) -> None:
    said = refused(hall.run(Broadcast(hall.post, "alice"), content="hello"))
    assert said == "there is nobody to send to; list_teammates shows who is in the team"
    enrol(hall.paths, bob=Status.IDLE)
    assert hall.run(Broadcast(hall.post, "alice"), content="hello").text == "sent to bob"
    assert not directories.list_files(hall.paths.inboxes, "carol*")
