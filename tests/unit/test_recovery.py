"""Damage to the program's own files prevents no start, and their content is saved."""

from __future__ import annotations

import json
import time
from decimal import Decimal

import pytest

from teamd import recovery
from teamd.board.files import read_all
from teamd.budget.account import Reservation
from teamd.budget.accounts import Terms
from teamd.budget.days import day_of
from teamd.budget.ledger import Ledger
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import EMPTY, Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import TEAMD, Message
from teamd.model_server import Usage
from teamd.process_id import Identity
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered, NoteAdded, Replied

DAMAGES = {"empty": b"", "zeros": b"\0" * 300, "half": b'{"batch": "17', "text": b"hello\n",
           "bytes": b'{"batch": "\xff\xfe", "at": "0"}'}  # fmt: skip
USAGE = Usage(input_tokens=10, cache_read_tokens=5, cache_write_tokens=1, output_tokens=2)


def cost(model: str, usage: Usage) -> Decimal | None:
    return Decimal(usage.output_tokens) if model == "known" else None


def repaired(paths: TeamPaths) -> list[str]:
    """Return the names of the files that were put aside."""
    return [
        damage.path.name
        for damage, kept in recovery.repair(paths, cost)
        if kept is None or kept.exists()
    ]


def delivered(paths: TeamPaths, name: str) -> list[str]:
    box, found = Mailbox(paths, name), []
    while (batch := box.take()) != EMPTY:
        found += [message.content for message in batch.messages]
        box.done(batch)
    return found


def put(paths: TeamPaths, *contents: str) -> None:
    Mailbox(paths, "bob").put(*(Message(sender="eve", to="bob", content=c) for c in contents))


def test_a_team_without_damage_is_not_changed(paths: TeamPaths) -> None:
    put(paths, "a")
    Mailbox(paths, "bob").take()
    Ledger(paths.ledger).agree(Terms(team_tokens=7))
    assert (repaired(paths), delivered(paths, "bob")) == ([], ["a"])
    assert recovery.find_kept(paths) == []


@pytest.mark.parametrize("content", DAMAGES.values(), ids=list(DAMAGES))
def test_taken_mail_that_is_still_in_the_inbox_is_delivered_once(
    paths: TeamPaths, content: bytes
) -> None:
    """Its reader was killed before it truncated the inbox."""
    put(paths, "a", "b")
    inbox = paths.inbox("bob").read_bytes()
    batch = Mailbox(paths, "bob").take()
    marker = b'{"taken_as": "%s"}\n' % batch.id.encode()
    paths.inbox("bob").write_bytes(inbox + marker)
    paths.taken("bob").write_bytes(content + b"\n" + inbox)
    assert repaired(paths) == ["bob.taken.jsonl"]
    assert delivered(paths, "bob") == ["a", "b"]


def test_a_foreign_marker_does_not_hold_back_taken_mail(paths: TeamPaths) -> None:
    put(paths, "a")
    for _ in range(2):  # the second take moves the mail out of the inbox
        Mailbox(paths, "bob").take(BatchLimit(wary=True))
    content = paths.taken("bob").read_bytes()
    paths.taken("bob").write_bytes(content.replace(b'"at"', b'"to"', 1))
    paths.inbox("bob").write_bytes(b'{"taken_as": "by somebody else"}\n')
    assert repaired(paths) == ["bob.taken.jsonl"]
    assert delivered(paths, "bob") == ["a"]


def test_taken_mail_after_a_damaged_start_is_delivered_again(paths: TeamPaths) -> None:
    put(paths, "a", "b")
    for _ in range(2):  # the second take moves the mail out of the inbox
        Mailbox(paths, "bob").take(BatchLimit(wary=True))
    put(paths, "c")
    content = paths.taken("bob").read_bytes()
    paths.taken("bob").write_bytes(content.replace(b'"at"', b'"to"', 1))
    assert repaired(paths) == ["bob.taken.jsonl"]
    assert sorted(delivered(paths, "bob")) == ["a", "b", "c"]
    [kept] = recovery.find_kept(paths)
    assert b'"to"' in kept.read_bytes()


@pytest.mark.parametrize("content", DAMAGES.values(), ids=list(DAMAGES))
def test_the_control_inbox_works_again(paths: TeamPaths, content: bytes) -> None:
    """Its askers no longer wait: a power cut that damages it ends them, too."""
    paths.taken(TEAMD).write_bytes(content + b"\n\n")
    assert repaired(paths) == ["teamd.taken.jsonl"]
    assert Mailbox(paths, TEAMD).leftover() == ()


