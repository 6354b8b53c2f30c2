"""Repeated looks at mail show each message once, also while its reader takes mail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamctl.mail.inbox_reader import NewMailFinder
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.spool import BatchLimit


class Onlooker:
    """Shows bob's new mail while bob takes it."""

    def __init__(self, folder: Path) -> None:
        self._paths = TeamPaths(folder / ".team")
        self._paths.create()
        self.box = Mailbox(self._paths, "bob", durable=False)
        self._unseen = NewMailFinder()

    def put(self, content: str, **fields: str) -> None:
        """Append a line as a foreign program does."""
        with self._paths.inbox("bob").open("a", encoding="utf-8") as inbox:
            inbox.write(json.dumps({"from": "cron", "content": content, **fields}) + "\n")

    def look(self) -> list[str]:
        """Return the new messages."""
        return [message.content for message in self._unseen.among(self.box.peek())]


@pytest.fixture
def onlooker(tmp_path: Path) -> Onlooker:
    return Onlooker(tmp_path)


def test_a_line_without_an_id_is_shown_once(onlooker: Onlooker) -> None:
    """Each look generates another id for it."""
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]
    onlooker.put("one")
    assert onlooker.look() == ["one"]
    batch = onlooker.box.take()
    assert onlooker.look() == [], "its id is fixed by now, and is none that was seen"
    onlooker.put("two")
    assert onlooker.look() == ["two"]
    onlooker.box.done(batch)
    assert onlooker.look() == []


def test_two_lines_with_the_same_text_are_two_messages(onlooker: Onlooker) -> None:
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]
    onlooker.box.done(onlooker.box.take(BatchLimit(messages=1)))
    assert onlooker.look() == []
    onlooker.put("noon")
    assert onlooker.look() == ["noon"]


def test_the_same_id_with_another_text_is_another_message(onlooker: Onlooker) -> None:
    for words in ("one", "two"):
        onlooker.put(words, id="1")
    onlooker.put("one", id="1", **{"from": "ci"})
    assert onlooker.look() == ["one", "two", "one"]


def test_a_send_that_is_repeated_later_is_the_same_message(onlooker: Onlooker) -> None:
    onlooker.put("one", id="1")
    assert onlooker.look() == ["one"]
    onlooker.put("one", id="1")
    assert onlooker.look() == []


def test_a_repeated_send_is_shown_once(onlooker: Onlooker) -> None:
    for _ in range(2):
        onlooker.put("one", id="1")
        onlooker.put("one", id="1")
        assert onlooker.look() in (["one"], [])
        onlooker.box.done(onlooker.box.take())
    onlooker.put("one", id="1")
    assert onlooker.look() == []


STEPS = st.sampled_from(["put", "put with an id", "take", "take one", "look"])


@given(st.lists(STEPS, max_size=30))
def test_in_any_order_of_writes_and_takes_each_message_is_shown_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """A message that is written and taken between two looks is not visible."""
    onlooker = Onlooker(tmp_path_factory.mktemp("looks"))
    there: list[str] = []
    expected: list[str] = []
    shown: list[str] = []
    for number, step in enumerate([*steps, "look"]):
        if step.startswith("put"):
            onlooker.put(str(number), **({"id": str(number)} if "id" in step else {}))
            there.append(str(number))
        elif step.startswith("take"):
            batch = onlooker.box.take(BatchLimit(messages=1 if "one" in step else None))
            onlooker.box.done(batch)
            del there[: len(batch.messages)]
        else:
            shown += onlooker.look()
            expected += [content for content in there if content not in expected]
    assert shown == expected
