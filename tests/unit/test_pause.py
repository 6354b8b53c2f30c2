"""The lead hears of each trouble once, however it is worded, and of a new one at once."""

from __future__ import annotations

from teamd.agent.loop import pause_reason
from teamd.models import UnusableError


def outage(words: str) -> UnusableError:
    return UnusableError(words, again_in_seconds=300)


def test_an_outage_is_one_problem_whatever_error_it_causes() -> None:
    """During a weekend's outage a try every five minutes fails with varying errors."""
    assert len({pause_reason(outage(words)) for words in ("529", "502", "reset")}) == 1


def test_a_growing_conversation_that_is_too_long_is_one_problem() -> None:
    """Each mail causes another try, and its sentence has other figures."""
    tries = (UnusableError(f"prompt is too long: {n} > 200000") for n in (200001, 200017))
    assert len(set(map(pause_reason, tries))) == 1


def test_a_refused_account_is_one_problem_with_any_number_in_its_sentence() -> None:
    """A proxy gives each page an id of its own."""
    tries = (
        UnusableError(f"403: Ray ID {ray}", again_in_seconds=300, about="proxy") for ray in "abc"
    )
    assert len(set(map(pause_reason, tries))) == 1


def test_a_different_problem_is_reported() -> None:
    key, model = UnusableError("no key"), UnusableError("no such model")
    spent = UnusableError("no credit", again_in_seconds=300, about="account")
    reasons = [pause_reason(one) for one in (key, model, outage("529"), spent)]
    assert len(set(reasons)) == 4
