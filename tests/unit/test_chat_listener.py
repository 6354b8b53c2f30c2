"""The lead's conversation as a chat shows it: every text, with long ones clipped."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest

from teamctl.chat.listener import Listener
from teamctl.render import layout
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, TEAMD, USER, Message
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from tests.unit.life import as_record, enrol


class Conversation:
    """The lead's conversation as other processes write it, and its lines in a chat."""

    def __init__(self, folder: Path) -> None:
        self.paths = TeamPaths(folder / ".team")
        enrol(self.paths, lead=Status.IDLE)
        self._transcript = Transcript(self.paths.transcript(LEAD), durable=False)
        self._written: list[str] = []

    def says(self, *texts: str) -> None:
        """Write a reply of the lead for each text."""
        for text in texts:
            self.add("reply", content=[{"type": "text", "text": text}])

    def add(self, record: str, **facts: Any) -> None:
        """Append a record."""
        self._transcript.append(as_record({"record": record, **facts}))

    def listening(self) -> Listener:
        """Return the listener of a new chat."""
        self._written = []
        return Listener(self.paths, self._written.append)

    @property
    def shown(self) -> list[str]:
        """The lines of the last chat so far."""
        return click.unstyle("".join(self._written)).splitlines()


@pytest.fixture
def conversation(tmp_path: Path) -> Conversation:
    return Conversation(tmp_path)


def test_texts_between_two_chats_are_shown_once(conversation: Conversation) -> None:
    conversation.says("one", "two", "three", "four\nand more", "five")
    conversation.add("reply", content=[{"type": "tool_use", "id": "1", "name": "x", "input": {}}])
    conversation.listening().catch_up()
    assert conversation.shown == [
        "What lead said since the last chat:",
        "… 2 earlier ones: `teamctl transcript lead`",
        "  three",
        "  four",
        "  and more",
        "  five",
    ]
    conversation.listening().catch_up()
    end = ["The end of the last conversation:", "  five"]
    assert conversation.shown == end
    conversation.says("six")
    conversation.listening().catch_up()
    assert conversation.shown == [*end, "What lead said since the last chat:", "  six"]
    conversation.listening().catch_up(fresh=True)
    assert conversation.shown == []


def test_a_chat_begins_with_the_end_of_the_last_one(conversation: Conversation) -> None:
    """Mail of teammates is left out, and so is an earlier conversation."""
    conversation.says("Of an earlier conversation.")
    conversation.add("opened", system="")
    conversation.listening().catch_up()
    asked = Message(sender=USER, to=LEAD, content="Is it done?\nSay yes or no.")
    conversation.listening().catch_up()
    assert conversation.shown == []
    conversation.add("mail", messages=[asked.to_json()])
    conversation.says("I ask alice.", "Yes.")
    told = Message(sender="alice", to=LEAD, content="It is.")
    conversation.add("mail", messages=[told.to_json()])
    conversation.listening().catch_up()
    conversation.listening().catch_up()
    assert conversation.shown == [
        "The end of the last conversation:", "> Is it done?", "  Say yes or no.", "  Yes.",
    ]  # fmt: skip


def test_mail_from_the_lead_is_shown_as_mail(conversation: Conversation) -> None:
    listening = conversation.listening()
    given = {"to": "bob", "content": "Test it.\nAll of it."}
    call = {"type": "tool_use", "id": "1", "name": "send_message", "input": given}
    other = {**call, "id": "2", "name": "broadcast", "input": {"content": "Stop."}}
    odd = {**call, "id": "3", "input": {"to": 5}}
    conversation.add("reply", content=[call, other, odd])
    listening.look()
    assert conversation.shown == [
        "✉ lead → bob: Test it.", "  All of it.", "✉ lead → all: Stop.", "· send_message to: 5",
    ]  # fmt: skip


def test_texts_shown_in_one_chat_are_not_shown_in_the_next(conversation: Conversation) -> None:
    listening = conversation.listening()
    listening.catch_up()
    conversation.says("heard")
    listening.look()
    assert conversation.shown == ["heard"]
    conversation.says("missed")
    conversation.listening().catch_up()
    assert conversation.shown[2:] == ["What lead said since the last chat:", "  missed"]


def test_a_pipe_neither_shows_earlier_texts_nor_marks_them_as_shown(
    conversation: Conversation,
) -> None:
    conversation.says("missed")
    piped = conversation.listening()
    piped.skip()
    conversation.says("now")
    piped.look()
    assert conversation.shown == ["now"]
    conversation.listening().catch_up()
    assert conversation.shown[1:] == ["  missed", "  now"]


@pytest.mark.parametrize("content", [b"999999\n", b"-3\n", b"garbage \xff\n", b""])
def test_an_invalid_mark_hides_nothing(conversation: Conversation, content: bytes) -> None:
    conversation.says("missed")
    conversation.paths.chat_mark.write_bytes(content)
    conversation.listening().catch_up()
    assert conversation.shown == ["What lead said since the last chat:", "  missed"]


