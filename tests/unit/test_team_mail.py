"""The mail of the team as the faces show it: consistent with `trace`, and not taken."""

from __future__ import annotations

import time
from typing import Any

from teamctl.mail.team_mail import LONGEST, MOST_FOUND, MOST_KEPT, TeamMail
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.mail.trace import trace
from teamd.messages import Message
from teamd.overview.overview import OverviewReader
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered

SHARED = ("id", "from", "to", "type", "sent", "stage", "position", "taken", "delivered")


def put(paths: TeamPaths, content: str, to: str = "bob", **facts: Any) -> Message:
    sent = Message(sender="lead", to=to, content=content, **facts)
    Mailbox(paths, to, durable=False).put(sent)
    return sent


def found(mail: TeamMail, words: str = "") -> list[dict[str, Any]]:
    mail.look()
    messages: list[dict[str, Any]] = mail.find(words)["messages"]
    return messages


def test_every_stage_agrees_with_trace(paths: TeamPaths) -> None:
    mail = TeamMail(paths)
    sent = put(paths, "x")
    box = Mailbox(paths, "bob", durable=False)

    def same() -> str:
        (shown,), (way,) = found(mail), trace(paths, sent.id)
        told = way.to_json()
        assert {key: shown[key] for key in SHARED} == {key: told[key] for key in SHARED}
        return str(shown["stage"])

    assert same() == "queued"
    batch = box.take()
    assert same() == "taken"
    Transcript(paths.transcript("bob")).append(
        Delivered(messages=batch.messages, taken=999.5, time=1000.5)
    )
    assert same() == "delivered"  # though it lies in the spool as well
    box.done(batch)
    assert same() == "delivered"


def test_reading_changes_no_file(paths: TeamPaths) -> None:
    put(paths, "x")
    put(paths, "y", to="carol")
    paths.inbox("dave").write_bytes(b"no message\n\x00\xff{}")
    before = {
        file: (file.read_bytes(), file.stat().st_mtime_ns) for file in paths.inboxes.iterdir()
    }
    mail = TeamMail(paths)
    assert len(found(mail)) == 2
    after = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in paths.inboxes.iterdir()}
    assert after == before


def test_lines_of_other_programs_are_shown_one_by_one(paths: TeamPaths) -> None:
    """They may have neither an id nor a time."""
    paths.inbox("bob").write_bytes(b'{"from": "cron", "content": "ping"}\n' * 3)
    assert [one["position"] for one in found(TeamMail(paths))] == [1, 2, 3]


def test_a_search_requires_all_words(paths: TeamPaths) -> None:
    put(paths, "The API is done")
    put(paths, "Review it", to="carol", extra={"summary": "of the API"})
    mail = TeamMail(paths)
    assert [one["to"] for one in found(mail, "api")] == ["carol", "bob"]
    assert [one["to"] for one in found(mail, "API carol")] == ["carol"]
    assert found(mail, "nothing of the kind") == []


def test_all_mail_of_a_member_is_found_though_others_mention_its_name(paths: TeamPaths) -> None:
    put(paths, "for bob", timestamp=1.0)
    for n in range(MOST_FOUND + 5):
        put(paths, f"bob said {n}", to="carol", timestamp=2.0)
    mail = TeamMail(paths)
    mail.look()
    found = mail.find("", "bob")
    assert [one["content"] for one in found["messages"]] == ["for bob"]
    assert (found["found"], found["traffic"]) == (1, [["lead", "bob", 1]])
    assert len(mail.find("", "lead")["messages"]) == MOST_FOUND


def test_the_version_changes_with_new_mail(paths: TeamPaths) -> None:
    mail = TeamMail(paths)
    first = mail.look()
    assert mail.look() == first
    put(paths, "x")
    second = mail.look()
    assert (second["version"] > first["version"], second["waiting"]) == (True, 1)
    Mailbox(paths, "bob", durable=False).take()
    assert mail.look()["version"] > second["version"]


def test_kept_and_shown_mail_is_bounded(paths: TeamPaths) -> None:
    mail = TeamMail(paths)
    conversation = Transcript(paths.transcript("bob"), durable=False)
    for start in range(0, MOST_KEPT + 500, 500):
        messages = tuple(
            Message(sender="lead", to="bob", content=f"{n} {'x' * LONGEST}", timestamp=float(n))
            for n in range(start, start + 500)
        )
        conversation.append(Delivered(messages=messages, time=1.0), durable=False)
        mail.look()
    everything = mail.find("")
    assert everything["found"] == MOST_KEPT
    assert len(everything["messages"]) == MOST_FOUND
    newest = everything["messages"][0]
    assert newest["content"].startswith(f"{MOST_KEPT + 499} ")
    assert (len(newest["content"]), newest["more"]) == (LONGEST, 5)


def test_is_unread_finds_what_the_overview_counts(paths: TeamPaths) -> None:
    """Mail to `user` waits even if no agent leads; answered requests do not wait."""
    store = Approvals(paths, MailRouter(paths, durable=False, max_bytes=9999))
    mail = TeamMail(paths)

    def unread() -> list[str]:
        shown = sorted(one["content"] for one in found(mail, "is:unread"))
        assert OverviewReader(paths).read().unread == len(shown)
        return shown

    for name in ("lead", "user", "bob"):
        put(paths, f"to {name}", to=name)
    plan = Approval(type=Kind.PLAN, asker="bob", to="lead", content="A plan.", asked=time.time())
    asked = store.ask(plan)
    assert unread() == ["A plan.", "to lead", "to user"]
    store.answer(asked.id, by="user", approve=True, reason="")
    assert unread() == ["to lead", "to user"]
    assert [one["content"] for one in found(mail, "is:unread to user")] == ["to user"]
    lead = Member(name="lead", role="lead", agent_id="lead@x", status=Status.IDLE)
    Roster(paths).update(lambda team: team.with_member(lead))
    assert unread() == ["to user"]  # the rest waits for the agent that leads


def test_a_damaged_roster_does_not_hide_the_mail(paths: TeamPaths) -> None:
    put(paths, "x", to="lead")
    paths.config.write_text("{")
    assert len(found(TeamMail(paths))) == 1
