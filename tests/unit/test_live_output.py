"""A model's text is published as it arrives; a summary is not."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.agent.model_calls import ModelCalls
from teamd.budget.ledger import Ledger
from teamd.models import Ask, Provider, Reply, TransientError, UnusableError
from teamd.transcript.live import BEGINS, ENDS, LiveFile, LiveText, compose, split
from tests.strict.replies import say
from tests.unit.life import MODEL, calls_to, replied

_ASK = {"model": MODEL, "system": "", "tools": [], "messages": [], "max_tokens": 10}


class Speaker(Provider):
    """Streams its words, and records the content of the file meanwhile."""

    def __init__(self, path: Path, words: str = "Some words.", thinks: str = "") -> None:
        self._path = path
        self.words = words
        self.thinks = thinks
        self.fails = False
        self.read: list[str | None] = []

    async def reply(self, ask: Ask) -> Reply:
        """Stream the words."""
        if ask.thought is not None and self.thinks:
            ask.thought(self.thinks)
        if ask.heard is not None and self.words:
            ask.heard(self.words)
        self.read.append(self._path.read_text() if self._path.exists() else None)
        if self.fails:
            raise TransientError("the connection broke")
        return replied(say("Some words."))


def calls(speaker: Speaker, path: Path) -> ModelCalls:
    return calls_to(speaker, Ledger(path.with_name("ledger")), live=LiveFile(path))


def heard(path: Path, *, aside: bool) -> str | None:
    speaker = Speaker(path)
    asyncio.run(calls(speaker, path).reply(Ask(**_ASK, aside=aside)))  # type: ignore[arg-type]
    return speaker.read[0]


def test_the_file_holds_the_text_until_the_reply_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "lead.partial"
    said = heard(path, aside=False)
    assert said is not None
    assert said.partition("\n")[2] == "Some words."
    assert not path.exists()


def test_thinking_is_distinguished_from_text(tmp_path: Path) -> None:
    path = tmp_path / "lead.partial"
    speaker = Speaker(path, thinks=f"Hm{BEGINS}m.")
    live = calls(speaker, path)
    for _ in range(2):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    for read in speaker.read:
        assert read is not None
        assert list(split(read.partition("\n")[2])) == [("Hmm.", True), ("Some words.", False)]


@given(st.lists(st.tuples(st.sampled_from(["text", "thinking"]), st.text("a\n\x0e\x0f"))))
def test_the_streamed_text_is_a_prefix_of_the_whole_text(blocks: list[tuple[str, str]]) -> None:
    """Otherwise a chat would show a reply twice."""
    whole = compose([{"type": kind, kind: text} for kind, text in blocks])
    live, come = LiveText(), ""
    for kind, text in blocks:
        if text:
            come += live.add(text, thinks=kind == "thinking")
            assert whole.startswith(come)
    said = "".join(text for kind, text in blocks if kind == "text")
    shown = "".join(part for part, thinks in split(whole) if not thinks)
    assert shown == said.replace(BEGINS, "").replace(ENDS, "")


def test_a_summary_is_not_published_and_the_file_of_a_killed_process_is_removed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lead.partial"
    path.write_text("1\nhalf a reply")
    assert heard(path, aside=True) is None


def test_a_reply_without_text_needs_no_file_unless_a_partial_one_may_have_been_read(
    tmp_path: Path,
) -> None:
    """A reader that has seen the half must notice that another attempt has started."""
    path = tmp_path / "lead.partial"
    path.write_text("1\nhalf a reply of a killed process")
    speaker = Speaker(path, words="")
    live = calls(speaker, path)
    for _ in range(2):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    speaker.words, speaker.fails = "Half a re", True
    with pytest.raises(UnusableError):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    speaker.words, speaker.fails = "", False
    for _ in range(2):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    names = [said and said.partition("\n") for said in speaker.read]
    said = [one and one[2] for one in names]
    assert said == ["", None, "Half a re", "", None]
    assert len({one and one[0] for one in names}) == 4
    assert not path.exists()


def test_each_attempt_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the file of the previous attempt could not be removed."""
    path = tmp_path / "lead.partial"
    speaker = Speaker(path)
    live = calls(speaker, path)
    with monkeypatch.context() as context:
        context.setattr("pathlib.Path.unlink", _fail)
        for _ in range(2):
            asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
        assert path.exists()
    speaker.words = ""
    asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    one, other = (said.partition("\n") for said in speaker.read if said)
    assert one[0] != other[0]
    assert one[2] == other[2] == "Some words."
    assert not path.exists()


def _fail(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "the disk has failed")
