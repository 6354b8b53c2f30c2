"""Waiting for a turn fails early if the teammate takes no mail, as at a limit."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from teamctl.mail.receipts import explain_wait
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.budget.account import Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.process_id import Identity
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.life import enrol


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    """A team in which a call of alice was refused."""
    made = TeamPaths(tmp_path / ".team")
    enrol(made, alice=Status.PAUSED)
    ledger = Ledger(made.ledger)
    ledger.agree(Terms(teammate_tokens=10))
    wanted = Reservation(
        id="1", teammate="alice", process=Identity.own(), model="m",
        input_tokens=900, output_tokens=100, usd=None,
    )  # fmt: skip
    assert ledger.reserve(wanted) is not None
    return made


def alice(paths: TeamPaths, *, since: float | None = 0.0, **facts: object) -> Member:
    member = replace(Roster(paths).read().get("alice"), since=since, reason="it is too dear")
    return replace(member, **facts)  # type: ignore[arg-type]  # a test's own facts


def test_at_a_limit_mail_stays_in_the_inbox(paths: TeamPaths) -> None:
    told = "alice is paused: it is too dear; the message waits in its inbox until then"
    assert explain_wait(paths, alice(paths)) == told
    assert explain_wait(paths, alice(paths, since=time.time() + 3600)) == told, (
        "the clock was set back"
    )


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PAUSED])
def test_a_teammate_that_is_not_paused_takes_its_mail(paths: TeamPaths, status: Status) -> None:
    assert explain_wait(paths, alice(paths, status=status)) is None


def test_a_pause_without_a_limit_ends_with_the_mail(paths: TeamPaths) -> None:
    Ledger(paths.ledger).let_go("alice")
    assert explain_wait(paths, alice(paths)) is None


def test_mail_stays_in_a_turn_that_waits_for_a_permission(paths: TeamPaths) -> None:
    Ledger(paths.ledger).let_go("alice")
    approvals = Approvals(paths, MailRouter(paths, durable=False, max_bytes=10_000))
    facts = {"asker": "alice", "to": "lead", "content": "May I?", "asked": time.time()}
    asked = approvals.ask(Approval(type=Kind.PERMISSION, **facts))  # type: ignore[arg-type]
    assert explain_wait(paths, alice(paths)) is not None
    assert explain_wait(paths, replace(alice(paths), name="bob")) is None
    approvals.expire(asked.id)
    assert explain_wait(paths, alice(paths)) is None


def test_a_new_process_takes_its_mail_before_it_reaches_the_limit(paths: TeamPaths) -> None:
    """As after `teamd restart`, when the roster still has the old status."""
    assert explain_wait(paths, alice(paths, since=None)) is None
    assert explain_wait(paths, alice(paths, since=time.time())) is None
