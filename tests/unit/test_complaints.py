"""The lead hears of each trouble once, however it is worded, and of a new one at once."""

from __future__ import annotations

from teamd.agent.complaints import Complaints
from teamd.models import UnusableError


def told(*errors: UnusableError | None) -> list[str]:
    """What the lead hears of these; `None` is a reply in between."""
    heard: list[str] = []
    complaints = Complaints("ann", heard.append)
    for error in errors:
        if error is None:
            complaints.settled()
        else:
            complaints.make(error)
    return heard


def outage(words: str) -> UnusableError:
    return UnusableError(words, again_in_seconds=300)


def test_an_outage_is_one_trouble_however_it_fails() -> None:
    """A weekend's outage is tried again every five minutes, and ends in another way each time."""
    assert told(outage("529"), outage("502"), outage("reset")) == ["ann is paused: 529"]


def test_a_conversation_that_grows_is_one_trouble() -> None:
    """Each mail is another try, and its sentence has other figures."""
    heard = told(*(UnusableError(f"prompt is too long: {n} > 200000") for n in (200001, 200017)))
    assert heard == ["ann is paused: prompt is too long: 200001 > 200000"]


def test_another_trouble_is_told() -> None:
    key, model = UnusableError("no key"), UnusableError("no such model")
    assert len(told(key, model, outage("529"), key)) == 4


def test_what_comes_after_a_reply_is_news() -> None:
    key = UnusableError("no key")
    assert len(told(key, None, key, key)) == 2
