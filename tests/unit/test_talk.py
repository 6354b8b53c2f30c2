"""Talk without work ends after a few wakes; mail then waits, but a working teammate gets it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.delivery import MailHold, is_idle_talk
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.messages import HELD_TYPE, TEAMD, Message
from teamd.settings import Settings
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools.mail import SendMessage
from teamd.transcript.records import MailHeld, NoticeSent
from tests.strict.replies import say, use
from tests.unit.life import Life, Play, enrol, replied
from tests.waiting import until

MOST = Settings().limits.talk_wakes
HELD = (
    f"alice was woken {MOST} times in a row by mail of other teammates and did nothing but write "
    "mail, so their mail waits in its inbox until the person, the lead or the board wakes it"
)
WORK = use(("do", {"word": "on"}))


def life_of(folder: Path, *plays: Play) -> Life:
    life = Life(folder, *plays)
    enrol(life.paths, bob=Status.IDLE, carol=Status.IDLE)
    return life


def write(life: Life, text: str, sender: str = "bob", **more: Any) -> None:
    """Put mail into alice's inbox and ring."""
    life.post.send(Message(sender=sender, to="alice", content=text, **more))
    life.ring()


def talk(life: Life, wakes: int = MOST, *, calls_each: int = 1, sender: str = "bob") -> None:
    """Wake alice `times` times, with one mail each."""

    async def scenario() -> None:
        async with life.lived():
            begun = len(life.model.asked)
            for wake in range(1, wakes + 1):
                write(life, f"thanks {wake}", sender)
                await life.rests(calls=begun + wake * calls_each)

    asyncio.run(scenario())


def has_talked(life: Life) -> None:
    """Write the records that `talk` would lead to, without running a loop."""
    conversation = life.conversation()
    conversation.open(life.opening)
    for wake in range(1, MOST + 1):
        thanks = Message(sender="bob", to="alice", content=f"thanks {wake}")
        conversation.deliver([thanks], idle_talk=True)
        conversation.add_reply(replied(say("Thanks.")))
        conversation.end_turn("end_turn", "Thanks.")


def told(life: Life, name: str) -> list[Message]:
    return [mail for mail in life.post.mailbox(name).peek() if mail.type == HELD_TYPE]


def wakes(life: Life) -> int:
    return life.conversation().talk.wakes


def live_until_told(life: Life, name: str = "bob") -> None:
    """Run her loop until a sender has been told that its mail waits."""

    async def scenario() -> None:
        async with life.lived():
            await until(lambda: told(life, name) and not life.conversation().unsent)

    asyncio.run(scenario())


def test_mail_of_teammates_waits_after_several_wakes_of_talk(tmp_path: Path) -> None:
    """No model call follows; its sender and the lead get one notice, even after a restart."""
    life = life_of(tmp_path)
    talk(life)
    assert life.lead == []
    write(life, "thanks again")
    for _ in range(2):
        live_until_told(life)
    assert len(life.model.asked) == MOST
    assert [mail.content for mail in life.mailbox.peek()] == ["thanks again"]
    assert life.lead == [HELD]
    (notice,) = told(life, "bob")
    assert notice.sender == "alice"
    assert notice.content.startswith("Your mail to me waits")
    last = Mailbox(life.paths, TEAMD, durable=False).peek()[-1]
    assert (last.content, last.extra["reason"]) == ("idle", HELD), "the roster shows why"


@pytest.mark.parametrize(
    ("sender", "more"),
    [
        ("lead", {}),
        ("LEAD", {}),
        ("user", {}),
        ("lead@other", {}),
        ("teamd", {}),
        ("ci-script", {}),
        ("me@example.org", {}),
        ("bob", {"extra": {"task_id": "3"}}),
        ("bob", {"type": "shutdown_request"}),
    ],
    ids=str,
)
def test_mail_from_the_person_lead_or_board_wakes_it_and_all_waiting_mail_is_read(
    sender: str, more: dict[str, Any], tmp_path: Path
) -> None:
    """In the order of arrival; then the count of talk starts at zero."""
    life = life_of(tmp_path)
    talk(life)
    for text in ("one", "two"):
        write(life, text)
    write(life, "Wake up.", sender, **more)
    life.live(calls=MOST + 1)
    (inbox,) = [block["text"] for block in life.model.last() if "one" in block["text"]]
    assert inbox.index("one") < inbox.index("two") < inbox.index("Wake up.")
    assert (wakes(life), life.conversation().talk.told) == (0, set())
    assert not life.mailbox.waiting()


@pytest.mark.parametrize("sender", ["bob", "BOB", "bob@other"])
def test_mail_of_teammates_here_and_elsewhere_does_not_wake_it(sender: str, tmp_path: Path) -> None:
    roster = Roster(life_of(tmp_path).paths)
    message = Message(sender=sender, to="alice", content="thanks")
    assert is_idle_talk([message], roster)
    assert not is_idle_talk([message, replace(message, sender="lead")], roster)


