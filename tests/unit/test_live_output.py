"""What a model says is heard as it comes, and a summary by nobody."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.agent.model_stack import LiveOutput
from teamd.models import Ask, Reply, TransientError
from teamd.transcript.live import BEGINS, ENDS, LiveText, compose, split
from tests.strict.replies import say
from tests.unit.life import MODEL, replied

_ASK = {"model": MODEL, "system": "", "tools": [], "messages": [], "max_tokens": 10}


class Speaker:
    """Says its words to whoever hears it, and notes what can be read then."""

    def __init__(self, path: Path, words: str = "Some words.", thinks: str = "") -> None:
        self._path = path
        self.words = words
        self.thinks = thinks
        self.fails = False
        self.read: list[str | None] = []

    async def reply(self, ask: Ask) -> Reply:
        """Say them."""
        if ask.thought is not None and self.thinks:
            ask.thought(self.thinks)
        if ask.heard is not None and self.words:
            ask.heard(self.words)
        self.read.append(self._path.read_text() if self._path.exists() else None)
        if self.fails:
            raise TransientError("the connection broke")
        return replied(say("Some words."))


def heard(path: Path, *, aside: bool) -> str | None:
    speaker = Speaker(path)
    asyncio.run(LiveOutput(speaker, path).reply(Ask(**_ASK, aside=aside)))  # type: ignore[arg-type]
    return speaker.read[0]


def test_words_stand_in_the_file_until_the_reply_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lead.partial"
    said = heard(path, aside=False)
    assert said is not None
    assert said.partition("\n")[2] == "Some words."
    assert not path.exists()


def test_thinking_is_told_from_what_is_said(tmp_path: Path) -> None:
    path = tmp_path / "lead.partial"
    speaker = Speaker(path, thinks=f"Hm{BEGINS}m.")
    live = LiveOutput(speaker, path)
    for _ in range(2):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    for read in speaker.read:
        assert read is not None
        assert list(split(read.partition("\n")[2])) == [("Hmm.", True), ("Some words.", False)]


@given(st.lists(st.tuples(st.sampled_from(["text", "thinking"]), st.text("a\n\x0e\x0f"))))
def test_what_came_is_the_beginning_of_the_whole(blocks: list[tuple[str, str]]) -> None:
    """Or a chat would show a reply twice."""
    whole = compose([{"type": kind, kind: text} for kind, text in blocks])
    live, come = LiveText(), ""
    for kind, text in blocks:
        if text:
            come += live.add(text, thinks=kind == "thinking")
            assert whole.startswith(come)
    said = "".join(text for kind, text in blocks if kind == "text")
    shown = "".join(part for part, thinks in split(whole) if not thinks)
    assert shown == said.replace(BEGINS, "").replace(ENDS, "")


def test_a_summary_is_heard_by_nobody_nor_what_a_killed_process_left(tmp_path: Path) -> None:
    path = tmp_path / "lead.partial"
    path.write_text("1\nhalf a reply")
    assert heard(path, aside=True) is None


def test_a_reply_without_a_word_takes_no_file_unless_half_a_reply_may_have_been_read(
    tmp_path: Path,
) -> None:
    """Who reads along and has seen the half must see that another attempt has begun."""
    path = tmp_path / "lead.partial"
    path.write_text("1\nhalf a reply of a killed process")
    speaker = Speaker(path, words="")
    live = LiveOutput(speaker, path)
    for _ in range(2):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    speaker.words, speaker.fails = "Half a re", True
    with pytest.raises(TransientError):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    speaker.words, speaker.fails = "", False
    for _ in range(2):
        asyncio.run(live.reply(Ask(**_ASK)))  # type: ignore[arg-type]
    names = [said and said.partition("\n") for said in speaker.read]
    said = [one and one[2] for one in names]
    assert said == ["", None, "Half a re", "", None]
    assert len({one and one[0] for one in names}) == 4
    assert not path.exists()


def test_each_attempt_has_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the file of the last one could not be removed."""
    path = tmp_path / "lead.partial"
    speaker = Speaker(path)
    live = LiveOutput(speaker, path)
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
