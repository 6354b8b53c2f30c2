"""Valid receivers of mail, and the warnings to senders."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.errors import BadName, InboxFull, StoreError, UnknownTeammate
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter, Sent
from teamd.messages import Message
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.states import Status

TEAM = Team(
    name="project",
    members=tuple(
        Member(name=name, agent_id=f"{name}@project", role="r", status=status)
        for name, status in (
            ("Alice", Status.WORKING),
            ("bob", Status.IDLE),
            ("gone", Status.SHUTDOWN),
            ("broken", Status.FAILED),
            ("resting", Status.PAUSED),
        )
    ),
)


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / "project" / ".team")
    made.create()
    Roster(made).update(lambda _: TEAM)
    return made


@pytest.fixture
def post(paths: TeamPaths) -> MailRouter:
    return MailRouter(paths, durable=False, max_bytes=1000)


def to(name: str, sender: str = "bob") -> Message:
    return Message(sender=sender, to=name, content="x")


def written(paths: TeamPaths) -> list[str]:
    """Return the inboxes with mail; the lead's always exists."""
    there = {file.name: file.stat().st_size for file in paths.inboxes.iterdir()}
    assert "lead.jsonl" in there
    return [name for name, size in there.items() if size]


@pytest.mark.parametrize("name", ["Alice", "alice", "ALICE@project"])
def test_a_name_is_found_in_any_case(post: MailRouter, paths: TeamPaths, name: str) -> None:
    """A separate inbox for `alice` would never be read."""
    assert post.send(to(name)) == Sent("Alice")
    assert written(paths) == ["Alice.jsonl"]
    assert post.inbox(name).peek()[0].to == "Alice"


@pytest.mark.parametrize("name", ["bbo", "", "../config", "bbo@project"])
def test_an_unknown_name_is_answered_with_the_known_ones_and_nothing_is_written(
    post: MailRouter, paths: TeamPaths, name: str
) -> None:
    with pytest.raises(UnknownTeammate, match="the team is: Alice, bob, gone, broken, resting"):
        post.send(to(name))
    assert written(paths) == []


@pytest.mark.parametrize("name", ["lead", "user", "LEAD", "lead@project"])
def test_the_person_is_the_lead(post: MailRouter, name: str) -> None:
    assert post.send(to(name)) == Sent("lead")


@pytest.mark.parametrize("name", ["teamd", "all", "TeamD"])
def test_an_invalid_name_receives_no_mail(post: MailRouter, paths: TeamPaths, name: str) -> None:
    with pytest.raises(BadName, match="it cannot receive mail"):
        post.send(to(name))
    assert written(paths) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [("gone", "is shut down"), ("broken", "has failed"), ("resting", "is paused")],
)
def test_mail_to_a_teammate_that_does_not_read_is_kept_with_a_warning(
    post: MailRouter, name: str, words: str
) -> None:
    warning = post.send(to(name)).warning
    assert warning is not None
    assert warning.startswith(f"{name} {words}; the message waits until it ")
    assert len(post.inbox(name).peek()) == 1


def test_a_broadcast_reaches_all_but_its_sender_and_teammates_that_are_shut_down(
    post: MailRouter,
) -> None:
    sent = post.broadcast(to("all", sender="alice"))
    assert [one.to for one in sent] == ["bob", "broken", "resting"]
    assert [post.inbox(m.name).queued() for m in TEAM.members] == [0, 1, 0, 1, 1]
    assert post.inbox("bob").peek()[0].to == "bob"


@pytest.mark.parametrize(
    ("leader", "boxes"),
    [
        (None, ["user", "lead"]),
        (Status.SHUTDOWN, ["user", "lead"]),
        (Status.IDLE, ["user"]),
        (Status.FAILED, ["user"]),
    ],
)
def test_mail_left_by_a_former_lead_agent_is_also_the_persons(
    post: MailRouter, paths: TeamPaths, leader: Status | None, boxes: list[str]
) -> None:
    """Otherwise mail to `user` would be unread until a lead agent exists again."""
    if leader is not None:
        lead = Member(name="lead", agent_id="lead@project", role="lead", status=leader)
        Roster(paths).update(lambda team: team.with_member(lead))
    assert [box.owner for box in post.persons()] == boxes


def fill(paths: TeamPaths, *names: str) -> None:
    for name in names:
        paths.inbox(name).write_bytes(b'{"content": "x"}\n' * 50)


def test_a_full_inbox_does_not_block_other_receivers(paths: TeamPaths) -> None:
    fill(paths, "bob")
    post = MailRouter(paths, durable=False, max_bytes=1000, max_inbox_bytes=500)
    with pytest.raises(InboxFull, match="the inbox of bob is full"):
        post.send(to("bob"))
    with pytest.raises(StoreError, match=r"the inbox of bob is full.*; the other receivers have"):
        post.broadcast(to("all", sender="Alice"))
    assert [len(post.mailbox(name).peek()) for name in ("bob", "broken", "resting")] == [50, 1, 1]


def test_messages_of_the_program_reach_a_full_inbox_up_to_their_own_limit(
    paths: TeamPaths,
) -> None:
    """A shutdown request must reach a flooded inbox, and an agent must not flood it with plans."""
    fill(paths, "bob")
    MailRouter(paths, durable=False, max_bytes=1000, max_inbox_bytes=800).notify(to("bob"))
    with pytest.raises(InboxFull):
        MailRouter(paths, durable=False, max_bytes=1000, max_inbox_bytes=400).notify(to("bob"))
