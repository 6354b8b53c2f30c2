"""Replies of teamd as commands, `top`, the page and the doctor show them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from teamctl.actions import TeamActions
from teamctl.doctor import Level
from teamctl.doctor.model import check_model
from teamctl.top.widgets import explain
from teamd import control
from teamd.command_line.run import TeamOptions
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode, TeamError
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from teamd.settings import Settings
from teamd.team.states import Status
from tests.unit.life import call, enrol
from tests.waiting import wait_until


@contextmanager
def teamd(
    paths: TeamPaths, text: str, *, code: int = 0, **data: Any
) -> Iterator[list[ControlRequest]]:
    """Act as a teamd that answers one request; yield the requests."""
    asked: list[ControlRequest] = []

    def found() -> bool:
        asked[:] = map(ControlRequest.decode, Mailbox(paths, TEAMD, durable=False).peek())
        return bool(asked)

    def answer() -> None:
        wait_until(found, what="teamd is asked")
        control.reply(paths, asked[0].id, reply)

    reply = ControlReply(text=text, exit_code=ExitCode(code), data=data)
    claim = pidfile.claim(paths)
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        yield asked
        answering.result()
    os.close(claim)


@pytest.fixture
def actions(paths: TeamPaths) -> TeamActions:
    return TeamActions(TeamOptions(team_dir=str(paths.root)))


def test_a_shutdown_reports_how_it_ended(paths: TeamPaths, actions: TeamActions) -> None:
    with teamd(paths, "done", members=[{"text": "ada is shut down"}]) as asked:
        assert actions.shutdown("ada").sentence() == "ada is shut down"
    assert dict(asked[0].arguments) == {"name": "ada", "seconds": 10.0, "force": False}


def test_a_shutdown_that_was_forced_at_the_deadline_is_reported(
    paths: TeamPaths, actions: TeamActions
) -> None:
    late = [{"text": "ada was ended at the deadline"}]
    with teamd(paths, "some", code=ExitCode.DEADLINE, members=late):
        assert actions.shutdown("ada", force=True).sentence() == "ada was ended at the deadline"


def test_a_rejected_shutdown_is_an_error_with_all_answers(
    paths: TeamPaths, actions: TeamActions
) -> None:
    members = [{"text": "ada is shut down"}, {"text": "bob rejected it: not yet"}]
    with (
        teamd(paths, "some", code=ExitCode.REFUSED, members=members),
        pytest.raises(TeamError, match=r"^ada is shut down; bob rejected it: not yet$"),
    ):
        actions.shutdown("bob").sentence()


def test_a_refused_shutdown_request_is_an_error(paths: TeamPaths, actions: TeamActions) -> None:
    """For an unknown name, the reply has no members."""
    with (
        teamd(paths, "no teammate named 'bbo'", code=ExitCode.REFUSED),
        pytest.raises(TeamError, match=r"^no teammate named 'bbo'$"),
    ):
        actions.shutdown("bbo")


@pytest.mark.parametrize("warning", [None, "it stays at its limit of today"])
def test_the_warning_of_an_action_is_part_of_its_sentence(
    paths: TeamPaths, actions: TeamActions, warning: str | None
) -> None:
    with teamd(paths, "ada goes on", warning=warning) as asked:
        told = actions.resume("ada", usd=1.5).sentence()
    assert told == ("ada goes on; it stays at its limit of today" if warning else "ada goes on")
    assert dict(asked[0].arguments) == {"name": "ada", "usd": 1.5}


def test_a_resume_that_has_little_effect_warns_on_standard_error(paths: TeamPaths) -> None:
    with teamd(paths, "ada goes on", warning="it stays at its limit of today"):
        done = call(paths, "resume", "ada")
    assert (done.status, done.out) == (0, "ada goes on\n")
    assert "it stays at its limit of today" in done.err


def test_without_receivers_nothing_is_sent(paths: TeamPaths, actions: TeamActions) -> None:
    enrol(paths, ada=Status.SHUTDOWN)
    with pytest.raises(TeamError, match=r"^there is nobody to send to; spawn a teammate first$"):
        actions.broadcast("Hello?")
    enrol(paths, bob=Status.IDLE)
    assert actions.broadcast("Hello?").sentence() == "sent to bob"


def test_files_of_a_removed_member_stay_unless_purged(paths: TeamPaths) -> None:
    enrol(paths, ada=Status.SHUTDOWN)
    with teamd(paths, "ada is no longer in the team", name="ada") as asked:
        done = call(paths, "rm", "ADA", "--json")
    assert json.loads(done.out) == {"name": "ada", "removed": []}
    assert (asked[0].command, dict(asked[0].arguments)) == ("remove", {"name": "ada"})


def test_an_unknown_state_of_the_key_is_noted(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with teamd(paths, "the settings are damaged", code=ExitCode.REFUSED):
        told, key = check_model(Settings(), paths)
    assert told.level is Level.NOTE
    what = "teamd was asked about key and model, and failed: the settings are damaged"
    assert (told.what, told.remedy) == (what, "`teamctl logs teamd` shows what it does")
    assert key.level is Level.FAIL


def test_an_unexpected_error_asks_for_a_report() -> None:
    assert explain(TeamError("no such thing")) == "no such thing"
    strange = "internal error (KeyError: 'x'); please report it"
    assert explain(KeyError("x")) == strange