def test_one_wake_of_work_resets_the_count(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    talk(life, MOST - 1)
    life.model._plays.extend([WORK, say("Done.")])
    talk(life, 1, calls_each=2)
    assert wakes(life) == 0
    talk(life, MOST - 1)
    assert wakes(life) == MOST - 1
    assert life.lead == []


def test_mail_of_the_lead_within_a_wake_resets_the_count(tmp_path: Path) -> None:
    """It reached a working teammate, so the wake was not caused by teammates alone."""
    life = life_of(tmp_path)
    talk(life, MOST - 1)
    write(life, "thanks")
    write(life, "And now?", "lead")
    life.live(calls=MOST)
    assert wakes(life) == 0


def test_writing_mail_counts_as_talk(tmp_path: Path) -> None:
    """`send_message` counts as talk, whatever its text."""
    thank = use(("send_message", {"to": "bob", "content": "Thanks!"}))
    life = life_of(tmp_path, *[thank, say("Sent.")] * MOST)
    life.more = [SendMessage(life.post, "alice")]
    talk(life, MOST, calls_each=2)
    assert wakes(life) == MOST


def test_the_count_survives_any_kill(tmp_path: Path) -> None:
    """Each wake in a process of its own: the count follows from the records."""
    life = life_of(tmp_path)
    for _ in range(MOST):
        talk(life, 1)
    write(life, "thanks again")
    live_until_told(life)
    assert life.lead == [HELD]


def test_a_notice_left_by_a_killed_process_is_sent_by_the_next_one(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    has_talked(life)
    write(life, "thanks again")
    life.conversation().record(MailHeld(senders=("bob",), notice=HELD))
    live_until_told(life)
    assert life.lead == [HELD]
    assert len(told(life, "bob")) == 1


def test_a_notice_sent_before_a_kill_keeps_its_id(tmp_path: Path) -> None:
    """So its reader recognizes the repeat."""
    life = life_of(tmp_path)
    has_talked(life)
    write(life, "thanks again")
    live_until_told(life)
    lines = life.paths.transcript("alice").read_bytes().splitlines(keepends=True)
    sent = [line for line in lines if b'"noticed"' in line]
    assert len(sent) == 2
    life.paths.transcript("alice").write_bytes(b"".join(ln for ln in lines if ln not in sent))
    live_until_told(life)
    first, second = told(life, "bob")
    assert first.is_same_as(second)


def test_each_sender_is_notified_and_the_lead_only_once(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    has_talked(life)
    write(life, "thanks again")
    live_until_told(life)
    write(life, "and mine", "carol")
    live_until_told(life, "carol")
    assert life.lead == [HELD]
    assert (len(told(life, "bob")), len(told(life, "carol"))) == (1, 1)


def test_a_teammate_held_by_a_notice_of_held_mail_sends_no_notice(tmp_path: Path) -> None:
    """If both of two teammates that thank each other were told, their notices would never end."""
    life = life_of(tmp_path)
    has_talked(life)
    write(life, "Your mail to me waits.", type=HELD_TYPE)
    conversation = life.conversation()
    hold = MailHold("alice", MOST, conversation, life.mailbox, Roster(life.paths))
    assert hold.holds(), "it wakes nobody"
    assert (conversation.unsent, hold.reason) == ({}, None)


def test_a_sender_that_is_gone_gets_no_notice_and_does_not_block_the_others(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    has_talked(life)
    write(life, "thanks again")
    write(life, "and mine", "ghost@nowhere")
    live_until_told(life)
    records = list(life.conversation()._transcript.records())
    assert sum(isinstance(record, NoticeSent) for record in records) == 3


def test_without_a_limit_nothing_is_held(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    has_talked(life)
    write(life, "thanks again")
    none = MailHold("alice", 0, life.conversation(), life.mailbox, Roster(life.paths))
    assert not none.holds()
    one = MailHold("alice", MOST, life.conversation(), life.mailbox, Roster(life.paths))
    assert one.holds()


def test_the_lead_is_not_held(tmp_path: Path) -> None:
    """Its work is mail: it assigns work to others."""
    life = life_of(tmp_path)
    reader, writer = os.pipe()
    journal = Journal(life.paths.log("alice"), "alice")
    env = life._environment(reader, journal)
    assert MailHold.of(env).most == MOST
    assert MailHold.of(replace(env, name="lead")).most == 0
    journal.close()
    for fd in (reader, writer):
        os.close(fd)


def test_a_new_conversation_starts_without_talk(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    has_talked(life)
    conversation = life.conversation()
    conversation.open(life.opening)
    assert conversation.talk.wakes == 0