def test_a_summary_is_one_line(conversation: Conversation) -> None:
    listening = conversation.listening()
    conversation.add("summary", text="All that was.", restated="")
    listening.look()
    assert conversation.shown == ["· the conversation was summed up"]


@pytest.mark.parametrize("text", ["word " * 800, "line\n" * 800, "w" * 4000])
def test_long_mail_is_clipped_with_a_command_that_shows_it_whole(
    conversation: Conversation, text: str
) -> None:
    listening = conversation.listening()
    letter = Message(sender="alice", to=LEAD, content=text)
    conversation.add("mail", messages=[letter.to_json()])
    Mailbox(conversation.paths, USER).put(letter)
    listening.look()
    told = "\n".join(conversation.shown)
    assert len(conversation.shown) <= 6
    assert len(told) < 1000
    assert "… (`teamctl transcript lead` shows it whole)" in told
    assert told.endswith("… (/inbox shows it whole)")


def test_short_mail_is_shown_whole(conversation: Conversation) -> None:
    listening = conversation.listening()
    letter = Message(sender="alice", to=LEAD, content="It works.\nAll of it.\n")
    conversation.add("mail", messages=[letter.to_json()])
    listening.look()
    assert conversation.shown == ["✉ alice → lead: It works.", "  All of it."]


@pytest.mark.parametrize("content", ["no file /" + "x" * 3000 + "\nmore", "\n", ""])
def test_an_error_is_one_short_line(conversation: Conversation, content: str) -> None:
    listening = conversation.listening()
    conversation.add("result", content=content, is_error=True)
    listening.look()
    (line,) = conversation.shown
    assert len(line) <= 101
    assert line.endswith("…") == (len(content) > 100)


def test_a_text_that_just_fits_is_not_clipped() -> None:
    assert layout.clip_line("x" * 100) == "x" * 100
    assert layout.clip_line("x" * 101) == "x" * 100 + "…"
    assert layout.clip_beginning("a\nb\nc\n\n", rest="r") == "a\nb\nc"
    assert layout.clip_beginning("a\nb\nc\nd", rest="r") == "a\nb\nc… (r)"


def test_the_persons_mail_is_shown_once_even_without_an_id(conversation: Conversation) -> None:
    """Such mail gets another id at each look, until it is taken."""
    listening = conversation.listening()
    inbox = conversation.paths.inbox(USER)
    inbox.write_text('{"from": "ci", "content": "It is red."}\n', encoding="utf-8")
    for _ in range(3):
        listening.look()
    assert conversation.shown == ["✉ ci → you: It is red."]


def test_a_request_is_shown_with_the_commands_that_answer_it_until_it_is_answered(
    conversation: Conversation,
) -> None:
    """Its text is clipped, and the commands come last."""
    post = MailRouter(conversation.paths, durable=False, max_bytes=10_000)
    approvals = Approvals(conversation.paths, post)
    facts: dict[str, Any] = {
        "asker": "bob",
        "to": LEAD,
        "asked": time.time(),
        "content": "\n".join("abcdef"),
    }
    approvals.ask(Approval(id="f00d", type=Kind.PERMISSION, **facts))
    put = Message(id="f00d", type=Kind.PERMISSION, sender="bob", to=USER, content="a\nb\nc\nd")
    Mailbox(conversation.paths, USER).put(replace(put, extra={"request_id": "f00d"}))
    conversation.listening().look()
    assert conversation.shown[-1] == "  /approve f00d or /reject f00d WHY answers it"
    assert conversation.shown[-2].endswith("(/inbox shows it whole)")
    approvals.answer("f00d", by=USER, approve=False, reason="No.")
    conversation.listening().look()
    assert re.fullmatch(r"  was rejected already by you \d+s ago: No\.", conversation.shown[-1])


def test_waiting_paused_and_failed_teammates_are_listed_at_the_start(
    conversation: Conversation,
) -> None:
    """Even if the mail about them was read long ago."""
    enrol(conversation.paths, lead=Status.IDLE, bob=Status.PAUSED, cid=Status.FAILED)
    post = MailRouter(conversation.paths, durable=False, max_bytes=10_000)
    plan: dict[str, Any] = {"asker": "bob", "to": USER, "asked": time.time(), "content": "This."}
    Approvals(conversation.paths, post).ask(Approval(id="f00d", type=Kind.PLAN, **plan))
    conversation.listening().catch_up()
    assert not [line for line in conversation.shown if "f00d" in line]  # it comes as mail
    box = Mailbox(conversation.paths, USER)
    box.done(box.take())
    conversation.listening().catch_up()
    assert conversation.shown == [
        "bob asks to approve a plan: This.",
        "  /approve f00d or /reject f00d WHY answers it",
        "cid has failed; `teamctl spawn cid tester 'Go on.'` resumes it",
        "bob is paused; `teamctl resume bob` resumes it",
    ]


