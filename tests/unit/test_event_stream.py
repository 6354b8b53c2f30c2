"""`teamctl events` finds each event in a team's files once, and none before the start."""

from __future__ import annotations

import json

from teamctl.events import Event, EventKind, EventStream, MailEvents
from teamd.files.paths import TeamPaths
from teamd.merges.queue import Entries, Entry, MergeState
from teamd.messages import LEAD
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import MailHeld, Replied, TurnEnded
from tests.unit.life import call, enrol


def reply(paths: TeamPaths, name: str, at: float) -> None:
    said = Replied(content=[{"type": "text", "text": "x"}], time=at)
    Transcript(paths.transcript(name), durable=False).append(said)


def look(stream: EventStream) -> list[tuple[str, str, float]]:
    return [(one.kind, one.name, one.time) for one in stream.look()]


def test_a_conversation_is_read_from_where_the_last_read_stopped(paths: TeamPaths) -> None:
    reply(paths, "ada", 5.0)
    stream = EventStream(paths, 4.0)
    assert look(stream) == [("turn_began", "ada", 5.0), ("replied", "ada", 5.0)]
    reply(paths, "ada", 6.0)
    assert look(stream) == [("replied", "ada", 6.0)], "the same turn"
    assert look(stream) == []


def test_a_file_created_between_two_reads_is_read_from_its_start(paths: TeamPaths) -> None:
    """A clock may be set back, so the start time filters only the events of the first look."""
    stream = EventStream(paths, 4.0)
    assert look(stream) == []
    reply(paths, "bob", 1.0)
    ended = TurnEnded(outcome="end_turn", time=2.0)
    Transcript(paths.transcript("bob"), durable=False).append(ended)
    kinds = [("turn_began", 1.0), ("replied", 1.0), ("turn_ended", 2.0)]
    assert look(stream) == [(kind, "bob", moment) for kind, moment in kinds]


def test_mail_held_because_of_talk_is_an_event(paths: TeamPaths) -> None:
    held = MailHeld(senders=("bob", LEAD), time=5.0)
    Transcript(paths.transcript("ada"), durable=False).append(held)
    (found,) = EventStream(paths, 0.0).look()
    assert found.to_json() == {
        "time": 5.0, "kind": "mail_held", "name": "ada", "senders": ["bob", LEAD],
    }  # fmt: skip


def test_a_merge_is_reported_when_its_state_changes(paths: TeamPaths) -> None:
    def queue(*states: MergeState) -> None:
        entries = [
            Entry(id=str(number), teammate="ada", commit="c", state=state, when=5.0)
            for number, state in enumerate(states, 1)
        ]
        paths.queue.write_bytes(Entries(tuple(entries), len(states)).encode())

    stream = EventStream(paths, 0.0)
    queue(MergeState.WAITING)
    (one,) = stream.look()
    assert (one.kind, one.name, one.facts["state"], one.time) == ("merge", "ada", "waiting", 5.0)
    queue(MergeState.MERGED, MergeState.WAITING)
    assert [(one.facts["id"], one.facts["state"]) for one in stream.look()] == [
        ("1", "merged"),
        ("2", "waiting"),
    ]


def test_the_oldest_mail_is_forgotten_first(paths: TeamPaths) -> None:
    """A repeated send is one event, unless very many messages arrived since."""
    events = MailEvents(paths)

    def told(number: int) -> bool:
        facts = {"id": number, "from": LEAD, "to": "ada"}
        return any(events.unless_told(Event(1.0, EventKind.MAIL_SENT, LEAD, facts)))

    assert all(map(told, range(100_000)))
    assert not told(0)
    assert told(100_000)
    assert not told(1)
    assert told(0)


def test_without_teamd_the_existing_events_are_shown(paths: TeamPaths) -> None:
    enrol(paths, ada=Status.IDLE)
    reply(paths, "ada", 5.0)
    done = call(paths, "events", "--since", "1969-12-30", "--json")
    kinds = [one["kind"] for one in json.loads(done.out)["events"]]
    assert (done.status, kinds) == (0, ["turn_began", "replied"])
