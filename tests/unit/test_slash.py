"""Commands of the chat: their meaning, their completion, and hints for misspelt ones."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from teamctl.chat import console
from teamctl.commands.help import read_topic
from teamctl.main import cli
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD
from teamd.team.states import Status
from tests.unit.life import enrol


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths, alice=Status.IDLE, bob=Status.IDLE)
    post = MailRouter(paths, durable=False, max_bytes=10_000)
    asked = Approval(id="0a1b", type=Kind.PLAN, asker="alice", to=LEAD, content="x", asked=1.0)
    Approvals(paths, post).ask(asked)
    return paths


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("/team", ["team"]),
        ("/requests", ["requests"]),
        ("/usage", ["usage"]),
        ("/approve 0a1b", ["approve", "0a1b"]),
        ("/approve 0a1b looks good", ["approve", "0a1b", "--feedback=looks good"]),
        ("/reject 0a1b --no, not so", ["reject", "0a1b", "--reason=--no, not so"]),
        ("/reject", ["reject"]),
        ("/transcript", ["transcript", "lead"]),
        ("/transcript alice", ["transcript", "alice"]),
    ],
)
def test_a_command_is_translated_into_a_call(line: str, argv: list[str]) -> None:
    word, _, rest = line.partition(" ")
    make = console.COMMANDS[word].argv
    assert make is not None
    assert make(rest) == argv
    command = cli.get_command(click.Context(cli), argv[0])
    assert command is not None
    if argv != ["reject"]:
        command.make_context(argv[0], argv[1:])  # the command has these options


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/t", ["/team", "/tasks", "/transcript"]),
        ("/TRA", ["/transcript"]),
        ("/transcript ", ["alice", "bob"]),
        ("/transcript A", ["alice"]),
        ("/approve 0", ["0a1b"]),
        ("/team x", []),
        ("/nonsense x", []),
        ("hello /t", []),
        ("", []),
        ("/approve 0a1b looks g", []),
    ],
)
def test_a_line_is_completed(paths: TeamPaths, typed: str, found: list[str]) -> None:
    assert console.complete(paths, typed) == found


@pytest.mark.parametrize(
    ("word", "meant"),
    [("/requst", "/requests"), ("/tea", "/team"), ("/aprove", "/approve"), ("/zzz", None)],
)
def test_a_misspelt_command_gets_a_suggestion(word: str, meant: str | None) -> None:
    assert console.find_near(word) == meant


def test_the_topic_explains_every_command() -> None:
    topic = read_topic("chat")
    assert [one.usage for one in console.COMMANDS.values() if f"`{one.usage}`" not in topic] == []