def test_missed_mail_is_shown_with_its_time(conversation: Conversation) -> None:
    """The hour for today; the date as well for another day."""
    now = time.time()
    text = [{"type": "text", "text": "one\ntwo"}]
    conversation.add("reply", content=text, time=now)
    conversation.add("reply", content=text, time=now - 200_000)
    conversation.listening().catch_up()
    today = time.strftime("%H:%M:%S", time.localtime(now))
    before = time.strftime("%Y-%m-%d %H:%M", time.localtime(now - 200_000))
    assert conversation.shown[1:] == [f"  {today} one", "  two", f"  {before} one", "  two"]


def test_events_in_the_team_since_the_last_chat_are_shown_with_their_times(
    conversation: Conversation,
) -> None:
    conversation.listening().catch_up()
    journal = Journal(conversation.paths.log(TEAMD), TEAMD)
    journal.warn("crashed", name="alice", reason="signal 9")
    journal.note("exited", name="alice", code=-9)
    journal.close()
    crashed = json.loads(conversation.paths.log(TEAMD).read_text().splitlines()[0])["time"]
    left = datetime.fromisoformat(crashed).timestamp() + 0.0009  # in the same millisecond
    os.utime(conversation.paths.chat_mark, (left, left))
    listening = conversation.listening()
    listening.catch_up()
    heading, line = conversation.shown
    assert heading == "What else happened since:"
    assert re.fullmatch(r"  \d\d:\d\d:\d\d alice crashed: signal 9", line)


def test_notices_about_tasks_and_shutdowns_are_not_shown_as_mail(
    conversation: Conversation,
) -> None:
    listening = conversation.listening()
    kind, why = "shutdown_response", "idle, and no mail waits"
    done = Message(type=kind, sender="alice", to=LEAD, content=why, extra={"approve": True})
    text = "Nothing blocks task 2 (Test it) any more: task 1 is completed."
    about = {"summary": "task 2: Test it", "task_id": "2"}
    freed = Message(sender="alice", to=LEAD, content=text, extra=about)
    kept = Message(type=kind, sender="bob", to=LEAD, content="Not yet.", extra={"approve": False})
    conversation.add("mail", messages=[one.to_json() for one in (done, freed, kept)])
    listening.look()
    assert conversation.shown == [
        "· alice is shut down", f"· {text}", "✉ bob → lead: Not yet.",
    ]  # fmt: skip


def test_a_retried_model_call_is_shown(conversation: Conversation) -> None:
    listening = conversation.listening()
    journal = Journal(conversation.paths.log(LEAD), LEAD)
    journal.warn("model call failed, trying again", reason="connection refused", seconds=57.0)
    journal.close()
    listening.look()
    assert conversation.shown == ["· retrying: connection refused, next in 57.0 s"]


def test_the_leads_activity_is_shown_until_its_turn_ends(conversation: Conversation) -> None:
    listening = conversation.listening()
    seen = []
    for record, facts in (
        ("mail", {"time": 5.0}),
        ("reply", {"content": [
            {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "make"}}]}),
        ("started", {"tool_use_id": "1", "time": 7.0}),
        ("result", {"tool_use_id": "1", "content": "ok", "time": 9.0}),
        ("ended", {"outcome": "end_turn"}),
    ):  # fmt: skip
        conversation.add(record, **facts)
        listening.look()
        seen.append((listening.doing.what, listening.doing.since))
    assert seen == [
        ("thinking", 5.0), ("thinking", 5.0), ("bash command: make", 7.0), ("thinking", 9.0),
        ("", 9.0),
    ]  # fmt: skip


def test_an_interrupt_that_arrives_after_the_turn_begins_no_work(
    conversation: Conversation,
) -> None:
    """Otherwise the next Ctrl-C would interrupt an idle lead in place of clearing the line."""
    listening = conversation.listening()
    stop = {"id": "m-1", "type": "interrupt", "from": USER, "content": "", "timestamp": 1.0}
    conversation.add("ended", outcome="interrupted")
    conversation.add("mail", messages=[stop])
    listening.look()
    assert listening.doing.what == ""
    conversation.add("mail", messages=[{**stop, "id": "m-2", "content": "Do this."}])
    listening.look()
    assert listening.doing.what == "thinking"


def test_the_end_of_an_earlier_turn_is_not_an_answer(conversation: Conversation) -> None:
    """The person wrote in the middle of a turn: the answer comes at the end of the next one."""
    listening = conversation.listening()
    listening.wait_for("m1")
    conversation.says("About something else.")
    conversation.add("ended", outcome="end_turn")
    listening.look()
    assert (listening.arrived, listening.ended) == (False, None)
    asked = Message(id="m1", sender=USER, to=LEAD, content="And this?")
    conversation.add("mail", messages=[asked.to_json()])
    conversation.says("This as well.")
    listening.look()
    assert (listening.arrived, listening.ended) == (True, None)
    conversation.add("ended", outcome="end_turn")
    listening.look()
    assert listening.ended is not None
