"""`teamctl show` and `trace`: all about one teammate, and about a message, without teamd."""

from __future__ import annotations

import json
import time
from typing import Any

from teamd.board.board import Board
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, Message
from teamd.process_id import Identity
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered, Replied
from tests.unit.life import call, enrol


def put(paths: TeamPaths, content: str = "x") -> Message:
    sent = Message(sender=LEAD, to="bob", content=content)
    Mailbox(paths, "bob", durable=False).put(sent)
    return sent


def told(paths: TeamPaths, sent: Message) -> str:
    """Return the steps of a message after `sent … by …`."""
    done = call(paths, "trace", sent.id)
    first, _, rest = done.out.partition("; ")
    assert first.startswith(f"{sent.id} to {sent.to}: sent ")
    assert first.endswith(f" by {LEAD}")
    return rest.removesuffix("\n")


def test_a_taken_message_is_under_way(paths: TeamPaths) -> None:
    sent = put(paths)
    Mailbox(paths, "bob", durable=False).take()
    taken, where = told(paths, sent).split("; ")
    assert taken.startswith("taken ")
    assert where == f"under way in {paths.taken('bob')}"


def test_a_rejected_message_is_kept_in_a_named_file(paths: TeamPaths) -> None:
    sent = put(paths)
    paths.inbox("bob").rename(paths.rejected("bob"))
    assert told(paths, sent) == f"rejected, and kept in {paths.rejected('bob')}"


def test_a_message_in_the_conversation_is_delivered(paths: TeamPaths) -> None:
    sent = put(paths)
    box = Mailbox(paths, "bob", durable=False)
    batch = box.take()
    Transcript(paths.transcript("bob")).append(Delivered(messages=batch.messages, time=1000.5))
    box.done(batch)
    when = time.strftime("%Y-%m-%d %H:%M:40.500", time.localtime(1000))
    assert told(paths, sent) == f"in the conversation {when}"


def test_a_message_to_another_host_waits_in_the_file_of_that_host(paths: TeamPaths) -> None:
    enrol(paths, alice=Status.IDLE)
    HostPlaces(paths).create()
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h2"}))
    post = MailRouter(paths, durable=False, max_bytes=1000, hosts=hosts)
    sent = Message(sender=LEAD, to="bob@project@h2", content="x")
    post.send(sent)
    done = call(paths, "trace", sent.id)
    outbox = HostPlaces(paths).outbox("h2")
    assert done.out.endswith(f" by {LEAD}; on its way to another host in {outbox}\n")


def test_mail_taken_while_it_is_listed_appears_once(paths: TeamPaths) -> None:
    """Until its reader is done, the message is in both places, and is listed once."""
    enrol(paths, bob=Status.WORKING)
    sent, other = put(paths, "in hand"), Message(sender=LEAD, to="bob", content="read")
    record = Delivered(messages=(sent, other), time=2000.0, taken=1999.0)
    Transcript(paths.transcript("bob")).append(record)
    found = json.loads(call(paths, "trace", "--json").out)["messages"]
    assert [(one["content"], one["state"]) for one in found] == [
        ("in hand", "waits"),
        ("read", "delivered"),
    ]


def add(paths: TeamPaths, name: str, **facts: Any) -> None:
    given: dict[str, Any] = {"role": "coder", "status": Status.IDLE, **facts}
    Roster(paths).update(lambda team: team.with_new(name, **given))


def shown(paths: TeamPaths, name: str) -> list[str]:
    found = call(paths, "show", name)
    assert (found.status, found.err) == (0, "")
    return found.out.splitlines()


def labels(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if not line.startswith(" ")]


def test_a_member_without_a_process_has_few_lines(paths: TeamPaths) -> None:
    """A line without content would look like a fact."""
    add(paths, "ada")
    assert labels(shown(paths, "ada")) == ["name", "state", "used", "mail", "effort", "more"]


def test_a_running_member_shows_its_process(paths: TeamPaths) -> None:
    own = Identity.own()
    add(paths, "ada", pid=own.pid, started=own.started, since=1.0)
    (process,) = [line for line in shown(paths, "ada") if line.startswith("process")]
    assert f"pid {own.pid}, since " in process


def test_its_own_settings_are_shown(paths: TeamPaths) -> None:
    add(paths, "ada", model="claude-7", plan=True, worktree=True, sandbox="none")
    lines = [line.split(maxsplit=1) for line in shown(paths, "ada")]
    found = {label: text for label, text in lines if label in ("model", "plan", "copy", "sandbox")}
    assert found == {
        "model": "claude-7",
        "plan": "it acts only once a plan of its own is approved",
        "copy": str(paths.copy("ada")),
        "sandbox": "none",
    }


def test_only_its_own_open_tasks_are_shown(paths: TeamPaths) -> None:
    add(paths, "ada")
    add(paths, "bob")
    board = Board(paths, MailRouter(paths, durable=False, max_bytes=1000), LEAD, durable=False)
    board.add("Write it", owner="ada")
    board.add("Test it", owner="bob")
    tasks = [line.split(maxsplit=1)[1] for line in shown(paths, "ada") if line.startswith("task")]
    assert tasks == ["1 [pending] Write it"]


def test_rejected_lines_are_counted_with_the_path_of_their_file(paths: TeamPaths) -> None:
    add(paths, "ada")
    paths.inbox("ada").write_bytes(b"what is this\n")
    Mailbox(paths, "ada", durable=False).take()
    kept = paths.rejected("ada")
    assert f"mail       0 wait; 1 lines were not mail: {kept}" in shown(paths, "ada")


def test_the_lines_of_its_last_text_are_aligned(paths: TeamPaths) -> None:
    add(paths, "ada")
    transcript = Transcript(paths.transcript("ada"), durable=False)
    for text in ("Begun.", "Done:\n- this\n- that"):
        transcript.append(Replied(content=[{"type": "text", "text": text}]))
    lines = shown(paths, "ada")
    at = next(number for number, line in enumerate(lines) if line.startswith("said"))
    assert [line[11:] for line in lines[at : at + 3]] == ["Done:", "- this", "- that"]
    assert [line[:11].strip() for line in lines[at : at + 3]] == ["said", "", ""]


def test_its_json_says_whether_its_process_is_alive(paths: TeamPaths) -> None:
    own = Identity.own()
    add(paths, "ada", pid=own.pid, started=own.started)
    add(paths, "bob", pid=own.pid, started=own.started + 1)  # as if the pid was reused
    found = [json.loads(call(paths, "show", one, "--json").out) for one in ("ada", "bob")]
    assert [one["member"]["alive"] for one in found] == [True, False]
