"""Notes on mail that asks for an answer, including mail that only claims to be a request."""

from __future__ import annotations

import time
from dataclasses import replace

import click
import pytest

from teamctl import arguments
from teamctl.mail.inbox_reader import describe_end, describe_request
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, USER, Message
from teamd.team.states import Status
from tests.unit.life import enrol


def test_a_message_with_the_request_id_of_another_gets_no_note(paths: TeamPaths) -> None:
    """Otherwise mallory's mail would show the command that approves alice's request."""
    approvals = Approvals(paths, MailRouter(paths, durable=False, max_bytes=10_000))
    asked = approvals.ask(
        Approval(type=Kind.PLAN, asker="alice", to=LEAD, content="x", asked=time.time())
    )
    facts = {"request_id": asked.id}
    own = Message(type=Kind.PLAN, sender="alice", to=LEAD, content="May I?", extra=facts)
    borrowed = replace(own, sender="mallory")
    other = replace(own, type=Kind.SHUTDOWN)
    assert f"`teamctl approve {asked.id}` approves it" in describe_request(paths, own).replace(
        f" --team-dir {paths.root}", ""
    )
    assert describe_request(paths, borrowed) == describe_request(paths, other) == ""
    approvals.answer(asked.id, by=USER, approve=False, reason="no")
    assert "you" in describe_end(paths, own)
    assert describe_end(paths, borrowed) == describe_end(paths, other) == ""


def completed(paths: TeamPaths, what: arguments.Complete, begun: str) -> list[str]:
    command = click.Command("it")
    context = click.Context(command)
    context.params = {"team_dir": str(paths.root)}
    return what(context, click.Argument(["name"]), begun)


def test_members_of_a_host_without_a_roster_are_left_out(paths: TeamPaths) -> None:
    """The host h3 has an outbox and no roster: it was never heard."""
    enrol(paths, ada=Status.IDLE)
    places = HostPlaces(paths)
    places.create()
    places.outbox("h3").touch()
    members = (FarMember(name="alba", role="coder", status=Status.IDLE),)
    rosters.keep(places.roster("h2"), FarRoster(team="default", members=members))
    assert completed(paths, arguments.everywhere, "a") == ["ada", "alba@h2"]
    assert completed(paths, arguments.receivers, "AL") == ["alba@default@h2"]


@pytest.mark.parametrize("what", ["teammates", "tasks", "approvals", "everywhere"])
def test_completion_without_a_team_is_not_an_error(paths: TeamPaths, what: str) -> None:
    paths.root.rename(paths.root.with_name("gone"))
    assert completed(paths, getattr(arguments, what), "") == []


def test_only_ids_that_the_person_may_answer_are_completed(paths: TeamPaths) -> None:
    approvals = Approvals(paths, MailRouter(paths, durable=False, max_bytes=10_000))
    for name, to in (("0a1b", LEAD), ("0c2d", "bob")):
        facts = {"id": name, "asker": "alice", "to": to, "content": "x", "asked": 1.0}
        approvals.ask(Approval(type=Kind.SHUTDOWN, **facts))  # type: ignore[arg-type]
    for number in (1, 12, 3):
        (paths.tasks / f"{number}.json").write_text(f'{{"id": "{number}", "subject": "x"}}')
    assert completed(paths, arguments.tasks, "1") == ["1", "12"]
    assert "0a1b" in completed(paths, arguments.approvals, "0A")
    assert completed(paths, arguments.approvals, "1") == []
