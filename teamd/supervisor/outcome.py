"""How the shutdown of a teammate ended, in a sentence and an exit code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from teamd.errors import ExitCode
from teamd.store.question import Verdict

if TYPE_CHECKING:
    from teamd.store.question import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One teammate's.

    Attributes:
        verdict: what became of the request; `None` where nobody was asked.
        reason: the teammate's own words.
    """

    name: str
    text: str
    exit_code: ExitCode = ExitCode.DONE
    verdict: Verdict | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The outcome as an answer's data hold it."""
        return {
            "name": self.name,
            "text": self.text,
            "exit_code": int(self.exit_code),
            "verdict": None if self.verdict is None else str(self.verdict),
            "reason": self.reason,
        }


def down(name: str) -> Outcome:
    """There was no process that could have been asked."""
    return Outcome(name=name, text=f"{name} is shut down")


def approved(question: Question) -> Outcome:
    """It agreed."""
    return _answered(question, "approved and is shut down", ExitCode.DONE)


def rejected(question: Question) -> Outcome:
    """It did not, and goes on."""
    return _answered(question, "rejected the shutdown and goes on", ExitCode.REFUSED)


def overdue(name: str, seconds: float) -> Outcome:
    """It did not answer in time."""
    return Outcome(
        name=name,
        text=f"{name} did not answer within {seconds:g} s and was ended",
        exit_code=ExitCode.DEADLINE,
        verdict=Verdict.EXPIRED,
    )


def forced(name: str) -> Outcome:
    """It was not asked, as somebody wanted it."""
    return Outcome(name=name, text=f"{name} was killed", exit_code=ExitCode.DEADLINE)


def killed(outcome: Outcome) -> Outcome:
    """The same, but that it took force."""
    text = f"{outcome.name} did not end in time and was killed"
    if outcome.verdict is Verdict.APPROVED:
        text = f"{outcome.name} approved, but did not end in time and was killed"
    if outcome.verdict is Verdict.EXPIRED:
        text = outcome.text.removesuffix("ended") + "killed"
    return replace(outcome, text=text, exit_code=ExitCode.DEADLINE)


def _answered(question: Question, words: str, code: ExitCode) -> Outcome:
    name, reason = question.to, question.reason
    text = f"{name} {words}" + (f": {reason}" if reason else "")
    return Outcome(name=name, text=text, exit_code=code, verdict=question.status, reason=reason)
