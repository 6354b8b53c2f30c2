"""`teamctl trace`: the sentence for each stage of a message, and the list of the latest."""

from __future__ import annotations

import json
import time

from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, Message
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered
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
    sent = Message(sender=LEAD, to="bob@default@h2", content="x")
    post.send(sent)
    done = call(paths, "trace", sent.id)
    outbox = HostPlaces(paths).outbox("h2")
    assert done.out.endswith(f" by {LEAD}; on its way to another host in {outbox}\n")


def test_mail_taken_during_the_look_is_listed_once(paths: TeamPaths) -> None:
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
