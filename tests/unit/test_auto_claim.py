"""An idle teammate claims tasks if the settings allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from teamd.agent.work import claim_next
from teamd.board.board import Board
from teamd.board.rules import Change
from teamd.board.task import Task, TaskStatus
from teamd.journal import Journal
from tests.strict.replies import say
from tests.unit.life import Life


def on_board(life: Life, who: str) -> Board:
    return Board(life.paths, life.post, who, durable=False)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path, *[say("Done.")] * 5)
    made.paths.create()
    journal = Journal(made.paths.log("alice"), "alice")
    made.fetch = partial(claim_next, on_board(made, "alice"), lambda: "coder", journal)
    yield made
    journal.close()


def told(life: Life) -> int:
    """Return how many deliveries of the conversation mention a task."""
    return str(life.conversation().context.messages()).count("it is yours now: ")


def test_an_idle_teammate_claims_the_next_task_and_is_mailed_once(life: Life) -> None:
    on_board(life, "lead").add("Count the files")

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=1)
            on_board(life, "lead").add("Count them again")
            life.ring()  # she has a task already, so this one is for others
            life.send("And the folders?")
            await life.rests(calls=2)
            on_board(life, "alice").update("1", Change(status=TaskStatus.COMPLETED))
            life.ring()
            await life.rests(calls=3)

    asyncio.run(scenario())
    assert told(life) == 2
    assert "so it is yours now: Count them again" in str(life.model.last())
    assert life.states[-1] == "idle"


def test_mail_comes_before_the_board(life: Life) -> None:
    on_board(life, "lead").add("Count the files")
    life.send("First this.")
    life.live(calls=2)
    assert "First this." in str(life.model.asked[0].messages)
    assert "Count the files" not in str(life.model.asked[0].messages)


def test_a_claim_of_a_killed_process_is_mailed_to_the_next_process(life: Life) -> None:
    """Without that mail a teammate would own the task forever without knowing it."""
    on_board(life, "lead").add("Count the files")
    assert on_board(life, "alice").take_next("coder") is not None
    (mail,) = life.mailbox.peek()
    life.mailbox.done(life.mailbox.take())
    file = life.paths.task("1")
    task = Task.decode(file.read_bytes(), named="1")
    file.write_bytes(replace(task, untold=(mail,)).encode())

    life.live(calls=1)
    assert told(life) == 1
    file.write_bytes(replace(task, untold=(mail,)).encode())  # or after the mail: not again
    life.live(calls=1)
    assert told(life) == 1


def test_an_unreadable_board_does_not_end_the_process(life: Life) -> None:
    for file in life.paths.tasks.iterdir():
        file.unlink()
    life.paths.tasks.rmdir()
    life.paths.tasks.write_text("no folder")
    life.live(calls=0)
    assert "no look at the board" in life.paths.log("alice").read_text()
