"""A conversation read from its last checkpoint equals one read from its start."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teamctl.render.layout import Layout
from teamctl.render.transcript_view import TranscriptView
from teamd.agent.conversation.conversation import FORMAT, Conversation
from teamd.agent.conversation.state import ConversationState
from teamd.messages import PLAN_ANSWER_TYPE, SHUTDOWN_TYPE, Message
from teamd.model_server import Usage
from teamd.models import CONTEXT_FULL
from teamd.transcript import records
from teamd.transcript.file import Transcript
from teamd.transcript.records import Record
from tests.children import said

Lines = list[bytes]
FIELDS = [one.name for one in fields(ConversationState)]
PAST = "x" * 200_000  # longer than the part that is read without a checkpoint


def facts(state: ConversationState) -> dict[str, Any]:
    """Return all fields of a state."""
    return {name: getattr(state, name) for name in FIELDS}


def read_all(path: Path) -> ConversationState:
    """Return the state after all records, applied one after the other."""
    state = ConversationState()
    for record in Transcript(path).records():
        state.apply(record)
    return state


def read(path: Path) -> Conversation:
    return Conversation(Transcript(path, durable=False))


def checkpoints(path: Path) -> list[dict[str, Any]]:
    found = map(json.loads, path.read_bytes().splitlines())
    return [record for record in found if record["record"] == "checkpoint"]


def message(content: str, kind: str = "message", request: str = "r1") -> Message:
    extra = {"request_id": request, "odd": [1.5, None]}
    return Message(
        sender="lead",
        to="alice",
        content=content,
        id=content,
        type=kind,
        timestamp=1e9,
        extra=extra,
    )


calls = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["", "one", "line\u2028\n\0é", "long " * 60])
kinds = st.sampled_from(["message", SHUTDOWN_TYPE, PLAN_ANSWER_TYPE])
mail = st.builds(message, st.sampled_from(["one", "two", "é" * 99]), kinds, st.sampled_from("rs"))
usages = st.builds(Usage, input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9))
told = st.fixed_dictionaries({"type": st.just("text"), "text": texts})
sends = {"to": "bob", "content": "Thanks!"}
called = st.builds(
    lambda call, name: {"type": "tool_use", "id": call, "name": name, "input": sends},
    calls,
    st.sampled_from(["send_message", "bash"]),
)
stops = st.sampled_from(["end_turn", "tool_use", "pause_turn", "refusal", CONTEXT_FULL])
replies: dict[str, Any] = {
    "content": st.lists(told | called, max_size=3),
    "stop_reason": stops,
    "usage": usages,
    "frame": st.sampled_from(["", "f", "g"]),
}
outcomes = st.sampled_from(["end_turn", records.PAUSED, records.LIMIT, records.INTERRUPTED])
happened: st.SearchStrategy[Record] = st.one_of(
    st.builds(records.Opened, nonce=texts, name=texts, tools=st.none() | st.frozensets(texts)),
    st.builds(
        records.Delivered,
        messages=st.lists(mail, max_size=2).map(tuple),
        new_task=st.booleans(),
        idle_talk=st.booleans(),
    ),
    st.builds(records.NoteAdded, text=texts, task=st.booleans(), closes=st.just(("r",))),
    st.builds(records.NewsAdded, about=texts, text=texts),
    st.builds(records.TaskBegun),
    st.builds(records.Replied, **replies),
    st.builds(records.Replied, **replies),
    st.builds(records.CallStarted, tool_use_id=calls),
    st.builds(records.CallAnswered, tool_use_id=calls, content=texts, is_error=st.booleans()),
    st.builds(records.CallAnswered, tool_use_id=calls, content=texts),
    st.builds(records.ResultsCleared, through=st.integers(0, 9)),
    st.builds(records.Summarised, text=texts, restated=texts, usage=st.none() | usages),
    st.builds(records.SummaryFailed, **replies),
    st.builds(
        records.TurnEnded, outcome=outcomes, text=texts, about=st.none() | texts, notice=texts
    ),
    st.builds(records.MailHeld, senders=st.just(("bob",)), notice=texts),
    st.builds(records.NoticeSent, id=st.sampled_from(["-2-notice", "-3-notice"])),
)
stories = st.lists(happened, max_size=12)
# After these three records hardly any field has its initial value; random records rarely reach this
# state.
SPENT = Usage(input_tokens=5, output_tokens=3)
SAID = {"type": "text", "text": "So be it."}
SENDS = {"type": "tool_use", "id": "a", "name": "send_message", "input": sends}
ENDED: list[Record] = [
    records.Opened(
        format=7, nonce="n", secret="s", system="You.", name="alice", role="tester", team="t",
        model="m", tools=frozenset({"bash"}), plan=True, spawned_by="lead@other",
    ),
    records.Delivered(messages=(message("one", SHUTDOWN_TYPE, "r"),), idle_talk=True),
    records.Delivered(messages=(message("two", PLAN_ANSWER_TYPE, "s"),), idle_talk=True),
    records.Replied(content=[SENDS], usage=SPENT, frame="f"),
    records.CallAnswered(tool_use_id="a", content="sent"),
    records.TurnEnded(outcome="end_turn", notice="It ended."),
]  # fmt: skip
PAUSED: list[Record] = [
    *ENDED[:-2],
    records.CallStarted(tool_use_id="a"),
    records.TurnEnded(outcome=records.PAUSED, text="no key"),
]
BUSY: list[Record] = [
    *ENDED,
    records.Summarised(text="So far.", restated="You are 'alice'."),
    records.NewsAdded(about="board", text="News."),
    records.Replied(content=[SAID], usage=SPENT, frame="f"),
    records.NoteAdded(text="Go on.", closes=("r",)),
    records.Replied(content=[SAID, SENDS], usage=SPENT, frame="f", stop_reason="tool_use"),
    records.MailHeld(senders=("bob",)),
    records.Delivered(messages=(message("later"),), idle_talk=True),
    records.NoteAdded(text="And on."),
]


@pytest.mark.slow
@settings(deadline=None)
@given(stories, stories)
@example(ENDED, BUSY)
@example(PAUSED, ENDED[-2:])
@example(BUSY, [records.ResultsCleared(through=9), *ENDED])
def test_a_state_read_from_a_checkpoint_is_the_same_and_continues_the_same_way(
    before: list[Record], after: list[Record]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alice.jsonl"
        first = read(path)
        for record in before:
            first.record(record)
        first.checkpoint()
        second = read(path)
        assert facts(second) == facts(first) == facts(read_all(path))
        for record in after:
            second.record(record)
        assert facts(second) == facts(read(path)) == facts(read_all(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The transcript of a conversation with a checkpoint in its middle."""
    talk = read(tmp_path / "alice.jsonl")
    talk.open(records.Opened(system="You are 'alice'."))
    talk.deliver([message("work")])
    talk.record(records.TaskBegun())
    talk.checkpoint()
    talk.add_note("more")
    return tmp_path / "alice.jsonl"


