"""The notes on mail that asks for an answer, also on mail that only claims to be a request."""

from __future__ import annotations

import time
from dataclasses import replace

import click
import pytest

from teamctl import arguments
from teamctl.mail.request_notes import describe_end, describe_request
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


def test_a_message_that_borrows_anothers_request_says_nothing_of_it(paths: TeamPaths) -> None:
    """Else mallory's mail would be shown with the words that approve what alice asked for."""
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


def test_members_of_a_host_that_told_of_none_yet_are_left_out(paths: TeamPaths) -> None:
    """Of h3 a cursor is there and no roster: it was never heard of."""
    enrol(paths, ada=Status.IDLE)
    places = HostPlaces(paths)
    places.create()
    places.outbox("h3").touch()
    members = (FarMember(name="alba", role="coder", status=Status.IDLE),)
    rosters.keep(places.roster("h2"), FarRoster(team="default", members=members))
    assert completed(paths, arguments.everywhere, "a") == ["ada", "alba@h2"]
    assert completed(paths, arguments.receivers, "AL") == ["alba@default@h2"]


@pytest.mark.parametrize("what", ["teammates", "tasks", "approvals", "everywhere"])
def test_whoever_presses_tab_in_no_team_gets_no_error(paths: TeamPaths, what: str) -> None:
    paths.root.rename(paths.root.with_name("gone"))
    assert completed(paths, getattr(arguments, what), "") == []


def test_ids_are_completed_those_that_the_person_may_answer(paths: TeamPaths) -> None:
    approvals = Approvals(paths, MailRouter(paths, durable=False, max_bytes=10_000))
    for name, to in (("0a1b", LEAD), ("0c2d", "bob")):
        facts = {"id": name, "asker": "alice", "to": to, "content": "x", "asked": 1.0}
        approvals.ask(Approval(type=Kind.SHUTDOWN, **facts))  # type: ignore[arg-type]
    for number in (1, 12, 3):
        (paths.tasks / f"{number}.json").write_text(f'{{"id": "{number}", "subject": "x"}}')
    assert completed(paths, arguments.tasks, "1") == ["1", "12"]
    assert "0a1b" in completed(paths, arguments.approvals, "0A")
    assert completed(paths, arguments.approvals, "1") == []
