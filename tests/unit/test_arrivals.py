"""Lines from other hosts: mail is delivered once, teamd gets requests, askers get answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.lines import ANSWER, MAIL, REQUEST, OutLine
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.requests import FarAnswer, FarRequest
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import Message
from teamd.postman.arrivals import Arrivals
from teamd.postman.commands import Commands
from teamd.postman.delivery import FarDelivery
from teamd.team.states import Status
from tests.unit.life import enrol
from tests.waiting import until

ASKED = FarRequest(
    command="shutdown",
    arguments={"name": "bob", "seconds": 1.0, "force": False},
    deadline=9.0,
    boot="b",
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def arrivals(tmp_path: Path, log: Path) -> Iterator[Arrivals]:
    """The arrivals of h1, which allows no host any command."""
    paths = TeamPaths(tmp_path / "project" / ".team")
    enrol(paths, bob=Status.IDLE, carol=Status.IDLE)
    HostPlaces(paths).create()
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h2"}))
    post = MailRouter(paths, durable=False, max_bytes=9999, hosts=hosts)
    with closing(Journal(log, "postman")) as journal:
        journal.note("begins")
        commands = Commands(paths, "project", "h1", lambda *_: False, lambda *_: 1.0, journal)
        yield Arrivals(
            FarDelivery(post, "project", journal),
            commands,
            lambda host: Outbox(paths, host, durable=False, max_bytes=500),
            journal,
        )


def line(made: str, *, to: str = "bob", sender: str = "dora", **more: Any) -> OutLine:
    message = {"id": made, "type": "message", "from": sender, "content": made, "timestamp": 1.5}
    fields = {"kind": "mail", "to": to, "team": "project", "message": message, **more}
    return OutLine.make(1, "", json.dumps(fields)[1:].encode())


def got(arrivals: Arrivals, name: str = "bob") -> list[str]:
    return [mail.id for mail in arrivals.delivery.post.inbox(name).peek()]


def act(arrivals: Arrivals, fields: dict[str, Any], fact: Callable[[], object]) -> None:
    """Let h2 send a line that is not mail, and wait until `fact` holds."""

    async def scenario() -> None:
        arrivals.act("h2", fields)
        (task,) = arrivals._tasks
        await task
        await until(fact, what="the fact")

    asyncio.run(scenario())


def test_suspected_duplicates_are_delivered_only_if_missing(arrivals: Arrivals) -> None:
    """The postman was killed after it wrote an inbox and before it wrote its cursor."""
    arrivals.deliver("h2", [line("m-1"), line("m-2", to="carol")], suspected=False)
    again = [line("m-1", to="BOB"), line("m-2", to="carol"), line("m-3")]
    arrivals.deliver("h2", again, suspected=True)
    assert got(arrivals) == ["m-1", "m-3"]
    assert got(arrivals, "carol") == ["m-2"]


def test_unsuspected_lines_are_not_checked_for_duplicates(arrivals: Arrivals) -> None:
    """The reader recognizes a repeated id; checking each message would cost a pass over files."""
    for _ in range(2):
        arrivals.deliver("h2", [line("m-1")], suspected=False)
    assert got(arrivals) == ["m-1", "m-1"]


def test_the_same_id_from_another_sender_or_host_is_a_different_message(arrivals: Arrivals) -> None:
    """Ids are chosen by senders, so a reused id must not block the mail of another sender."""
    local = Message(id="m-1", sender="carol", to="bob", content="here")
    arrivals.delivery.post.send(local)
    arrivals.deliver("h3", [line("m-1")], suspected=True)
    arrivals.deliver("h2", [line("m-1", sender="emil")], suspected=True)
    arrivals.deliver("h2", [line("m-1")], suspected=True)
    senders = [mail.sender for mail in arrivals.delivery.post.inbox("bob").peek()]
    assert senders == ["carol", "dora@project@h3", "emil@project@h2", "dora@project@h2"]


def test_a_suspected_line_without_a_receiver_is_answered_and_does_not_block_others(
    arrivals: Arrivals,
) -> None:
    lines = [line("m-1", to="nobody"), line("m-2", message="none"), line("m-3", to="../x")]
    arrivals.deliver("h2", [*lines, line("m-4")], suspected=True)
    assert got(arrivals) == ["m-4"]
    told = HostPlaces(arrivals.delivery.post.paths).outbox("h2").read_text()
    assert "no teammate named 'nobody'" in told


def test_a_refused_request_is_answered_to_the_asking_host(arrivals: Arrivals) -> None:
    outbox = HostPlaces(arrivals.commands.paths).outbox("h2")
    act(arrivals, {"kind": REQUEST, **ASKED.encode()}, outbox.exists)
    _, raw = outbox.read_text().splitlines()
    answer = json.loads(raw)
    assert (answer["kind"], answer["id"], answer["exit_code"]) == (ANSWER, ASKED.id, 1)
    assert "h1 does not let h2 shutdown teammates" in answer["text"]


def test_an_invalid_request_is_logged_and_not_answered(arrivals: Arrivals, log: Path) -> None:
    act(arrivals, {"kind": REQUEST, "id": "../x"}, lambda: "no request" in log.read_text())
    assert not HostPlaces(arrivals.commands.paths).outbox("h2").exists()


def test_an_answer_that_does_not_fit_the_outbox_is_dropped_and_logged(
    arrivals: Arrivals, log: Path
) -> None:
    """The asker reports a timeout; the postman continues."""
    outbox = arrivals.outbox("h2")
    outbox.append(MAIL, text="x" * 600)
    before = outbox.path.read_bytes()
    act(arrivals, {"kind": REQUEST, **ASKED.encode()}, lambda: "not answered" in log.read_text())
    assert outbox.path.read_bytes() == before
    assert "too much mail waits for h2" in log.read_text()


def test_an_answer_reaches_its_asker_only_from_the_asked_host(
    arrivals: Arrivals, log: Path
) -> None:
    file = HostPlaces(arrivals.commands.paths).answer(ASKED.id)
    file.write_text("h2\n")
    said = FarAnswer(id=ASKED.id, text="bob is shut down").encode()
    arrivals.act("h3", {"kind": ANSWER, **said})
    assert file.read_text() == "h2\n"
    assert "nobody waits for it" in log.read_text()
    arrivals.act("h2", {"kind": ANSWER, **said})
    assert json.loads(file.read_text())["text"] == "bob is shut down"


@pytest.mark.parametrize("kind", ["dance", 7, None, ["mail"]])
def test_a_line_of_unknown_kind_is_logged_and_ignored(
    arrivals: Arrivals, log: Path, kind: Any
) -> None:
    outboxes = HostPlaces(arrivals.commands.paths).outboxes
    arrivals.act("h2", {"kind": kind, "id": ASKED.id})
    assert "unknown line" in log.read_text()
    assert not list(outboxes.iterdir()), "no host is answered"
