"""New mail is shown once, with notes on requests; completion of names."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamctl import arguments
from teamctl.mail.inbox_reader import NewMailFinder, describe_end, describe_request
from teamctl.render.output import MailFormat, Note, show_messages
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.mail.spool import BatchLimit
from teamd.messages import LEAD, USER, Message
from teamd.overview.overview import OverviewReader
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
    shown = describe_request(paths, own).line.replace(f" --team-dir {paths.root}", "")
    assert f"`teamctl approve {asked.id}` approves it" in shown
    assert describe_request(paths, borrowed) == describe_request(paths, other) == Note()
    approvals.answer(asked.id, by=USER, approve=False, reason="no")
    assert "you" in describe_end(paths, own)
    assert describe_request(paths, own) == Note(describe_end(paths, own), replaces_text=True)
    assert describe_end(paths, borrowed) == describe_end(paths, other) == ""


def test_an_answered_request_takes_one_line_and_no_longer_counts_as_waiting_mail(
    paths: TeamPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    approvals = Approvals(paths, MailRouter(paths, durable=False, max_bytes=10_000))
    enrol(paths, alice=Status.IDLE)
    asked = [
        approvals.ask(
            Approval(
                type=Kind.PLAN,
                asker="alice",
                to=LEAD,
                content=f"Plan {number}.\n",
                asked=time.time(),
            )
        )
        for number in (1, 2)
    ]
    Mailbox(paths, LEAD, durable=False).put(Message(sender="alice", to=LEAD, content="Hello."))
    assert OverviewReader(paths).read().unread == 3
    approvals.answer(asked[0].id, by=USER, approve=True)
    assert OverviewReader(paths).read().unread == 2
    mail = Mailbox(paths, LEAD).peek()
    show_messages(mail, MailFormat.TEXT, partial(describe_request, paths))
    shown = capsys.readouterr().out
    assert "was approved already by you" in shown.splitlines()[0]
    assert "Plan 1." not in shown
    assert "Plan 2." in shown
    assert "Hello." in shown


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
    rosters.keep(places.roster("h2"), FarRoster(team="project", members=members))
    assert completed(paths, arguments.everywhere, "a") == ["ada", "alba@h2"]
    assert completed(paths, arguments.receivers, "AL") == ["alba@project@h2"]


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


class Onlooker:
    """Shows bob's new mail while bob takes it."""

    def __init__(self, folder: Path) -> None:
        self._paths = TeamPaths(folder / ".team")
        self._paths.create()
        self.box = Mailbox(self._paths, "bob", durable=False)
        self._unseen = NewMailFinder()

    def put(self, content: str, **fields: str) -> None:
        """Append a line as a foreign program does."""
        with self._paths.inbox("bob").open("a", encoding="utf-8") as inbox:
            inbox.write(json.dumps({"from": "cron", "content": content, **fields}) + "\n")

    def look(self) -> list[str]:
        """Return the new messages."""
        return [message.content for message in self._unseen.among(self.box.peek())]


@pytest.fixture
def onlooker(tmp_path: Path) -> Onlooker:
    return Onlooker(tmp_path)


def test_a_line_without_an_id_is_shown_once(onlooker: Onlooker) -> None:
    """Each look generates another id for it."""
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]
    onlooker.put("one")
    assert onlooker.look() == ["one"]
    batch = onlooker.box.take()
    assert onlooker.look() == [], "its id is fixed by now, and is none that was seen"
    onlooker.put("two")
    assert onlooker.look() == ["two"]
    onlooker.box.done(batch)
    assert onlooker.look() == []


def test_two_lines_with_the_same_text_are_two_messages(onlooker: Onlooker) -> None:
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]
    onlooker.box.done(onlooker.box.take(BatchLimit(messages=1)))
    assert onlooker.look() == []
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]


def test_the_same_id_with_another_text_is_a_different_message(onlooker: Onlooker) -> None:
    for words in ("one", "two"):
        onlooker.put(words, id="1")
    onlooker.put("one", id="1", **{"from": "ci"})
    assert onlooker.look() == ["one", "two", "one"]


def test_a_send_that_is_repeated_later_is_the_same_message(onlooker: Onlooker) -> None:
    onlooker.put("one", id="1")
    assert onlooker.look() == ["one"]
    onlooker.put("one", id="1")
    assert onlooker.look() == []


def test_a_repeated_send_is_shown_once(onlooker: Onlooker) -> None:
    for _ in range(2):
        onlooker.put("one", id="1")
        onlooker.put("one", id="1")
        assert onlooker.look() in (["one"], [])
        onlooker.box.done(onlooker.box.take())
    onlooker.put("one", id="1")
    assert onlooker.look() == []


STEPS = st.sampled_from(["put", "put with an id", "take", "take one", "look"])


@given(st.lists(STEPS, max_size=30))
def test_in_any_order_of_writes_and_takes_each_message_is_shown_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """A message that is written and taken between two looks is not visible."""
    onlooker = Onlooker(tmp_path_factory.mktemp("looks"))
    there: list[str] = []
    expected: list[str] = []
    shown: list[str] = []
    for number, step in enumerate([*steps, "look"]):
        if step.startswith("put"):
            onlooker.put(str(number), **({"id": str(number)} if "id" in step else {}))
            there.append(str(number))
        elif step.startswith("take"):
            batch = onlooker.box.take(BatchLimit(messages=1 if "one" in step else None))
            onlooker.box.done(batch)
            del there[: len(batch.messages)]
        else:
            shown += onlooker.look()
            expected += [content for content in there if content not in expected]
    assert shown == expected
