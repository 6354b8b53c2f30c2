"""The open work of a teammate that a summary restates, so that none is forgotten."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.work import list_open_work
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.board.rules import Change
from teamd.board.task import TaskStatus
from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.life import enrol


class Hall:
    """A team of three."""

    def __init__(self, folder: Path) -> None:
        self.paths = TeamPaths(folder / ".team")
        enrol(self.paths, alice=Status.WORKING, bob=Status.IDLE, carol=Status.SHUTDOWN)
        self.post = MailRouter(self.paths, durable=False, max_bytes=100_000)
        self.approvals = Approvals(self.paths, self.post)

    def board(self, who: str) -> Board:
        """Return the board as a member sees it."""
        return Board(self.paths, self.post, who, durable=False)

    def ask(self, asker: str, to: str, kind: Kind, **facts: Any) -> Approval:
        """Have one member ask another."""
        asked = Approval(asker=asker, to=to, type=kind, content="?", asked=time.time(), **facts)
        return self.approvals.ask(asked)

    def open_work(self, name: str) -> dict[str, list[str]]:
        """Return a member's restated open work, by title."""
        roster = Roster(self.paths)
        found = list_open_work(name, self.board(name), self.approvals, roster)
        return {title: list(lines) for title, lines in found}


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path)


def test_the_teammates_and_its_own_open_tasks_are_restated(hall: Hall) -> None:
    for owner in ("alice", "alice", "Alice", "bob"):
        hall.board("lead").add(f"of {owner}", owner=owner)
    hall.board("alice").update("1", Change(status=TaskStatus.COMPLETED))
    hall.board("alice").claim("2")
    found = hall.open_work("alice")
    assert found["Your teammates:"] == ["bob (tester): idle", "carol (tester): shutdown"]
    assert found["Your open tasks on the board:"] == [
        "2 [in_progress] of alice",
        "3 [pending] of Alice",
    ]


def test_open_requests_name_asker_and_receiver(hall: Hall) -> None:
    shutdown = hall.ask("lead", "alice", Kind.SHUTDOWN, id="r-1")
    plan = hall.ask("alice", "lead", Kind.PLAN, id="r-2")
    hall.ask("bob", "lead", Kind.PLAN, id="r-3")
    hall.ask("lead", "carol", Kind.SHUTDOWN, id="r-4", listeners=("alice",))
    assert hall.open_work("alice")["Open requests:"] == [
        "shutdown_request r-1 of lead waits for you",
        "your plan_approval_request r-2 waits for lead",
        "your shutdown_request r-4 waits for carol",
    ]
    hall.approvals.answer(shutdown.id, by="alice", approve=False)
    hall.approvals.answer(plan.id, by="lead", approve=True)
    assert hall.open_work("alice")["Open requests:"] == [
        "your shutdown_request r-4 waits for carol"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [("asked", '"today"'), ("asked", "null"), ("content", "5"), ("from", "[]"), ("id", "null")],
)
def test_a_damaged_request_is_skipped(hall: Hall, key: str, value: str) -> None:
    spoilt, sound = (hall.ask("bob", "lead", Kind.PLAN, id=one) for one in ("r-1", "r-2"))
    file = hall.paths.request(spoilt.id)
    lines = [
        f' "{key}": {value},' if line.startswith(f' "{key}":') else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(lines))
    assert [one.id for one in hall.approvals.all()] == [sound.id]


def test_a_request_that_cannot_be_sent_does_not_block_the_others(hall: Hall) -> None:
    """The supervisor was killed before it sent the requests, and one inbox cannot be written."""
    for name, to in (("r-1", "bob"), ("r-2", "carol")):
        file = hall.paths.request(name)
        asked = Approval(id=name, asker="lead", to=to, type=Kind.SHUTDOWN, content="?", asked=1.0)
        file.write_bytes(asked.encode())
    hall.paths.inbox("bob").mkdir()
    with pytest.raises(StoreError, match=r"bob\.jsonl"):
        list(hall.approvals.repeat())
    assert [mail.id for mail in hall.post.mailbox("carol").peek()] == ["r-2"]
    hall.paths.inbox("bob").rmdir()
    assert [sent.id for sent in hall.approvals.repeat()] == ["r-1"]
    assert [mail.id for mail in hall.post.mailbox("bob").peek()] == ["r-1"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"command": "ls -l"}, "bash ls -l"),
        ({"command": "ls", "timeout": "5"}, "bash\ncommand: ls\ntimeout: 5"),
        ("ls", "Please allow."),
    ],
)
def test_a_request_shows_the_call_with_all_its_arguments(given: object, shown: str) -> None:
    asked = Approval(
        asker="bob", to="user", type=Kind.PERMISSION, content="Please allow.", asked=1.0,
        extra={"tool": "bash", "input": given},
    )  # fmt: skip
    assert asked.what == shown
