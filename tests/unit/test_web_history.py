"""The states of members over time and the use of tokens, from the events in the team's files."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from teamctl.web.history import SLOTS, TeamHistory
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


def states(paths: TeamPaths, name: str = "ann", hours: float = 6) -> list[str]:
    return [state for _, state in TeamHistory(paths).lanes(hours)["lanes"][name]]


@pytest.fixture
def paths(paths: TeamPaths) -> TeamPaths:
    roster = {"team_name": "t", "members": [{"name": "ann", "role": "coder", "status": "idle"}]}
    paths.config.write_text(json.dumps(roster))
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
    asked = Approval(
        id="r1",
        type=Kind.PERMISSION,
        asker="ann",
        to="user",
        content="x",
        asked=NOW - 3 * HOUR,
        answered=NOW - HOUR,
        status=Verdict.APPROVED,
        sent=True,
    )
    paths.request("r1").write_bytes(asked.encode())
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


def test_many_short_turns_make_no_long_lane_and_hide_no_crash(paths: TeamPaths) -> None:
    for n in range(2000):
        began = NOW - 5 * HOUR + n * 5
        write(paths, "ann", *turn(began, began + 2))
    log(paths, NOW - 3 * HOUR + 1, LoggedEvent.CRASHED, "ann", reason="signal 9")
    found = states(paths)
    assert len(found) <= 2 * SLOTS
    assert "crashed" in found
    assert found[-1] == "idle"


def test_a_shorter_time_begins_with_the_state_at_its_beginning(paths: TeamPaths) -> None:
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
