"""Records of a transcript are read as written, by this version and by the previous one."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.agent.conversation.conversation import Conversation
from teamd.messages import Message
from teamd.model_server import Usage
from teamd.transcript.file import Transcript, decode, parse
from teamd.transcript.records import (
    KINDS,
    CallAnswered,
    CallStarted,
    Delivered,
    NewsAdded,
    NoteAdded,
    NoticeSent,
    Opened,
    Record,
    Replied,
    ResultsCleared,
    Summarised,
    SummaryFailed,
    TaskBegun,
    TurnEnded,
    Unknown,
)

BEFORE = Path(__file__).parent / "written_before"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
mail_texts = texts.map(lambda text: text.replace("\0", ""))
tokens = st.integers(0, 10**6)
moments = st.floats(0, 10**10)
usages = st.builds(Usage, input_tokens=tokens, cache_read_tokens=tokens, output_tokens=tokens)
extras = st.dictionaries(st.sampled_from(["summary", "request_id", "odd"]), texts | st.integers())
messages = st.builds(
    Message,
    sender=mail_texts,
    to=st.just("bob"),
    content=mail_texts,
    timestamp=moments,
    extra=extras,
)
blocks = st.fixed_dictionaries({"type": st.just("text"), "text": texts})
replies: dict[str, Any] = {
    "content": st.lists(blocks),
    "stop_reason": texts,
    "model": texts,
    "usage": usages,
    "frame": texts,
    "time": moments,
}
plans = st.none() | st.booleans()
names = st.none() | st.frozensets(texts)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        Opened, system=texts, model=st.none() | texts, tools=names, plan=st.none() | st.booleans()
    ),
    st.builds(Opened, name=texts, role=texts, team=texts, spawned_by=st.none() | texts),
    st.builds(Delivered, messages=st.lists(messages).map(tuple), taken=st.none() | moments),
    st.builds(NoteAdded, text=texts, task=st.booleans(), closes=st.lists(texts).map(tuple)),
    st.builds(NewsAdded, about=texts, text=texts),
    st.builds(TaskBegun, time=moments),
    st.builds(Replied, **replies),
    st.builds(SummaryFailed, **replies),
    st.builds(CallStarted, tool_use_id=texts),
    st.builds(CallAnswered, tool_use_id=texts, content=texts, is_error=st.booleans()),
    st.builds(ResultsCleared, through=tokens),
    st.builds(Summarised, text=texts, restated=texts, skipped=tokens, usage=st.none() | usages),
    st.builds(TurnEnded, outcome=texts, text=texts, about=st.none() | texts, notice=texts),
    st.builds(NoticeSent, id=texts),
)


@given(records)
def test_a_record_is_decoded_as_it_was_encoded(record: Record) -> None:
    assert decode(record.encode()) == record


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_record_with_only_its_kind_is_decoded(kind: type[Record]) -> None:
    """A reader requires only the fields that it uses."""
    assert decode(json.dumps({"record": kind.kind}).encode()) == kind()


@pytest.mark.parametrize(
    "line",
    [
        b'{"record": "of a later version"}',
        b"{}",
        b'{"record": ["reply"]}',
        b'{"record": "reply", "usage": 5}',
    ],
)
def test_an_unknown_record_is_only_counted(line: bytes) -> None:
    assert decode(line) == Unknown()


def test_keys_of_a_later_version_are_ignored() -> None:
    usage = {"input_tokens": 1, "later": 2}
    line = json.dumps({"record": "reply", "usage": usage, "later": 3}).encode()
    assert decode(line) == Replied(usage=Usage(input_tokens=1))


def test_a_record_of_an_earlier_version_is_encoded_with_the_same_keys() -> None:
    """So the previous version can read this one's records; it ignores further keys."""
    for line in (BEFORE / "alice.jsonl").read_bytes().split(b"\n"):
        record = decode(line)
        if record is None or isinstance(record, Unknown):
            continue
        was, now = parse(line), parse(record.encode())
        assert was is not None
        assert now is not None
        if isinstance(was.get("usage"), dict):  # a figure that the earlier version did not have
            assert now["usage"].pop("cache_hour_tokens") == 0
        assert {key: now[key] for key in was} == was
        assert all(now[key] in (None, False) for key in now.keys() - was.keys())


@pytest.mark.parametrize("lines", [27, None])
def test_a_transcript_of_the_previous_version_leads_to_the_same_state(
    tmp_path: Path, lines: int | None
) -> None:
    """The facts are from that version: tool calls, notices and a pause, and after summaries."""
    path = tmp_path / "alice.jsonl"
    copy(BEFORE / "alice.jsonl", path)
    expected = json.loads((BEFORE / "alice.json").read_text())
    if lines is not None:
        expected = json.loads((BEFORE / "alice.before_summary.json").read_text())
        path.write_bytes(b"".join(path.read_bytes().splitlines(True)[: expected.pop("lines")]))
    talk = Conversation(Transcript(path, durable=False))
    opened = talk.opened
    found = {
        "messages": talk.context.messages(),
        "system": opened.system,
        "tools": None if opened.tools is None else sorted(opened.tools),
        "model": opened.model,
        "untold": {key: notice.text for key, notice in talk.unsent.items()},
        "told": sorted(talk.told),
        "requests": talk.shutdown_requests,
        "closed": sorted(talk.closed_requests),
        "finished": sorted(talk.finished_plans),
    }
    rest = {key: getattr(talk, key) for key in expected.keys() - found.keys()}
    assert {**found, **rest} == expected
