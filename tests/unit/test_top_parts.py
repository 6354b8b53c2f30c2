"""The parts of `teamctl top` without a screen: columns, the watcher, and tabs with their cost."""

from __future__ import annotations

import json
import random
import time
from itertools import pairwise
from typing import Any

import pytest

from teamctl.top import drawing
from teamctl.top.app import PAUSE_SECONDS
from teamctl.top.sources import TABS, Tab, log_tab, mail_tab, tasks_tab, transcript_tab
from teamctl.top.team_tabs import Listing
from teamctl.top.widgets import MOST
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, Message
from teamd.overview.overview import Overview, OverviewReader
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.screen import Shown, add, ask, shown

_REPLY = '{"record": "reply", "time": 1.0, "content": [{"type": "text", "text": "%s"}]}\n'


def texts(source: Tab) -> list[str]:
    found = source.read()
    lines = found.table.lines(100)[1:] if isinstance(found, Listing) else [r.text for r in found]
    return [line.plain.rstrip() for line in lines]


@pytest.mark.parametrize("width", range(24, 200, 11))
def test_lines_fit_the_screen_and_keep_name_and_status(paths: TeamPaths, width: int) -> None:
    add(paths, "a-rather-long-name-for-somebody", "bob", role="a role of many words", turns=987)
    ask(paths, "bob", "make " + "x" * 300)
    lines = drawing.first_screen(OverviewReader(paths).read(), width)
    assert max(line.cell_len for line in lines) <= width
    title, waiting, asked, tabs, header, *rows = (line.plain for line in lines)
    assert title.startswith("project")
    assert waiting == "1 waits for you"
    assert asked.startswith("bob ")
    assert tabs.startswith("[Team]")
    assert header.split()[0] == "NAME"
    assert "STATUS" in header
    assert [row.split()[0][:4] for row in rows] == ["a-ra", "bob"]
    assert ("TURNS" in header) == ("987" in rows[0])


@pytest.mark.slow
def test_files_that_change_all_the_time_are_read_at_most_four_times_a_second(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[float] = []
    read = OverviewReader.read

    def timed(self: OverviewReader, *untrusted: Any) -> Overview:
        moments.append(time.monotonic())
        return read(self, *untrusted)

    def busy() -> bool:
        (paths.root / "file").write_text(str(time.monotonic()))
        return len(moments) > 4

    with shown(paths) as screen:
        monkeypatch.setattr(OverviewReader, "read", timed)
        screen.until(busy, what="some looks")
    assert min(later - sooner for sooner, later in pairwise(moments)) >= PAUSE_SECONDS


def test_a_transcript_shows_new_records_and_the_reply_in_progress(paths: TeamPaths) -> None:
    tab = transcript_tab(paths, "alice")
    assert texts(tab) == []
    path = paths.transcript("alice")
    path.write_text(_REPLY % "Hello")
    assert any("Hello" in line for line in texts(tab))
    paths.partial("alice").write_text("attempt\nand so")
    assert texts(tab)[-1] == "  and so"
    paths.partial("alice").write_text("attempt\n\x0eHm\x0fand so")
    assert texts(tab)[-2:] == ["  thinking: Hm", "  and so"]
    paths.partial("alice").unlink()
    with path.open("a") as file:
        file.write(_REPLY % "Bye")
    assert "Bye" in texts(tab)[-1]


def test_a_log_keeps_only_its_last_lines(paths: TeamPaths) -> None:
    entry = {"time": "2026-01-01T00:00:00+00:00", "level": "info", "event": "turn"}
    with paths.log("alice").open("w") as file:
        for number in range(3 * MOST):
            file.write(json.dumps({**entry, "number": number}) + "\n")
    tab = log_tab(paths, "alice")
    assert len(texts(tab)) == MOST
    assert f"number={3 * MOST - 1}" in texts(tab)[-1]
    with paths.log("alice").open("a") as file:
        file.write("what is \x1b[2J no entry\n")
    assert texts(tab)[-1] == "what is \\x1b[2J no entry"
    assert len(texts(tab)) == MOST


def test_waiting_mail_is_shown_and_not_taken(paths: TeamPaths) -> None:
    add(paths, "alice")
    Mailbox(paths, "alice").put(Message(sender=LEAD, to="alice", content="do it"))
    with paths.inbox("alice").open("ab") as file:
        file.write(b"torn {")
    before = paths.inbox("alice").read_bytes()
    head, body = texts(mail_tab(paths, "alice"))
    assert "✉ lead → alice waits" in head
    assert body == "  do it"
    assert paths.inbox("alice").read_bytes() == before


def test_the_tasks_of_a_teammate_come_first(paths: TeamPaths) -> None:
    add(paths, "alice")
    assert texts(tasks_tab(paths, "alice")) == []
    for number, owner in (("1", ""), ("2", "alice"), ("3", "bob"), ("4", "")):
        task = {"subject": f"for {owner or 'anybody'}", "owner": owner}
        task["status"] = "deleted" if number == "4" else "pending"
        paths.task(number).write_text(json.dumps(task))
    assert [line.split()[-1] for line in texts(tasks_tab(paths, "alice"))] == ["alice", "anybody"]


def test_a_transcript_of_100_megabytes_opens_within_a_second(paths: TeamPaths) -> None:
    """Measured in CPU time, since the machine may be busy."""
    line = (_REPLY % ("x" * 10_000)).encode()
    with paths.transcript("alice").open("wb") as file:
        for _ in range(100):
            file.write(line * 100)
    began = time.process_time()
    assert "x" in texts(TABS["Transcript"](paths, "alice"))[-1]
    assert time.process_time() - began < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [20, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_the_screen_never_contradicts_the_roster(paths: TeamPaths, changes: int) -> None:
    """After each change the screen shows the facts of `team --json`."""
    chance = random.Random(changes)
    names = ["ann", "bob", "cid", "dan"]
    add(paths, *names)

    with shown(paths, size=(120, 24)) as screen:
        for _ in range(changes):
            name, status = chance.choice(names), chance.choice(list(Status))
            add(paths, name, status=str(status), turns=chance.randrange(900))
            screen.until(lambda: rows(screen) == told(paths), what="the screen agrees")


def rows(screen: Shown) -> set[tuple[str, str, str]]:
    header, *lines = screen.lines[3:]
    at = header.index("TURNS")
    words = [(line.split(), line[at : at + 5].strip()) for line in lines[:4]]
    return {(found[0], found[2], turns) for found, turns in words}


def told(paths: TeamPaths) -> set[tuple[str, str, str]]:
    members = OverviewReader(paths).read().to_json()["members"]
    assert len(members) == len(Roster(paths).read().members)
    return {(one["name"], one["state"], str(one["turns"])) for one in members}


def test_waiting_mail_is_shown_in_the_order_of_its_arrival(paths: TeamPaths) -> None:
    """Its reader has taken the first message, and has not finished with it."""
    mailbox = Mailbox(paths, "alice", durable=False)
    mailbox.put(Message(sender=LEAD, to="alice", content="first"))
    mailbox.take()
    mailbox.put(Message(sender=LEAD, to="alice", content="second"))
    bodies = [text.strip() for text in texts(mail_tab(paths, "alice"))[1::2]]
    assert bodies == ["first", "second"]