@pytest.mark.parametrize("content", DAMAGES.values(), ids=list(DAMAGES))
def test_damaged_requests_and_replies_are_set_aside(paths: TeamPaths, content: bytes) -> None:
    paths.request("abcdef").write_bytes(content)
    (paths.replies / "x.json").write_bytes(content)
    assert repaired(paths) == ["abcdef.json", "x.json"]
    assert repaired(paths) == [], "once is enough"
    assert len(recovery.find_kept(paths)) == 2


@pytest.mark.parametrize("content", DAMAGES.values(), ids=list(DAMAGES))
def test_a_ledger_is_recounted_from_the_conversations(paths: TeamPaths, content: bytes) -> None:
    """Otherwise the limits would start at zero."""
    known = Replied(model="known", usage=USAGE)
    Transcript(paths.transcript("bob")).append(
        known, NoteAdded(text="x"), Replied(model="other", usage=USAGE)
    )
    paths.subagents.mkdir()
    Transcript(paths.subagents / "bob-key.jsonl").append(known)
    paths.ledger.write_bytes(content)
    assert repaired(paths) == ["ledger.jsonl"]
    used = Ledger(paths.ledger).read().used["bob"]
    assert (used.calls, used.input_tokens, used.output_tokens) == (3, 48, 6)
    assert (int(used.usd), used.unpriced_calls) == (4, 1)
    Ledger(paths.ledger).agree(Terms(team_tokens=7))
    assert Ledger(paths.ledger).read().used["bob"] == used


def test_a_subagent_counts_for_the_teammate_with_the_longest_fitting_name(paths: TeamPaths) -> None:
    """A file's name begins with that of its teammate, and that may begin with another one."""
    for name in ("bob", "bob-2"):
        Transcript(paths.transcript(name)).append(Replied(model="known", usage=USAGE))
    paths.subagents.mkdir()
    Transcript(paths.subagents / "bob-2-key.jsonl").append(Replied(model="known", usage=USAGE))
    paths.ledger.write_bytes(b"damaged")
    assert repaired(paths) == ["ledger.jsonl"]
    used = Ledger(paths.ledger).read().used
    assert {name: account.calls for name, account in used.items()} == {"bob": 1, "bob-2": 2}


def test_an_empty_ledger_of_a_team_without_conversations_is_not_damage(paths: TeamPaths) -> None:
    """The file is created a moment before its first line is written."""
    paths.ledger.write_bytes(b"")
    assert repaired(paths) == []


def test_a_torn_end_of_the_ledger_is_not_damage(paths: TeamPaths) -> None:
    """Unsynced data was never relied on."""
    Ledger(paths.ledger).agree(Terms(team_tokens=7))
    with paths.ledger.open("ab") as file:
        file.write(b"\0" * 50)
    assert repaired(paths) == []
    assert Ledger(paths.ledger).read().terms.team_tokens == 7


def test_damaged_tasks_stay_and_are_reported(paths: TeamPaths) -> None:
    """Tasks that a damaged one blocks have to stay blocked."""
    paths.task("1").write_text(json.dumps({"subject": ""})[:5])
    assert repaired(paths) == []
    [sentence] = read_all(paths).damaged.values()
    assert "tasks/1.json is damaged" in sentence


def test_mail_without_an_id_keeps_the_id_of_its_first_take(paths: TeamPaths) -> None:
    """So a conversation that has received some of it recognizes it."""
    paths.inbox("bob").write_text('{"id": "1", "content": "one"}\n{"content": "two"}\n')
    first = Mailbox(paths, "bob").take()
    header, _, rest = paths.taken("bob").read_bytes().partition(b"\n")
    paths.taken("bob").write_bytes(header.replace(b'"at"', b'"to"') + b"\n" + rest)
    assert repaired(paths) == ["bob.taken.jsonl"]
    again = Mailbox(paths, "bob").take()
    assert [m.id for m in again.messages] == [m.id for m in first.messages]