def in_checkpoint(**changed: Any) -> Callable[[Lines], Lines]:
    """Change keys of the record itself."""

    def change(lines: Lines) -> Lines:
        record = json.loads(lines[3])
        return [*lines[:3], json.dumps({**record, **changed}).encode() + b"\n", *lines[4:]]

    return change


def in_state(name: str, value: object) -> Callable[[Lines], Lines]:
    """Change or add a field of the state."""

    def change(lines: Lines) -> Lines:
        return in_checkpoint(state={**json.loads(lines[3])["state"], name: value})(lines)

    return change


def without(name: str) -> Callable[[Lines], Lines]:
    """Remove a field of the state."""

    def change(lines: Lines) -> Lines:
        state = json.loads(lines[3])["state"]
        del state[name]
        return in_checkpoint(state=state)(lines)

    return change


def garbled(lines: Lines) -> Lines:
    """Make the lines above the checkpoint unreadable."""
    return [b"?\n" * 3, *lines[3:]]


def test_lines_above_a_checkpoint_are_not_read(path: Path) -> None:
    expected = facts(read(path))
    path.write_bytes(b"".join(garbled(path.read_bytes().splitlines(keepends=True))))
    assert facts(read(path)) == expected


DAMAGES: dict[str, Callable[[Lines], Lines]] = {
    "a later format": in_checkpoint(format=FORMAT + 1),
    "no state": in_checkpoint(state=None),
    "torn": lambda lines: [*lines[:3], lines[3][:-20] + b"\n", *lines[4:]],
    "half written": lambda lines: [*lines[:3], lines[3][: len(lines[3]) // 2]],
    "zeros": lambda lines: [*lines[:3], lines[3][:99] + b"\0" * 99 + lines[3][198:], *lines[4:]],
    "another type": in_state("turns", "many"),
    "another type in a list": in_state("new_mail", [5]),
    "another type in a set": in_state("told", [["about"]]),
    "a field more": in_state("later", 1),
    "a field less": without("told"),
    "no list": in_state("begun", {}),
    "no object": in_state("talk", []),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_with_a_damaged_checkpoint_all_lines_are_read(
    damage: Callable[[Lines], Lines], path: Path
) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(damage(lines)))
    assert len(read(path)._checkpoint) == 0
    assert facts(read(path)) == facts(read_all(path))
    path.write_bytes(b"".join(damage(lines)) + b"\n" + b"".join(lines[3:]))
    assert len(read(path)._checkpoint) > 0, "a sound one stands behind it"
    path.write_bytes(b"".join([*lines[:4], *damage(lines)[3:]]))
    assert len(read(path)._checkpoint) > 0, "a sound one stands above it"
    assert facts(read(path)) == facts(read_all(path))


@pytest.mark.slow
def test_a_checkpoint_cut_off_anywhere_is_ignored(path: Path) -> None:
    """Its writer may be killed, or the power fail, before all of it is written."""
    lines = path.read_bytes().splitlines(keepends=True)
    above, last = b"".join(lines[:3]), lines[3].rstrip()
    for end in range(len(last)):
        path.write_bytes(above + last[:end])
        talk = read(path)
        assert len(talk._checkpoint) == 0
        assert [message.content for message in talk.new_mail] == ["work"]
    path.write_bytes(above + last)
    assert len(read(path)._checkpoint) == len(last)


def test_a_summary_is_followed_by_a_checkpoint(path: Path) -> None:
    read(path).summarise("Alice", text="All went well.", reply=None)
    *_, before, last = (json.loads(line)["record"] for line in path.read_bytes().splitlines())
    assert (before, last) == ("summary", "checkpoint")


def test_a_long_transcript_of_an_earlier_version_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "alice.jsonl"
    Transcript(path).append(
        records.NoteAdded(text=PAST), records.Summarised(), *[records.NoteAdded(text="more")] * 9
    )
    read(path).add_note("work")
    assert len(checkpoints(path)) == 1
    assert facts(read(path)) == facts(read_all(path))
    read(path).add_note("and more")
    assert len(checkpoints(path)) == 1, "there is one now"


def test_the_part_that_is_read_is_proportional_to_the_model_s_view(tmp_path: Path) -> None:
    """Despite results cleared in between; a growing conversation is not copied repeatedly."""
    path = tmp_path / "alice.jsonl"
    talk = read(path)
    for turn in range(40):
        call = {"type": "tool_use", "id": f"c{turn}", "name": "bash", "input": {}}
        talk.record(records.Replied(content=[call]))
        talk.record(records.CallAnswered(tool_use_id=f"c{turn}", content=PAST))
        if turn < 3:
            assert checkpoints(path) == []
        talk.clear(kept=1, least_bytes=1)
    size = path.stat().st_size
    assert size - read(path)._checkpoint.stop < 7 * len(PAST)
    assert sum(len(json.dumps(one)) for one in checkpoints(path)) < size // 3


def test_a_message_is_recognized_however_long_ago_it_came(path: Path) -> None:
    """Its sender may not know that it arrived, and send it again."""
    talk = read(path)
    talk.open(records.Opened(system="You are 'alice'."))
    talk.checkpoint()
    assert read(path).has_seen(message("work"))
    assert not read(path).has_seen(message("work, please"))
    (*_, one) = checkpoints(path)
    assert [len(digest) for digest in one["state"]["_seen"]] == [16]


FILLS = """
import sys
from pathlib import Path
from teamd.agent.conversation.conversation import Conversation
from teamd.transcript.file import Transcript
talk = Conversation(Transcript(Path(sys.argv[1])))
talk.summarise("Alice", text="", reply=None)
print(talk.summary, talk._length)
talk.record(talk.opened)
"""


def test_a_disk_without_room_for_a_checkpoint_is_not_a_failure(path: Path) -> None:
    """The events are on record; without a checkpoint a reader has to read more."""
    talk = read(path)
    talk.deliver([message("y" * 3000)])
    before = path.read_bytes()
    assert said(FILLS, path, file_bytes=len(before) + 1000).split() == ["7"]
    assert path.read_bytes().startswith(before)
    assert facts(read(path)) == facts(read_all(path))


@pytest.mark.parametrize(
    "odd",
    [
        {"record": "mail", "messages": [{"content": "a\0", "from": "eve"}]},
        {"record": "mail", "messages": [{"content": "a", "timestamp": float("nan")}]},
        {"record": "note", "text": "\ud800", "closes": [None, "r"]},
    ],
)
def test_invalid_values_in_a_transcript_do_not_stop_the_conversation(
    path: Path, odd: dict[str, Any]
) -> None:
    """An editor or another program may have written them."""
    with path.open("a") as file:
        file.write(json.dumps(odd) + "\n")
    talk = read(path)
    talk.checkpoint()
    talk.add_note("go on")
    assert read(path).open_items[-1].note == "go on"
    assert read(path)._length == read_all(path)._length


def test_a_checkpoint_is_not_shown_to_a_person(path: Path) -> None:
    for record in Transcript(path).records():
        if isinstance(record, records.Checkpoint):
            view = TranscriptView(Layout(), full=True)
            assert list(view.show("alice", record)) == []
