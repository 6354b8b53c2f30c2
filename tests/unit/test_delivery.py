"""Mail on its way into a conversation, and when the inbox may forget it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.agent.delivery import Delivery
from teamd.errors import StoreError
from teamd.messages import INTERRUPT_TYPE, Message
from teamd.settings.schema import Mail
from teamd.transcript.records import Opened
from tests.strict.replies import use
from tests.unit.life import SYSTEM, Life, replied


def delivering(life: Life, look: Callable[[Delivery], None]) -> None:
    async def scenario() -> None:
        async with life.made() as loop:
            loop.delivery.deliver()
            look(loop.delivery)

    asyncio.run(scenario())


def said(life: Life) -> list[str]:
    return [message.content for message in life.conversation().new_mail]


def test_mail_is_delivered_once_and_then_removed(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.send("a")

    def look(delivery: Delivery) -> None:
        assert not life.mailbox.waiting()
        delivery.deliver()
        assert said(life) == ["a"]
        life.send("b")
        delivery.deliver()
        assert said(life) == ["a", "b"]
        assert not life.mailbox.waiting()

    delivering(life, look)


def is_known(life: Life, mail: Message) -> None:
    talk = life.conversation()
    talk.open(Opened(system=SYSTEM))
    talk.deliver([mail])


def waits_for_results(life: Life, mail: Message) -> None:
    talk = life.conversation()
    talk.open(Opened(system=SYSTEM))
    talk.deliver([mail])
    talk.add_reply(replied(use(("do", {"word": "a"}))))
    life.send("meanwhile")


def says_nothing(life: Life, _: Message) -> None:
    talk = life.conversation()
    talk.open(Opened(system=SYSTEM))
    batch = life.mailbox.take()
    talk.deliver(batch.messages)
    life.mailbox.done(batch)
    talk.end_turn("end_turn", "")
    life.send("", type=INTERRUPT_TYPE)


@pytest.mark.parametrize("prepare", [is_known, waits_for_results, says_nothing])
def test_mail_that_causes_no_request_is_removed_from_the_inbox_at_once(
    tmp_path: Path, prepare: Callable[[Life, Message], None]
) -> None:
    """The next reader of the inbox, a tool or a shutdown, finds only new mail."""
    life = Life(tmp_path)
    prepare(life, life.send("work"))
    delivering(life, lambda _: None)
    assert not life.mailbox.waiting()


def test_mail_stays_in_the_inbox_until_the_disk_has_confirmed_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path)
    life.settings = replace(life.settings, mail=Mail(durability="disk"))
    life.send("a")
    sync, transcript = os.fdatasync, life.paths.transcript("alice")

    def fail(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink() == transcript:
            raise OSError(5, "Input/output error")
        sync(fd)

    def look(delivery: Delivery) -> None:
        life.send("b")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fail)
            with pytest.raises(StoreError, match="Input/output error"):
                delivery.deliver()
        assert [mail.content for mail in life.mailbox.peek()] == ["b"]

    delivering(life, look)
