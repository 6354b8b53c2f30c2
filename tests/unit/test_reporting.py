"""Reports of a teammate to its supervisor and to the lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.agent.conversation.conversation import Conversation
from teamd.agent.work import Reporter
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import TEAMD
from teamd.process_id import Identity
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened
from tests.strict.replies import say
from tests.unit.life import SYSTEM, enrol, replied

PROCESS = Identity(pid=7, started=1.5)


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    enrol(made, alice=Status.IDLE)
    return made


@pytest.fixture
def conversation(paths: TeamPaths) -> Conversation:
    made = Conversation(Transcript(paths.transcript("alice"), durable=False))
    made.open(Opened(system=SYSTEM))
    return made


@pytest.fixture
def reporter(paths: TeamPaths, conversation: Conversation) -> Reporter:
    return Reporter(
        name="alice",
        process=PROCESS,
        conversation=conversation,
        supervisor=Mailbox(paths, TEAMD, durable=False),
        post=MailRouter(paths, durable=False, max_bytes=10_000),
    )


def test_a_report_contains_its_process_and_its_usage(
    reporter: Reporter, conversation: Conversation, paths: TeamPaths
) -> None:
    """A late report of an earlier process must not be taken for one of this process."""
    conversation.add_reply(replied(say("x")))
    reporter.report(Status.PAUSED, "no key")
    (message,) = Mailbox(paths, TEAMD).peek()
    assert (message.type, message.sender, message.content) == ("state", "alice", "paused")
    assert message.extra == {
        "status": "paused",
        "reason": "no key",
        "until": None,
        "remedy": None,
        "turns": 1,
        "input_tokens": 60,
        "output_tokens": 4,
        "pid": 7,
        "started": 1.5,
    }


def test_a_known_state_is_not_reported_again(
    reporter: Reporter, conversation: Conversation, paths: TeamPaths
) -> None:
    """Inboxes full of idle notices are a chief complaint about the nearest product."""
    for _ in range(3):
        reporter.report(Status.IDLE)
    conversation.add_reply(replied(say("x")))
    reporter.report(Status.IDLE)
    reporter.report(Status.WORKING)
    reporter.report(Status.IDLE)
    told = [message.content for message in Mailbox(paths, TEAMD).peek()]
    assert told == ["idle", "idle", "working", "idle"]


def test_the_lead_gets_a_line(reporter: Reporter, paths: TeamPaths) -> None:
    """Whatever the settings allow as the length of mail, and however often it is sent."""
    reporter.notify("alice is paused: " + "x" * 20_000, key="1")
    (message,) = Mailbox(paths, "lead").peek()
    assert (message.sender, message.id) == ("alice", "1")
    assert message.content.startswith("alice is paused: x")


def test_reports_of_a_named_team_contain_commands_that_reach_it(
    tmp_path: Path, conversation: Conversation
) -> None:
    paths = TeamPaths(tmp_path / ".teams" / "web")
    enrol(paths, alice=Status.IDLE)
    post = MailRouter(paths, durable=False, max_bytes=10_000)
    supervisor = Mailbox(paths, TEAMD, durable=False)
    reporter = Reporter(
        name="alice", process=PROCESS, conversation=conversation, supervisor=supervisor, post=post
    )
    reporter.report(Status.PAUSED, "raise it, then `teamctl resume alice`")
    reporter.notify("alice is paused: raise it, then `teamctl resume alice`", key="2")
    told = "raise it, then `teamctl --team web resume alice`"
    assert [message.extra["reason"] for message in supervisor.peek()] == [told]
    assert [m.content for m in post.mailbox("lead").peek()] == [f"alice is paused: {told}"]
