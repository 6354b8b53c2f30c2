"""What arrives of other hosts: mail once, requests to teamd, answers to who waits for them."""

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
    """Those of h1, which lets nobody ask for anything."""
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths, bob=Status.IDLE, carol=Status.IDLE)
    HostPlaces(paths).create()
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h2"}))
    post = MailRouter(paths, durable=False, max_bytes=9999, hosts=hosts)
    with closing(Journal(log, "postman")) as journal:
        journal.note("begins")
        commands = Commands(paths, "default", "h1", lambda *_: False, lambda *_: 1.0, journal)
        yield Arrivals(
            FarDelivery(post, "default", journal),
            commands,
            lambda host: Outbox(paths, host, durable=False, max_bytes=500),
            journal,
        )


def line(made: str, *, to: str = "bob", sender: str = "dora", **more: Any) -> OutLine:
    message = {"id": made, "type": "message", "from": sender, "content": made, "timestamp": 1.5}
    fields = {"kind": "mail", "to": to, "team": "default", "message": message, **more}
    return OutLine.make(1, "", json.dumps(fields)[1:].encode())


def got(arrivals: Arrivals, name: str = "bob") -> list[str]:
    return [mail.id for mail in arrivals.delivery.post.inbox(name).peek()]


def act(arrivals: Arrivals, fields: dict[str, Any], fact: Callable[[], object]) -> None:
    """Have a line that is no mail come of h2, and wait for what it leads to."""

    async def scenario() -> None:
        arrivals.act("h2", fields)
        (task,) = arrivals._tasks
        await task
        await until(fact, what="the fact")

    asyncio.run(scenario())


def test_of_lines_that_may_be_here_only_those_come_that_are_not(arrivals: Arrivals) -> None:
    """The postman was killed between an inbox and its cursor."""
    arrivals.deliver("h2", [line("m-1"), line("m-2", to="carol")], suspected=False)
    again = [line("m-1", to="BOB"), line("m-2", to="carol"), line("m-3")]
    arrivals.deliver("h2", again, suspected=True)
    assert got(arrivals) == ["m-1", "m-3"]
    assert got(arrivals, "carol") == ["m-2"]


def test_where_nothing_is_suspected_nobody_looks_for_an_id(arrivals: Arrivals) -> None:
    """Its reader knows an id that comes twice; to look at each message takes a pass over files."""
    for _ in range(2):
        arrivals.deliver("h2", [line("m-1")], suspected=False)
    assert got(arrivals) == ["m-1", "m-1"]


def test_the_same_id_of_another_sender_or_host_is_another_message(arrivals: Arrivals) -> None:
    """Anybody may choose an id; nobody keeps another's mail away with it."""
    local = Message(id="m-1", sender="carol", to="bob", content="here")
    arrivals.delivery.post.send(local)
    arrivals.deliver("h3", [line("m-1")], suspected=True)
    arrivals.deliver("h2", [line("m-1", sender="emil")], suspected=True)
    arrivals.deliver("h2", [line("m-1")], suspected=True)
    senders = [mail.sender for mail in arrivals.delivery.post.inbox("bob").peek()]
    assert senders == ["carol", "dora@default@h3", "emil@default@h2", "dora@default@h2"]


def test_a_suspected_line_without_a_receiver_is_answered_and_holds_up_no_other(
    arrivals: Arrivals,
) -> None:
    lines = [line("m-1", to="nobody"), line("m-2", message="none"), line("m-3", to="../x")]
    arrivals.deliver("h2", [*lines, line("m-4")], suspected=True)
    assert got(arrivals) == ["m-4"]
    told = HostPlaces(arrivals.delivery.post.paths).outbox("h2").read_text()
    assert "no teammate named 'nobody'" in told


def test_a_request_that_is_refused_is_answered_to_the_host_that_asked(arrivals: Arrivals) -> None:
    outbox = HostPlaces(arrivals.commands.paths).outbox("h2")
    act(arrivals, {"kind": REQUEST, **ASKED.encode()}, outbox.exists)
    _, raw = outbox.read_text().splitlines()
    answer = json.loads(raw)
    assert (answer["kind"], answer["id"], answer["exit_code"]) == (ANSWER, ASKED.id, 1)
    assert "h1 does not let h2 shutdown teammates" in answer["text"]


def test_what_is_no_request_is_logged_and_not_answered(arrivals: Arrivals, log: Path) -> None:
    act(arrivals, {"kind": REQUEST, "id": "../x"}, lambda: "no request" in log.read_text())
    assert not HostPlaces(arrivals.commands.paths).outbox("h2").exists()


def test_an_answer_for_which_there_is_no_room_costs_nothing_else(
    arrivals: Arrivals, log: Path
) -> None:
    """Its asker's time runs out, and says so; the postman goes on."""
    outbox = arrivals.outbox("h2")
    outbox.append(MAIL, text="x" * 600)
    before = outbox.path.read_bytes()
    act(arrivals, {"kind": REQUEST, **ASKED.encode()}, lambda: "not answered" in log.read_text())
    assert outbox.path.read_bytes() == before
    assert "too much mail waits for h2" in log.read_text()


def test_an_answer_reaches_who_waits_and_one_of_another_host_does_not(
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
def test_a_line_of_a_later_program_is_logged_and_passed_over(
    arrivals: Arrivals, log: Path, kind: Any
) -> None:
    outboxes = HostPlaces(arrivals.commands.paths).outboxes
    arrivals.act("h2", {"kind": kind, "id": ASKED.id})
    assert "unknown line" in log.read_text()
    assert not list(outboxes.iterdir()), "no host is answered"
