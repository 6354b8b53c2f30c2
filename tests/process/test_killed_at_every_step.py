"""A reader is killed before its first, second, … file operation, until it finishes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from teamd.agent.conversation.conversation import Conversation
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import EMPTY, Mailbox
from teamd.mail.spool import BatchLimit, Spool
from teamd.messages import Message
from teamd.transcript.file import Transcript
from teamd.transcript.records import Checkpoint, NoteAdded, Summarised, mail_in
from tests.children import Kill, kill_at_each_step
from tests.unit.life import Life


def put(paths: TeamPaths, *contents: str) -> None:
    messages = [Message(sender="alice", to="bob", content=content) for content in contents]
    Mailbox(paths, "bob").put(*messages)


def rest(paths: TeamPaths) -> list[str]:
    """Return all messages that the next readers get."""
    box = Mailbox(paths, "bob")
    found = []
    while (batch := box.take()) != EMPTY:
        found += [message.content for message in batch.messages]
        box.done(batch)
    return found


def read(paths: TeamPaths, steps: str, deadly: str, kill: Kill, *, wary: bool = False) -> None:
    def live(arm: Callable[[], None]) -> None:
        box, batch = Mailbox(paths, "bob"), EMPTY
        for step in steps.split():
            if step == deadly:
                arm()
            if step == "take":
                batch = box.take(BatchLimit(wary=wary))
            elif step == "done":
                box.done(batch)
            else:
                box.leftover()

    kill.during(live)


@pytest.mark.parametrize(
    ("steps", "deadly", "possible"),
    [
        ("take", "take", [["a", "b", "c"]]),
        ("take done", "done", [["a", "b", "c"], ["c"]]),
        ("take leftover", "leftover", [["a", "b", "c"], ["c"]]),
    ],
)
def test_each_message_is_delivered_once_when_a_reader_is_killed(
    tmp_path: Path, steps: str, deadly: str, possible: list[list[str]]
) -> None:
    """Messages keep their order, and none is removed before it was processed.

    `c` is sent after the kill.
    """
    for kill in kill_at_each_step(least=2):
        paths = TeamPaths(tmp_path / str(kill.number))
        paths.create()
        put(paths, "a", "b")
        read(paths, steps, deadly, kill)
        put(paths, "c")
        assert rest(paths) in possible


def test_mail_is_in_the_conversation_once_whenever_its_teammate_is_killed(tmp_path: Path) -> None:
    """The inbox marks mail as done only after the conversation has recorded it."""
    seen = set()
    for kill in kill_at_each_step(least=2):
        folder = tmp_path / str(kill.number)
        life = Life(folder)
        for text in ("a", "b"):
            life.send(text)
        kill.during(partial(_deliver, folder))
        seen.add(len(life.conversation().new_mail))
        _deliver(folder)
        assert [message.content for message in life.conversation().new_mail] == ["a", "b"]
        assert not life.mailbox.waiting()
    assert seen == {0, 2}


def _deliver(folder: Path, arm: Callable[[], None] = lambda: None) -> None:
    """Take mail as the teammate's process does."""

    async def deliver() -> None:
        async with Life(folder).made() as loop:
            arm()
            loop.delivery.deliver()

    asyncio.run(deliver())


@pytest.mark.slow
def test_an_invalid_line_is_rejected_once(tmp_path: Path) -> None:
    """Rejected lines are counted, and a person may look for each of them."""
    for kill in kill_at_each_step(least=10):
        paths = TeamPaths(tmp_path / str(kill.number))
        paths.create()
        paths.rejected("bob").write_bytes(b"older\n")
        paths.inbox("bob").write_bytes(b"nonsense\nnonsense\n")
        put(paths, "a")
        read(paths, "take", "take", kill)
        assert rest(paths) == ["a"]
        assert paths.rejected("bob").read_bytes() == b"older\nnonsense\nnonsense\n", kill


@pytest.mark.slow
def test_a_message_that_crashes_its_readers_is_rejected_once(tmp_path: Path) -> None:
    for kill in kill_at_each_step(least=5):
        paths = TeamPaths(tmp_path / str(kill.number))
        paths.create()
        put(paths, "a", "b")
        for _ in range(2):
            Mailbox(paths, "bob").take(BatchLimit(wary=True))
        taken = Spool(paths, "bob")
        position = taken.position()
        assert position is not None
        taken.move(replace(position, singly=files.size(taken.path), crashes=2, holder=1))
        read(paths, "take", "take", kill, wary=True)
        box = Mailbox(paths, "bob")
        assert [message.content for message in box.take(BatchLimit(wary=True)).messages] == ["b"]
        assert (box.rejected(), b'"a"' in paths.rejected("bob").read_bytes()) == (1, True), kill


def test_a_checkpoint_covers_only_recorded_mail(tmp_path: Path) -> None:
    """Otherwise mail whose writer was killed would count as read without being in any record."""
    seen = set()
    for kill in kill_at_each_step(least=2):
        path, mail = (
            tmp_path / f"{kill.number}.jsonl",
            Message(sender="lead", to="bob", content="a"),
        )
        long = NoteAdded(text="x" * 200_000)  # so that the next record triggers a checkpoint
        Transcript(path).append(long, Summarised(text="So far."))

        def deliver(arm: Callable[[], None], path: Path = path, mail: Message = mail) -> None:
            talk = Conversation(Transcript(path))
            arm()
            talk.deliver([mail])

        kill.during(deliver)
        records = list(Transcript(path).records())
        known = any(mail in mail_in(record) for record in records)
        again = Conversation(Transcript(path))
        assert (again.has_seen(mail), mail in again.new_mail, again.summary) == (
            known,
            known,
            "So far.",
        )
        seen.add((known, isinstance(records[-1], Checkpoint)))
    assert seen == {(False, False), (True, False), (True, True)}
