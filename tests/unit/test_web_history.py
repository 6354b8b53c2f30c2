"""The states of members over time and the use of tokens, from the events in the team's files."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from teamctl.web.history import BUCKETS, MOST_FOUND, MOST_KEPT, SLOTS, TeamHistory
from teamd.approvals.approval import Approval, Kind, Verdict
from teamd.files.paths import TeamPaths
from teamd.journal import LoggedEvent
from teamd.messages import Message
from teamd.model_server import Usage
from teamd.transcript.records import LIMIT, Delivered, Replied, TurnEnded

NOW = time.time()
HOUR = 3600.0


def write(paths: TeamPaths, name: str, *records: Any) -> None:
    with paths.transcript(name).open("ab") as file:
        for record in records:
            file.write(record.encode())


def log(paths: TeamPaths, moment: float, event: LoggedEvent, name: str, **facts: Any) -> None:
    time_ = datetime.fromtimestamp(moment, UTC).isoformat()
    entry = {"time": time_, "level": "info", "event": event, "who": "teamd", "name": name, **facts}
    with paths.log("teamd").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def turn(began: float, ended: float, outcome: str = "end_turn") -> list[Any]:
    mail = Message(id=f"m{began}", sender="lead", to="ann", content="Go.", timestamp=began)
    usage = Usage(input_tokens=100, output_tokens=20)
    return [
        Delivered(time=began, messages=(mail,)),
        Replied(time=ended - 1, model="m", stop_reason="end_turn", usage=usage),
        TurnEnded(time=ended, outcome=outcome),
    ]


def request(paths: TeamPaths, kind: Kind, asker: str, asked: float, answered: float) -> None:
    made = Approval(
        id="r1",
        type=kind,
        asker=asker,
        to="user",
        content="x",
        asked=asked,
        answered=answered,
        status=Verdict.APPROVED,
        sent=True,
    )
    paths.request("r1").write_bytes(made.encode())


def set_status(paths: TeamPaths, status: str) -> None:
    member = {"name": "ann", "role": "coder", "status": status}
    paths.config.write_text(json.dumps({"team_name": "t", "members": [member]}))


def states(paths: TeamPaths, name: str = "ann", hours: float = 6) -> list[str]:
    return [state for _, state in TeamHistory(paths).lanes(hours)["lanes"][name]]


@pytest.fixture
def paths(paths: TeamPaths) -> TeamPaths:
    set_status(paths, "idle")
    return paths


def test_turns_are_work_and_the_time_between_them_is_idle(paths: TeamPaths) -> None:
    write(paths, "ann", *turn(NOW - 4 * HOUR, NOW - 3 * HOUR), *turn(NOW - 2 * HOUR, NOW - HOUR))
    found = TeamHistory(paths).lanes(6)
    assert found["lanes"]["ann"] == [
        (NOW - 4 * HOUR, "working"),
        (NOW - 3 * HOUR, "idle"),
        (NOW - 2 * HOUR, "working"),
        (NOW - HOUR, "idle"),
    ]
    assert sum(found["use"]["ann"]) == 240


def test_a_limit_pauses_and_a_crash_shows_until_the_restart(paths: TeamPaths) -> None:
    write(paths, "ann", *turn(NOW - 5 * HOUR, NOW - 4 * HOUR, LIMIT))
    log(paths, NOW - 3 * HOUR, LoggedEvent.RESUMED, "ann")
    log(paths, NOW - 2 * HOUR, LoggedEvent.CRASHED, "ann", reason="signal 9")
    log(paths, NOW - HOUR, LoggedEvent.PROCESS_BEGAN, "ann")
    assert states(paths) == ["working", "paused", "idle", "crashed", "idle"]
    (mark,) = TeamHistory(paths).lanes(6)["marks"]
    assert (mark["name"], mark["kind"], mark["text"]) == ("ann", "crashed", "signal 9")


def test_a_request_waits_past_the_end_of_its_turn_until_the_answer(paths: TeamPaths) -> None:
    request(paths, Kind.PERMISSION, "ann", NOW - 3 * HOUR, answered=NOW - HOUR)
    write(paths, "ann", *turn(NOW - 4 * HOUR, NOW - 3 * HOUR + 0.5, "paused"))
    found = TeamHistory(paths).lanes(6)["lanes"]["ann"]
    assert found == [
        (NOW - 4 * HOUR, "working"), (NOW - 3 * HOUR, "waiting"), (NOW - HOUR, "idle"),
    ]  # fmt: skip


def test_a_stop_of_teamd_ends_every_state(paths: TeamPaths) -> None:
    write(paths, "ann", *turn(NOW - 4 * HOUR, NOW - 3 * HOUR))
    log(paths, NOW - 2 * HOUR, LoggedEvent.TEAMD_STOPPED, "teamd")
    log(paths, NOW - HOUR, LoggedEvent.TEAMD_STARTED, "teamd")
    assert states(paths) == ["working", "idle", "off", "idle"]


def test_the_asker_of_a_shutdown_works_on_after_the_answer(paths: TeamPaths) -> None:
    request(paths, Kind.SHUTDOWN, "ann", NOW - 3 * HOUR, answered=NOW - 2 * HOUR)
    write(paths, "ann", *turn(NOW - 4 * HOUR, NOW - HOUR))
    assert states(paths) == ["working", "idle"]
    assert states(paths, hours=3.5)[:1] == ["working"]
    assert TeamHistory(paths).lanes(6)["lanes"]["ann"][1] == (NOW - HOUR, "idle")


@pytest.mark.parametrize(
    ("event", "before"),
    [
        (LoggedEvent.SHUTTING_DOWN, "shutdown"),
        (LoggedEvent.FAILED, "failed"),
        (LoggedEvent.CRASHED, "crashed"),
    ],
)
def test_a_member_that_was_shut_down_or_failed_stays_so_after_a_start_of_teamd(
    paths: TeamPaths, event: LoggedEvent, before: str
) -> None:
    log(paths, NOW - 4 * HOUR, event, "ann")
    log(paths, NOW - 3 * HOUR, LoggedEvent.TEAMD_STOPPED, "teamd")
    log(paths, NOW - 2 * HOUR, LoggedEvent.TEAMD_STARTED, "teamd")
    after = "idle" if before == "crashed" else before
    assert states(paths) == [before, "off", after]


def test_a_request_that_is_answered_while_teamd_is_off_no_longer_waits(paths: TeamPaths) -> None:
    request(paths, Kind.PERMISSION, "ann", NOW - 4 * HOUR, answered=NOW - 2.5 * HOUR)
    log(paths, NOW - 3 * HOUR, LoggedEvent.TEAMD_STOPPED, "teamd")
    assert states(paths) == ["waiting", "off"]
    log(paths, NOW - 2 * HOUR, LoggedEvent.TEAMD_STARTED, "teamd")
    assert states(paths) == ["waiting", "off", "idle"]
    request(paths, Kind.PERMISSION, "ann", NOW - 4 * HOUR, answered=NOW - HOUR)
    assert states(paths) == ["waiting", "off", "waiting", "idle"]


def test_work_ends_when_a_killed_teamd_is_started_again(paths: TeamPaths) -> None:
    """A killed teamd logs no stop."""
    write(paths, "ann", *turn(NOW - 4 * HOUR, NOW - 3 * HOUR)[:2])
    log(paths, NOW - HOUR, LoggedEvent.TEAMD_STARTED, "teamd")
    assert states(paths) == ["working", "idle"]


def test_a_change_of_the_roster_is_a_state_unless_a_request_waits(paths: TeamPaths) -> None:
    history = TeamHistory(paths)
    history.lanes(6)
    set_status(paths, "shutdown")
    assert [state for _, state in history.lanes(6)["lanes"]["ann"]] == ["shutdown"]
    set_status(paths, "idle")
    request(paths, Kind.PLAN, "ann", time.time(), answered=time.time() + HOUR)
    set_status(paths, "paused")
    assert "paused" not in [state for _, state in history.lanes(6)["lanes"]["ann"]]


def test_the_events_and_the_hours_are_bounded(paths: TeamPaths) -> None:
    """Only the newest events are kept, and no event is older than a day."""
    usage = Usage(input_tokens=1)
    reply = Replied(time=NOW - 20 * HOUR, model="m", stop_reason="end_turn", usage=usage)
    old = Replied(time=NOW - 25 * HOUR, model="m", stop_reason="end_turn", usage=usage)
    write(paths, "ann", old, TurnEnded(time=NOW - 24.5 * HOUR, outcome="end_turn"), reply)
    history = TeamHistory(paths)
    assert {one["kind"] for one in history.find("", "", [])["events"]} == {"replied", "turn_began"}
    with paths.transcript("ann").open("ab") as file:
        file.write(reply.encode() * (MOST_KEPT + 5))
    found = history.find("", "", [])
    assert (found["kept"], len(found["events"])) == (MOST_KEPT, MOST_FOUND)
    for hours, shown in ((1000, 24), (0, 0.1)):
        lanes = history.lanes(hours)
        assert lanes["until"] - lanes["since"] == pytest.approx(shown * HOUR)
    (tokens,) = history.lanes(24)["use"].values()
    assert (len(tokens), sum(tokens)) == (BUCKETS, MOST_KEPT)


def test_many_short_turns_do_not_make_a_long_lane_or_hide_a_crash(paths: TeamPaths) -> None:
    for n in range(2000):
        began = NOW - 5 * HOUR + n * 5
        write(paths, "ann", *turn(began, began + 2))
    log(paths, NOW - 3 * HOUR + 1, LoggedEvent.CRASHED, "ann", reason="signal 9")
    found = states(paths)
    assert len(found) <= 2 * SLOTS
    assert "crashed" in found
    assert found[-1] == "idle"


def test_a_shorter_period_begins_with_the_state_at_its_beginning(paths: TeamPaths) -> None:
    write(paths, "ann", *turn(NOW - 4 * HOUR, NOW - 10))
    found = TeamHistory(paths).lanes(1)
    assert found["lanes"]["ann"][0] == (found["since"], "working")


def test_events_are_found_by_words_member_and_kind(paths: TeamPaths) -> None:
    write(paths, "ann", *turn(NOW - HOUR, NOW - 10))
    history = TeamHistory(paths)
    every = history.find("", "", [])["events"]
    assert [one["time"] for one in every] == sorted((one["time"] for one in every), reverse=True)
    assert {one["kind"] for one in history.find("", "ann", ["replied"])["events"]} == {"replied"}
    assert history.find("nothing of the kind", "", [])["events"] == []
    wrote = history.find("SENT lead", "", [])["events"]
    assert [(one["kind"], one["name"]) for one in wrote] == [("mail_sent", "lead")]


def test_later_events_continue_the_lanes(paths: TeamPaths) -> None:
    history = TeamHistory(paths)
    assert history.lanes(6)["lanes"] == {}
    write(paths, "ann", *turn(NOW - HOUR, NOW - 10))
    assert [state for _, state in history.lanes(6)["lanes"]["ann"]] == ["working", "idle"]
