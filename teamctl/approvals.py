"""Answers to what a teammate asks you to approve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from teamctl import output
from teamctl.input import text_or_stdin
from teamd.approvals.approval import Kind
from teamd.approvals.store import Approvals
from teamd.errors import ExitCode
from teamd.mail.routing import Post
from teamd.messages import LEAD

if TYPE_CHECKING:
    from teamd.cli import Choice

WORDS = {Kind.PLAN: "plan", Kind.SHUTDOWN: "shutdown"}


def approvals(choice: Choice) -> Approvals:
    """Return the team's approvals."""
    team = choice.existing()
    mail = choice.settings(team).mail
    post = Post(team, durable=mail.durability == "disk", max_bytes=mail.max_message_bytes)
    return Approvals(team, post)


def answer(choice: Choice, beginning: str, *, approve: bool, reason: str | None) -> int:
    """Answer the approval whose id begins so, and say what was answered.

    Raises:
        TeamError: there is none, it is not yours to answer, or it is open no more.
    """
    asked = approvals(choice)
    approval = asked.match(beginning)
    said = text_or_stdin(reason or "").strip()
    answered = asked.answer(approval.id, by=LEAD, approve=approve, reason=said)
    what = WORDS.get(answered.type, answered.type)  # type: ignore[call-overload] # a type is a text
    click.echo(f"{answered.status} the {what} of {output.plain(answered.asker)} ({answered.id})")
    return ExitCode.DONE
