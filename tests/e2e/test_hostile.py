"""A hostile day: closed descriptors, removed folders, a roster edited by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from teamd.process_id import Identity
from tests.e2e.harness import Project
from tests.forked.client import server as forks
from tests.strict.replies import say
from tests.waiting import wait_until

DAMAGED = '{"batch": "x\n{}\n'  # taken mail that is not readable


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["1>&-", "0<&- 1>&- 2>&-"])
def test_teamd_starts_regardless_of_which_descriptors_the_shell_has_closed(
    project: Project, closed: str
) -> None:
    """The readiness pipe must not get the descriptor number of standard output."""
    project.ask_no_service()
    started = project.run("bash", "-c", f"exec {closed}; teamd start", timeout_seconds=30)
    assert started.status == 0
    assert "teamd (pid" in project.do("teamd", "status")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["team", "send ann hi", "inbox", "doctor"])
def test_a_command_without_standard_output_does_its_work(project: Project, command: str) -> None:
    """After an error, a script would send the mail again."""
    project.enlist("ann")
    done = project.run("bash", "-c", f"teamctl {command} >&-")
    said = "" if command != "send ann hi" else "warning: no teamd runs, so the message waits; "
    assert (done.status, done.stderr.partition("`")[0]) == (0, said)


@pytest.mark.parametrize(
    ("command", "done"),
    [
        ("team", ""),
        ("send ann hi", "; the message is sent to ann all the same"),
        ("broadcast hi", "; the message is sent all the same"),
        ("spawn bob clerk Go.", "; bob (clerk) is at work all the same"),
        ("shutdown ann", "; the shutdown is done all the same"),
    ],
)
def test_a_full_output_is_reported_in_one_sentence_with_the_outcome(
    project: Project, command: str, done: str
) -> None:
    """Otherwise a script would repeat the command."""
    project.enlist("ann")
    if done and "message" not in done:
        project.start()
    path = f"{forks().commands}:{project.environment['PATH']}"
    ended = project.run("bash", "-c", f"teamctl {command} >/dev/full", env={"PATH": path})
    assert ended.status == 1
    assert ended.complaint == (
        f"teamctl: the output cannot be written: No space left on device{done}"
    )


def test_a_damaged_roster_is_set_aside_and_rewritten(project: Project) -> None:
    project.stage.play("ann", say("Noted."), say("It was blue."))
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Remember: blue.", "--wait")
    project.wait_for("ann", "idle")
    project.paths.config.write_text("{garbage")
    refused = project.run("teamctl", "team")
    assert refused.status == 1
    assert "config.json is damaged" in refused.complaint
    project.do("teamctl", "spawn", "bob", "tester", "Go.", "--wait")
    assert {m["name"] for m in json.loads(project.do("teamctl", "team", "--json"))["members"]} == {
        "ann",
        "bob",
    }
    assert "config.json was damaged" in project.mail("lead")
    assert [file.read_text() for file in project.paths.root.glob("config.damaged-*")] == [
        "{garbage"
    ]


@pytest.mark.parametrize("content", [b"\0\0\0", None])
def test_a_roster_damaged_while_teamd_was_down_is_rebuilt_from_the_conversations(
    project: Project, content: bytes | None
) -> None:
    role = "senior clerk.\nOf many words"
    project.stage.play("ann", say("Noted."), say("It was blue."))
    project.start()
    project.do("teamctl", "spawn", "ann", role, "Remember: blue.", "--wait")
    project.do("teamd", "stop")
    if content is None:
        project.paths.config.unlink()
        told = "config.json was gone: it was restored from the conversations."
    else:
        project.paths.config.write_bytes(content)
    project.start()
    assert project.log("teamd", "roster rebuilt")
    if content is not None:
        [kept] = project.paths.root.glob("config.damaged-*")
        told = f"it was restored from the conversations; the old file is kept as {kept}"
    assert told in project.mail("lead")
    member = project.wait_for("ann", "idle")
    assert member["role"] == role
    project.do("teamctl", "send", "ann", "Which colour was it?")
    wait_until(lambda: len(project.asked("ann")) == 2, what="ann answers")
    assert "Remember: blue." in str(project.asked("ann", least=1)[-1].body["messages"][0])


def test_a_newer_roster_is_refused_at_once_and_left_alone(project: Project) -> None:
    project.start()
    newer = json.dumps({"format": 99, "members": []})
    project.paths.config.write_text(newer)
    refused = project.run("teamctl", "spawn", "ann", "clerk", "Go.", timeout_seconds=20)
    assert refused.status == 1
    assert "has format 99" in refused.complaint
    assert project.paths.config.read_text() == newer
    assert not project.paths.inbox("ann").exists(), "a refused spawn leaves no prompt behind"


def test_a_team_ends_when_its_directory_is_removed(project: Project) -> None:
    """It would be unreachable, and a new team would take its place."""
    pid = project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    teammate = project.member("ann")["pid"]
    shutil.rmtree(project.paths.root, ignore_errors=True)
    wait_until(lambda: Identity.of(pid) is None, timeout_seconds=40, what="teamd ends")
    assert Identity.of(teammate) is None


def test_a_file_in_place_of_the_team_directory_is_reported(project: Project) -> None:
    Path(project.paths.root).write_text("")
    started = project.run("teamd", "start")
    assert started.status == 1
    assert "is not a folder; move it away" in started.complaint


def test_a_named_team_directory_is_created_with_its_parents(project: Project) -> None:
    project.environment["TEAMD_DIR"] = "deep/er/.team"
    project.do("teamd", "start")
    assert (project.folder / "deep/er/.team/config.json").is_file()
    project.do("teamd", "stop")


@pytest.mark.slow
def test_one_damaged_file_does_not_hide_any_teammate_and_is_reported(project: Project) -> None:
    """Its teammate is restarted again and again: the fault may pass, but must be reported."""
    project.start()
    for name in ("ann", "bob"):
        project.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
    project.do("teamd", "stop")
    project.paths.taken("ann").write_text(DAMAGED)
    project.paths.ledger.unlink()
    project.paths.ledger.mkdir()
    shown = project.do("teamctl", "team")
    assert "ann.taken.jsonl" in shown
    assert "no costs are known: " in shown
    members = json.loads(project.do("teamctl", "team", "--json"))["members"]
    assert [(m["name"], m["queued"], m["trouble"] is None) for m in members] == [
        ("ann", None, False),
        ("bob", 0, True),
    ]
    checked = project.run("teamctl", "doctor")
    assert checked.status == 1
    assert checked.stdout.count("FAIL") == 2
    project.paths.ledger.rmdir()
    project.paths.taken("ann").unlink()
    project.start()
    project.paths.taken("ann").write_text(DAMAGED)  # while it is at work
    project.do("teamctl", "send", "ann", "Look.")
    wait_until(lambda: "ann cannot go on" in project.mail("lead"), timeout_seconds=40)
    project.do("teamctl", "send", "bob", "Are you there?", "--wait")


def test_a_message_is_sent_even_if_it_is_unknown_whether_teamd_is_running(project: Project) -> None:
    """A failed check must not look like a failed send: the caller would send it once more."""
    project.enlist("ann")
    project.paths.supervisor.mkdir()
    assert project.do("teamctl", "send", "ann", "hi") == "sent to ann\n"
    assert project.do("teamctl", "broadcast", "hi") == "sent to ann\n"
    assert project.mail("ann").count("hi") == 2


def test_teamd_starts_with_damaged_files_and_reports_them(project: Project) -> None:
    """The disk has lost the beginning of the supervisor's own taken mail."""
    paths = project.paths
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    project.do("teamd", "stop")
    paths.taken("teamd").write_bytes(b"\0\n{}\n")
    paths.ledger.write_bytes(b"\0" * 100)
    paths.request("abcdef").write_text("{")
    checked = project.run("teamctl", "doctor")
    assert checked.status == 1
    assert checked.stdout.count(" is damaged") == 3
    assert "`teamd restart` sets it aside" in checked.stdout
    project.start()
    mail = project.do("teamctl", "inbox")
    for name, consequence in (
        ("teamd.taken.jsonl", "no one is waiting for the requests in it any longer"),
        ("ledger.jsonl", "usage was counted again from the conversations"),
        ("abcdef.json", "its teammate has to ask again"),
    ):
        assert f"{name} was damaged, and is kept as {name}.damaged-" in mail
        assert consequence in mail
    assert len(project.log("teamd", "put aside")) == 3
    project.do("teamctl", "send", "ann", "Are you there?", "--wait")
    project.wait_for("ann", "idle", turns=2)
    usage = json.loads(project.do("teamctl", "usage", "--json"))
    assert usage["total"]["calls"] == 2
    checked = project.run("teamctl", "doctor")
    assert checked.stdout.count("is a damaged file that was set aside") == 3
    assert "FAIL" not in checked.stdout