def test_mail_without_an_id_keeps_its_id_while_it_is_still_in_the_inbox(paths: TeamPaths) -> None:
    """A reader was killed before it truncated the inbox, and the next one delivered the mail."""
    inbox = b'{"id": "1", "content": "one"}\n{"content": "two"}\n'
    paths.inbox("bob").write_bytes(inbox)
    first = Mailbox(paths, "bob").take()
    paths.inbox("bob").write_bytes(inbox + b'{"taken_as": "%s"}\n' % first.id.encode())
    paths.taken("bob").write_bytes(b"nonsense\n" + b"x" * 500)
    assert repaired(paths) == ["bob.taken.jsonl"]
    again = Mailbox(paths, "bob").take()
    assert [m.id for m in again.messages] == [m.id for m in first.messages]


def test_a_missing_ledger_is_recounted_from_the_conversations(paths: TeamPaths) -> None:
    """As after an interrupted repair: the limits must not start at zero."""
    known = Replied(model="known", usage=USAGE)
    transcript = paths.transcript("bob")
    Transcript(transcript).append(known)
    odd = known.encode().replace(b'"input_tokens": 10', b'"input_tokens": null')
    transcript.write_bytes(transcript.read_bytes() + odd)
    Transcript(paths.transcript("user")).append(Delivered())
    assert repaired(paths) == ["ledger.jsonl"]
    used = Ledger(paths.ledger).read().used
    assert [(name, account.calls) for name, account in used.items()] == [("bob", 1)]


def test_a_recounted_ledger_keeps_the_days(paths: TeamPaths) -> None:
    """Otherwise a daily limit would start at zero."""
    now = time.time()
    for moment in (now, now, now - 86_400 * 3, 0.0):
        Transcript(paths.transcript("bob")).append(Replied(model="known", usage=USAGE, time=moment))
    assert repaired(paths) == ["ledger.jsonl"]
    by_day = Ledger(paths.ledger).read().days
    assert {day: account.calls for day, account in by_day.items()} == {
        day_of(now): 2,
        day_of(now - 86_400 * 3): 1,
    }
    ledger = Ledger(paths.ledger)
    ledger.agree(Terms(team_usd_per_day=Decimal("4.5")))
    assert ledger.reserve(a_call(Decimal("0.5"))) is None, "four are used"
    assert ledger.reserve(a_call(Decimal("0.5"))) is not None


def a_call(usd: Decimal) -> Reservation:
    return Reservation(
        id=str(usd), teammate="bob", process=Identity.own(), model="known",
        input_tokens=1, output_tokens=1, usd=usd,
    )  # fmt: skip


def test_a_folder_in_place_of_a_file_is_set_aside(paths: TeamPaths) -> None:
    paths.taken(TEAMD).mkdir()
    paths.ledger.mkdir()
    assert repaired(paths) == ["teamd.taken.jsonl", "ledger.jsonl"]
    assert repaired(paths) == []


@pytest.mark.parametrize("content", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_spool_file_without_mail_is_set_aside(paths: TeamPaths, content: bytes) -> None:
    """Later mail is delivered, without an odd line before it."""
    paths.taken("bob").write_bytes(content + b"\n\n")
    put(paths, "new")
    assert repaired(paths) == ["bob.taken.jsonl"]
    assert delivered(paths, "bob") == ["new"]
    assert Mailbox(paths, "bob").rejected() == 0


def test_a_folder_in_place_of_the_spool_file_is_set_aside(paths: TeamPaths) -> None:
    paths.taken("bob").mkdir()
    (paths.taken("bob") / "mail").write_text("kept")
    put(paths, "new")
    assert repaired(paths) == ["bob.taken.jsonl"]
    assert delivered(paths, "bob") == ["new"]
    [kept] = recovery.find_kept(paths)
    assert (kept / "mail").read_text() == "kept"


def test_an_invalid_line_of_taken_mail_is_rejected_and_not_lost(paths: TeamPaths) -> None:
    line = Message(sender="eve", to="bob", content="a").encode()
    paths.taken("bob").write_bytes(b'{"batch": "17\n' + line + b"a remark\n" + b"\0\0\n\n")
    assert repaired(paths) == ["bob.taken.jsonl"]
    assert delivered(paths, "bob") == ["a"]
    assert paths.rejected("bob").read_bytes() == b"a remark\n"


def test_an_unreadable_request_is_not_damage(paths: TeamPaths) -> None:
    """It may be intact; the readable ones beside it are still processed."""
    paths.request("abc").symlink_to(paths.root / "elsewhere")
    paths.request("abd").write_bytes(b"{")
    assert repaired(paths) == ["abd.json"]
    assert paths.request("abc").is_symlink()
