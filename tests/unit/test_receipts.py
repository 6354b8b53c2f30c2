"""`--wait`: a message is in the conversation, or its sender learns why it is not yet."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from teamctl.mail.receipts import DeliveryWatch, RecordsSinceMessage, TurnEndWatch
from teamd.errors import TeamError, UnknownTeammate
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, USER, Message
from teamd.team.roster import Roster, Team
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import PAUSED, Delivered, Opened, Replied, TurnEnded
from tests.unit.life import enrol

LONG_AGO = 1_600_000_000.0


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    enrol(made, bob=Status.IDLE, gone=Status.SHUTDOWN)
    return made


def mail(*messages: Message) -> Delivered:
    return Delivered(messages=messages)


def receipt(paths: TeamPaths, message: Message, told: str | None = None) -> DeliveryWatch:
    return DeliveryWatch(MailRouter(paths, durable=False, max_bytes=1000), message, told=told)


def test_a_conversation_is_read_starting_at_the_message(paths: TeamPaths) -> None:
    transcript = Transcript(paths.transcript("bob"))
    one, two = (Message(sender="lead", to="bob", content="x") for _ in range(2))
    arrival = RecordsSinceMessage(transcript.path, lambda mail: mail.id == two.id)
    assert list(arrival.records()) == []
    transcript.append(Opened(), mail(one), TurnEnded(text="1"))
    assert list(arrival.records()) == []
    transcript.append(mail(one, two), Replied())
    assert [record.kind for record in arrival.records()] == ["mail", "reply"]
    transcript.append(TurnEnded(text="2"))
    assert list(arrival.records()) == [TurnEnded(text="2")]


def test_a_pause_is_reported_once_the_roster_has_it(paths: TeamPaths) -> None:
    """Otherwise a following command would be refused, for a teammate that seems to work."""
    sent = Message(sender="lead", to="ann", content="x")
    enrol(paths, ann=Status.WORKING)
    last = TurnEndWatch(paths, "ann", sent.id)
    ended = TurnEnded(outcome=PAUSED, text="no such model", time=time.time())
    Transcript(paths.transcript("ann")).append(mail(sent), ended)
    assert [last.look(), last.look()] == [None, None]
    Roster(paths).update(
        lambda team: team.with_member(replace(team.get("ann"), status=Status.PAUSED))
    )
    assert last.look() == ended


@pytest.mark.parametrize(
    "ended",
    [TurnEnded(outcome="end_turn"), TurnEnded(outcome=PAUSED, time=LONG_AGO)],
    ids=["by itself", "by a process that was killed"],
)
def test_any_other_end_is_reported_at_once(paths: TeamPaths, ended: TurnEnded) -> None:
    sent = Message(sender="lead", to="ann", content="x")
    enrol(paths, ann=Status.WORKING)
    Transcript(paths.transcript("ann")).append(mail(sent), ended)
    assert TurnEndWatch(paths, "ann", sent.id).look() == ended


def test_the_same_id_with_another_text_is_a_different_message(paths: TeamPaths) -> None:
    """A foreign program may use an id twice; its second message does not confirm the first."""
    sent = Message(id="1", sender="ci", to="bob", content="red")
    for other in (
        Message(id="1", sender="ci", to="bob", content="green"),
        Message(id="1", sender="cd", to="bob", content="red"),
        Message(id="2", sender="ci", to="bob", content="red"),
    ):
        Transcript(paths.transcript("bob")).append(mail(other))
    assert receipt(paths, sent).look() is None
    Transcript(paths.transcript("bob")).append(mail(sent))
    assert receipt(paths, sent).look() == mail(sent)


def test_a_message_changed_on_its_way_is_recognized(paths: TeamPaths) -> None:
    """A byte on the command line that is not UTF-8 arrives as a question mark."""
    sent = Message(sender="", to="bob", content="caf\udce9")
    box = MailRouter(paths, durable=False, max_bytes=1000).mailbox("bob")
    box.put(sent)
    Transcript(paths.transcript("bob")).append(mail(*box.take().messages))
    assert receipt(paths, sent).look() is not None


def test_the_persons_mail_has_arrived_once_it_was_read(
    paths: TeamPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    """The person is not a process, so the sender is not warned that no teamd runs."""
    sent = Message(sender="bob", to=LEAD, content="x")
    assert receipt(paths, sent).look() is None
    Transcript(paths.transcript(USER)).append(mail(sent))
    assert receipt(paths, sent).look() is not None
    assert capsys.readouterr().err == ""


def test_the_reason_for_the_wait_is_shown_once_and_again_when_it_changes(
    paths: TeamPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    to_gone = receipt(paths, Message(sender="lead", to="gone", content="x"), told=None)
    for _ in range(2):
        assert to_gone.look() is None
    assert capsys.readouterr().err == (
        f"warning: no teamd runs for {paths.root}; the message is delivered once "
        "`teamd start` has started it\n"
    )
    claim = pidfile.claim(paths)
    for _ in range(2):
        assert to_gone.look() is None
    said = capsys.readouterr().err
    assert said == "warning: gone is shut down; the message waits until it is spawned again\n"
    warning = said.removeprefix("warning: ").rstrip()
    told = receipt(paths, Message(sender="lead", to="gone", content="x"), told=warning)
    assert told.look() is None
    assert receipt(paths, Message(sender="lead", to="bob", content="x")).look() is None
    assert capsys.readouterr().err == ""
    os.close(claim)


def test_a_rejected_message_is_not_waited_for(paths: TeamPaths) -> None:
    sent = Message(sender="lead", to="bob", content="too long for bob")
    waiting = receipt(paths, sent)
    assert waiting.look() is None
    paths.rejected("bob").write_bytes(b"\xff\n" + sent.encode())
    with pytest.raises(TeamError, match=r"bob rejected the message; `teamctl logs bob` says why"):
        waiting.look()


def test_a_receiver_that_has_left_the_team_is_not_waited_for(paths: TeamPaths) -> None:
    claim = pidfile.claim(paths)
    waiting = receipt(paths, Message(sender="lead", to="bob", content="x"))
    assert waiting.look() is None
    Roster(paths).update(lambda _: Team())
    with pytest.raises(UnknownTeammate):
        waiting.look()
    os.close(claim)


def test_a_timeout_ends_the_wait(paths: TeamPaths) -> None:
    sent = receipt(paths, Message(sender="bob", to=LEAD, content="x"))
    assert wait_for(paths.transcripts, sent.look, timeout_seconds=0.01) is None


@pytest.mark.parametrize("stands_as", ["ci@example", "ci@example@other"])
def test_a_sender_with_an_at_sign_in_its_name_gets_its_receipt(
    paths: TeamPaths, stands_as: str
) -> None:
    """Any sender may use `--from ci@example`; the router adds the name of a team behind it."""
    sent = Message(id="1", sender="ci@example", to="bob", content="red")
    waiting = receipt(paths, sent, told="no teamd runs")
    for sender in ("ci", "ci@exampl", "ci@example2"):
        other = Message(id="1", sender=sender, to="bob", content="red")
        Transcript(paths.transcript("bob")).append(mail(other))
        assert waiting.look() is None
    arrived = Message(id="1", sender=stands_as, to="bob", content="red")
    Transcript(paths.transcript("bob")).append(mail(arrived))
    assert waiting.look() is not None
