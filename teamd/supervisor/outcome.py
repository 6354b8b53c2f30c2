"""The outcome of a shutdown, in a sentence and an exit code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from teamd.approvals.approval import Verdict
from teamd.errors import ExitCode

if TYPE_CHECKING:
    from teamd.approvals.approval import Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one teammate's shutdown.

    Attributes:
        verdict: what became of the request; `None` where nobody was asked.
        reason: the teammate's own words.
    """

    name: str
    text: str
    exit_code: ExitCode = ExitCode.DONE
    verdict: Verdict | None = None
    reason: str = ""

    def with_force(self) -> Outcome:
        """Return the same outcome for a process that did not end in time and was killed."""
        text = f"{self.name} did not end in time and was killed"
        if self.verdict is Verdict.APPROVED:
            text = f"{self.name} approved, but did not end in time and was killed"
        if self.verdict is Verdict.EXPIRED:
            text = self.text.removesuffix("ended") + "killed"
        return replace(self, text=text, exit_code=ExitCode.DEADLINE)


def down(name: str) -> Outcome:
    """Return the outcome for a teammate without a process that could have been asked."""
    return Outcome(name=name, text=f"{name} is shut down")


def answered(approval: Approval) -> Outcome:
    """Return the outcome that a teammate's own answer leads to."""
    name, reason = approval.to, approval.reason
    if approval.status is Verdict.APPROVED:
        text, code = f"{name} approved and is shut down", ExitCode.DONE
    else:
        text, code = f"{name} rejected the shutdown and goes on", ExitCode.REFUSED
    text += f": {reason}" if reason else ""
    return Outcome(name=name, text=text, exit_code=code, verdict=approval.status, reason=reason)


def overdue(name: str, seconds: float) -> Outcome:
    """Return the outcome for a teammate that did not answer in time."""
    return Outcome(
        name=name,
        text=f"{name} did not answer within {seconds:g} s and was ended",
        exit_code=ExitCode.DEADLINE,
        verdict=Verdict.EXPIRED,
    )


def forced(name: str) -> Outcome:
    """Return the outcome for a teammate that was not asked, as somebody wanted it."""
    return Outcome(name=name, text=f"{name} was killed", exit_code=ExitCode.DEADLINE)
