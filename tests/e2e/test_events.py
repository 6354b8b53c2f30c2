"""`teamctl events`: everything that happens in a team, read from its files, for scripts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import click
import pytest

from teamctl.commands.events import render_event
from teamctl.commands.help import read_topic
from teamctl.events import Event, EventKind
from teamd.journal import Journal, LoggedEvent
from teamd.mail.mailbox import Mailbox
from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until

ALWAYS: Final = {"time", "time_unix", "kind", "name"}


def documented() -> set[str]:
    """Return the kinds that the topic lists."""
    rows = re.findall(
        r"^\| (`[a-z_`, ]+) \|", read_topic("files").partition("## Events")[2], re.MULTILINE
    )
    return {kind for row in rows for kind in re.findall(r"\w+", row)}


def test_new_events_appear_below_old_ones() -> None:
    """Neither the longest kind nor most names shift the columns."""
    names = ("lead", "teamd", "somebody")
    for kind in documented():
        for name in names:
            line = click.unstyle(render_event(Event(0.0, EventKind(kind), name, {"a": 1})))
            assert (line.rindex(f" {name} "), line.index("a=1")) == (43, 53), line


def begin(project: Project, out: Path, *options: str) -> subprocess.Popen[str]:
    with out.open("w") as file:
        return project.begin("teamctl", "events", "-f", "--json", *options, stdout=file)


def seen(out: Path) -> list[dict[str, Any]]:
    *lines, _ = out.read_text().split("\n") if out.exists() else [""]
    return [json.loads(line) for line in lines]


def kinds(events: list[dict[str, Any]], name: str) -> list[str]:
    return [event["kind"] for event in events if event["name"] == name]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "events"


def in_order(wanted: list[str], found: list[str]) -> bool:
    rest = iter(found)
    return all(kind in rest for kind in wanted)


def test_the_history_of_a_task_is_shown_both_live_and_afterwards(
    project: Project, out: Path
) -> None:
    project.start()
    begin(project, out, "--since", "1h")
    wait_until(lambda: kinds(seen(out), "teamd") == ["teamd_started"], what="it follows")
    project.stage.play(
        "ann", use(("bash", {"command": "exit 3"})),
        use(("task_create", {"subject": "Test it"})),
        use(("send_message", {"to": "lead", "content": "Done."})), say("."),
    )  # fmt: skip
    project.do("teamctl", "spawn", "ann", "coder", "Build it.", "--wait")
    inbox = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    wait_until(lambda: "mail_delivered" in kinds(seen(out), "user"), what="it is told")
    wait_until(
        lambda: [e["status"] for e in seen(out) if e["kind"] == "state"][-1:] == ["idle"],
        what="she idles",
    )
    live = seen(out)
    own = kinds(live, "ann")
    assert "spawned" in own  # teamd logs it while she starts
    assert in_order(["mail_delivered", "replied", "tool_began", "tool_ended"], own)
    assert in_order(["tool_ended", "mail_sent", "turn_ended"], own)
    assert own.count("turn_began") == own.count("turn_ended") == 1
    (bash,) = [e for e in live if e["kind"] == "tool_ended" and e["tool"] == "bash"]
    assert bash.keys() == ALWAYS | {"id", "tool", "seconds", "failed"}
    assert bash["seconds"] is not None
    (task,) = [e for e in live if e["kind"] == "task"]
    assert (task["subject"], task["status"], task["name"]) == ("Test it", "pending", "ann")
    mail = [e for e in live if e.get("id") == inbox[0]["id"]]
    assert [e["kind"] for e in mail] == ["mail_sent", "mail_taken", "mail_delivered"]
    assert {e["kind"] for e in live} <= documented()
    assert "teamd" not in {e.get("to") for e in live}, "what processes report is no mail"
    later = json.loads(project.do("teamctl", "events", "--json"))["events"]
    assert [one for one in live if one["kind"] != "state" and one not in later] == []


def test_a_crash_and_its_consequences_are_reported(project: Project, out: Path) -> None:
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Hello.", "--wait")
    pid = project.wait_for_process("ann")
    os.kill(pid, signal.SIGKILL)
    project.wait_for_process("ann")
    wait_until(lambda: len(project.log("ann", "begins")) >= 2, what="it begins again")
    later = json.loads(project.do("teamctl", "events", "--json"))["events"]
    assert in_order(["process_began", "crashed", "restarted"], kinds(later, "ann"))
    assert "teamd_started" in kinds(later, "teamd")


def test_watching_events_does_not_change_an_inbox_and_reports_mail_once(
    project: Project, out: Path
) -> None:
    """Including mail that its reader holds, which is delivered again later."""
    project.enlist("ann")
    project.do("teamctl", "send", "ann", "One.", "--id", "1")
    follower = begin(project, out, "--since", "1h")
    wait_until(lambda: kinds(seen(out), "lead") == ["mail_sent"], what="the first")
    assert Mailbox(project.paths, "ann").take().messages
    before = project.paths.taken("ann").read_bytes()
    project.do("teamctl", "send", "ann", "Two.", "--id", "2")
    wait_until(lambda: len(seen(out)) >= 2, what="the second")
    assert project.paths.taken("ann").read_bytes() == before
    assert project.paths.inbox("ann").read_bytes().count(b"\n") == 1
    follower.send_signal(signal.SIGINT)
    assert follower.wait(20) == 130
    assert [(e["kind"], e["id"]) for e in seen(out)] == [("mail_sent", "1"), ("mail_sent", "2")]
    (mail, *_) = seen(out)
    assert mail.keys() == ALWAYS | {"id", "from", "to", "type", "summary"}


def test_the_default_period_is_the_last_hour(project: Project) -> None:
    project.enlist("ann")
    line = {"time": "2020-01-01T11:00:00.000+00:00", "event": "begins", "who": "ann", "pid": 7}
    with project.paths.log("ann").open("a") as log:
        log.write(f"{json.dumps(line)}\n")
    journal = Journal(project.paths.log("ann"), "ann")
    journal.warn(LoggedEvent.RETRY, reason="no route", seconds=3.0)
    journal.close()
    (event,) = json.loads(project.do("teamctl", "events", "--json"))["events"]
    assert event == {
        "time": event["time"], "time_unix": event["time_unix"], "kind": "retry", "name": "ann",
        "reason": "no route", "seconds": 3.0,
    }  # fmt: skip
    assert abs(event["time_unix"] - time.time()) < 60
    shown = project.do("teamctl", "events", "--since", "2019-12-31")
    assert re.search(r"^2020-01-0[12] \S+ process_began +ann {6}pid=7$", shown, re.MULTILINE)
    assert re.search(r' retry +ann {6}reason="no route" seconds=3.0$', shown, re.MULTILINE)


def test_an_invalid_since_is_refused(project: Project) -> None:
    project.enlist("ann")
    refused = project.run("teamctl", "events", "--since", "soon")
    assert refused.status == 2
    assert "--since 'soon' is no time; give 10m, 2h, 3d" in refused.stderr
