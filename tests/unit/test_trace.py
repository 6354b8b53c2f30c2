"""A message's way: at every point, its one current place."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.trace import DeliveryStage, trace
from teamd.messages import LEAD, USER, Message, moment_of, new_id
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered


def put(paths: TeamPaths, content: str = "x", to: str = "bob", **facts: str) -> Message:
    sent = Message(sender="lead", to=to, content=content, **facts)  # type: ignore[arg-type]
    Mailbox(paths, to, durable=False).put(sent)
    return sent


def deliver(paths: TeamPaths, *messages: Message, to: str = "bob") -> None:
    record = Delivered(messages=messages, time=1000.5, taken=999.5)
    Transcript(paths.transcript(to)).append(record)


def test_a_message_is_queued_then_taken_then_delivered(paths: TeamPaths) -> None:
    put(paths, "first")
    sent = put(paths)
    box = Mailbox(paths, "bob", durable=False)

    (way,) = trace(paths, sent.id)
    assert (way.sender, way.to, way.type) == ("lead", "bob", "message")
    assert way.sent == sent.timestamp
    assert (way.stage, way.position) == (DeliveryStage.QUEUED, 2)
    assert way.file == str(paths.inbox("bob"))

    before = time.time()
    batch = box.take()
    (way,) = trace(paths, sent.id)
    assert (way.stage, way.position, way.delivered) == (DeliveryStage.TAKEN, None, None)
    assert way.taken is not None
    assert before - 0.001 <= way.taken <= time.time()
    assert way.file == str(paths.taken("bob"))

    deliver(paths, *batch.messages)
    for step in (lambda: None, lambda: box.done(batch), lambda: put(paths, id=sent.id)):
        step()  # a repeated send does not change this either
        (way,) = trace(paths, sent.id)
        assert (way.stage, way.position) == (DeliveryStage.DELIVERED, None)
        assert (way.taken, way.delivered) == (999.5, 1000.5)


def test_a_place_in_the_queue_counts_only_untaken_mail(paths: TeamPaths) -> None:
    """A reader that was killed before it truncated has taken the lines above its marker."""
    put(paths, "first")
    old = put(paths, "second")
    whole = paths.inbox("bob").read_bytes()
    batch = Mailbox(paths, "bob", durable=False).take().id
    marker = json.dumps({"taken_as": batch}).encode() + b"\n"
    paths.inbox("bob").write_bytes(whole + marker + b"\n")
    new = put(paths, "third")
    again = put(paths, "third", id=new.id)
    assert [way.stage for way in trace(paths, old.id)] == [DeliveryStage.TAKEN]
    assert [(w.stage, w.position) for w in trace(paths, again.id)] == [(DeliveryStage.QUEUED, 1)]


def test_a_broadcast_is_traced_to_each_receiver(paths: TeamPaths) -> None:
    sent = put(paths, to="bob", type="broadcast")
    put(paths, to="ann", type="broadcast", id=sent.id)
    put(paths, to=LEAD, type="broadcast", id=sent.id)
    deliver(paths, sent, to="bob")
    deliver(paths, replace(sent, to=LEAD), to=USER)
    assert [(way.to, str(way.stage)) for way in trace(paths, sent.id)] == [
        ("ann", "queued"),
        ("bob", "delivered"),
        ("lead", "delivered"),
    ]


def test_a_rejected_message_is_found(paths: TeamPaths) -> None:
    sent = put(paths)
    paths.inbox("bob").rename(paths.rejected("bob"))
    paths.rejected("bob").write_bytes(b"\xff{\n" + paths.rejected("bob").read_bytes())
    (way,) = trace(paths, sent.id)
    assert (way.stage, way.file) == (DeliveryStage.REJECTED, str(paths.rejected("bob")))


def test_a_rejected_message_that_was_sent_again_is_found_in_its_new_place(paths: TeamPaths) -> None:
    """For example, a retry under the same id after the limit was raised."""
    sent = put(paths)
    paths.inbox("bob").rename(paths.rejected("bob"))
    put(paths, id=sent.id)
    (way,) = trace(paths, sent.id)
    assert (way.stage, way.position) == (DeliveryStage.QUEUED, 1)
    box = Mailbox(paths, "bob", durable=False)
    batch = box.take()
    assert [way.stage for way in trace(paths, sent.id)] == [DeliveryStage.TAKEN]
    deliver(paths, *batch.messages)
    box.done(batch)
    assert [way.stage for way in trace(paths, sent.id)] == [DeliveryStage.DELIVERED]


def test_foreign_lines_with_few_fields_are_accepted(paths: TeamPaths) -> None:
    """Invalid lines and lines without an id are skipped."""
    paths.inbox("bob").write_bytes(
        b'{"content": "no id"}\n[]\n{"id": 5, "content": "x"}\n{"id": "ci-77"}\n'
        b'{"id": "ci-77", "content": "x", "timestamp": "noon"}\n'
    )
    (way,) = trace(paths, "ci-77")
    assert (way.sender, way.type, way.sent, way.position) == ("unknown", "message", None, 5)
    with pytest.raises(TeamError, match="no message has the id"):
        trace(paths, new_id()[:6])


def test_the_supervisors_own_mail_is_not_shown(paths: TeamPaths) -> None:
    sent = put(paths, to="teamd")
    with pytest.raises(TeamError, match="no message has the id"):
        trace(paths, sent.id)


def test_a_unique_prefix_of_an_id_is_enough(paths: TeamPaths) -> None:
    for number in ("order-1", "order-12", "order-2", "ab"):
        put(paths, id=number)
    assert [way.id for way in trace(paths, "order-2")] == ["order-2"]
    assert [way.id for way in trace(paths, "order-12")] == ["order-12"]
    assert [way.id for way in trace(paths, "order-1")] == ["order-1"]
    put(paths, id="message-of-noon")
    assert [way.id for way in trace(paths, "mess")] == ["message-of-noon"]
    with pytest.raises(TeamError) as ambiguous:
        trace(paths, "orde")
    assert str(ambiguous.value) == (
        "3 ids begin with 'orde'; give more of one: order-1, order-12, order-2"
    )
    for more in range(20, 25):
        put(paths, id=f"order-{more}")
    with pytest.raises(TeamError, match=r"8 ids begin .* order-20, order-21, …"):
        trace(paths, "orde")


@pytest.mark.parametrize("wanted", ["", "mes", "nothing", "message-1"])
def test_an_invalid_id_is_answered_with_a_hint_to_valid_ones(paths: TeamPaths, wanted: str) -> None:
    """A prefix of fewer than four characters is more likely a typo than an id."""
    put(paths, id="message-of-noon")
    with pytest.raises(TeamError, match=f"no message has the id '{wanted}'; `teamctl send … --js"):
        trace(paths, wanted)


def test_an_id_contains_its_time_of_creation() -> None:
    before = time.time()
    made = moment_of(new_id())
    assert made is not None
    assert before - 0.001 <= made <= time.time()
    assert moment_of("order-66") is None
    assert moment_of("") is None
