"""`transcript --follow` and `team --watch` show new records and changes until Ctrl-C."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest

from teamctl.commands.team import changes
from teamctl.transcripts import Retries
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.overview.overview import Overview, OverviewReader
from teamd.process_id import Identity
from teamd.team.activity import MODEL, Activity, Doing, Retry, write_activity
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied
from tests.unit.life import Stream, call, enrol


class Watching(Stream):
    """Standard output that runs the next action once a word is printed."""

    def __init__(self, **happening: Callable[[], object]) -> None:
        super().__init__()
        self._happening = list(happening.items())

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._happening and self._happening[0][0] in text:
            self._happening.pop(0)[1]()
        return written


def press_ctrl_c() -> NoReturn:
    raise KeyboardInterrupt


def say(paths: TeamPaths, name: str, text: str, at: float) -> None:
    record = Replied(content=[{"type": "text", "text": text}], time=at)
    Transcript(paths.transcript(name), durable=False).append(record)


@pytest.fixture
def two(paths: TeamPaths) -> TeamPaths:
    """A team of two; one has a conversation."""
    enrol(paths, ada=Status.IDLE, bob=Status.IDLE)
    say(paths, "ada", "one", 1.0)
    return paths


def test_later_records_are_printed_one_per_line_including_those_of_new_members(
    two: TeamPaths,
) -> None:
    def join() -> None:
        enrol(two, cyd=Status.IDLE)
        say(two, "cyd", "two", 2.0)

    three = partial(say, two, "ada", "three", 3.0)
    out = Watching(one=join, two=three, three=press_ctrl_c)
    done = call(two, "transcript", "--all", "--follow", "--json", out=out)
    found = [json.loads(line) for line in done.out.splitlines()]
    told = [(one["name"], one["record"], one["content"][0]["text"]) for one in found]
    assert told == [("ada", "reply", "one"), ("cyd", "reply", "two"), ("ada", "reply", "three")]
    assert done.status == 130


def test_a_later_retry_and_activity_are_shown_as_they_come(two: TeamPaths) -> None:
    """A failed model call is not part of the conversation, and would stay unseen."""
    facts = {"attempt": 2, "attempts": 9, "reason": "the server is busy", "seconds": 4}

    def fail() -> None:
        with closing(Journal(two.log("bob"), "bob")) as journal:
            journal.note("model call failed, trying again", **facts)

    two_more = partial(say, two, "ada", "two", 2.0)
    out = Watching(one=fail, retrying=two_more, two=press_ctrl_c)
    done = call(two, "transcript", "ada", "bob", "--follow", out=out)
    assert done.status == 130
    *_, retry, _, last = [line.split(maxsplit=1)[-1].strip() for line in done.out.splitlines()]
    assert (retry, last) == ("bob is retrying 2/9: the server is busy, next in 4 s", "two")


def test_only_a_failed_model_call_is_a_retry(paths: TeamPaths) -> None:
    """A tool may print the same words."""
    tried = Retries(paths.log("ada"))
    with closing(Journal(paths.log("ada"), "ada")) as journal:
        journal.note("tool ended", said="model call failed, trying again")
        journal.note("model call failed, trying again", reason="busy", seconds=1)
    assert [what for _, what in tried.more()] == ["retrying: busy, next in 1 s"]
    assert list(tried.more()) == []


def test_a_member_that_leaves_the_team_is_reported_in_a_line(paths: TeamPaths) -> None:
    enrol(paths, ada=Status.IDLE, bob=Status.IDLE)
    before = OverviewReader(paths).read()
    Roster(paths).update(lambda team: team.without("ada"))
    (line,) = changes(before, OverviewReader(paths).read())
    assert line.split(maxsplit=1)[1] == "ada left the team"


def test_a_retry_is_reported_once_while_its_time_counts_down(paths: TeamPaths) -> None:
    enrol(paths, ada=Status.WORKING)
    own = Identity.own()
    (member,) = Roster(paths).read().members
    member = replace(member, pid=own.pid, started=own.started)
    Roster(paths).update(lambda team: team.with_member(member))

    def look(attempt: int, begins: float) -> Overview:
        retry = Retry(attempt=attempt, attempts=9, cause="busy", next=begins, since=begins)
        doing = Doing(kind=MODEL, what="m")
        activity = Activity(process=own, since=1.0, doing=doing, retry=retry)
        write_activity(paths.activity("ada"), activity)
        return OverviewReader(paths).read()

    now = time.time()
    first, later, second = look(2, now + 90), look(2, now + 30), look(3, now + 90)
    assert list(changes(first, later)) == []
    (line,) = changes(later, second)
    assert "ada working retrying 3/9: busy" in line
