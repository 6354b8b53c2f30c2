"""Unannounced endings: kills of stopped processes, and rosters edited by hand."""

from __future__ import annotations

import json
import os
import signal

import pytest

from teamd.process_id import Identity
from tests.children import child
from tests.e2e.harness import Project
from tests.process.test_stopping import COMMANDS
from tests.strict.replies import use
from tests.waiting import wait_until


def _edit(project: Project, members: list[dict[str, str]]) -> None:
    roster = json.loads(project.paths.config.read_bytes())
    kept = [m for m in roster["members"] if m["name"] != "ann"]
    project.paths.config.write_text(json.dumps({**roster, "members": kept + members}))


@pytest.mark.slow
def test_a_member_removed_from_the_roster_by_hand_loses_its_process(project: Project) -> None:
    """A member that was added by hand has no process before it is spawned."""
    project.start()
    for name in ("ann", "bob"):
        project.do("teamctl", "spawn", name, "coder", "Go.", "--wait")
        project.wait_for(name, "idle")
    ann, bob = (project.member(name)["pid"] for name in ("ann", "bob"))
    _edit(project, [{"name": "eve", "role": "tester", "status": "idle"}])
    project.do("teamctl", "send", "bob", "Anything wakes teamd.", "--wait")
    wait_until(lambda: Identity.of(ann) is None, timeout_seconds=40, what="ann has no process")
    assert [entry["name"] for entry in project.log("teamd", "no member any more")] == ["ann"]
    project.wait_for("bob", "idle", turns=2)
    names = [m["name"] for m in json.loads(project.paths.config.read_bytes())["members"]]
    assert names == ["bob", "eve"], "nobody has put ann back"
    assert project.member("bob")["pid"] == bob
    assert project.member("eve").get("pid") is None
    assert len(project.log("teamd", "forked")) == 2
    project.do("teamctl", "spawn", "ann", "coder", "Go on.", "--wait")


def test_a_removed_roster_is_written_again(project: Project) -> None:
    """The supervisor knows its running teammates; it kills none because of a missing file."""
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    pid = project.wait_for("ann", "idle", turns=1)["pid"]
    project.paths.config.unlink()
    project.do("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
    assert project.wait_for("ann", "idle", turns=1)["pid"] == pid


def test_stopped_teammates_do_not_outlive_their_supervisor(project: Project) -> None:
    """No start or stop follows: the kernel alone ends them and all their children."""
    ask = use(("bash", {"command": COMMANDS["frozen"].format(name="busy")}))
    project.stage.play("ann", ask)
    first = project.start()
    project.do("teamctl", "spawn", "bob", "coder", "Task of bob.", "--wait")
    project.do("teamctl", "spawn", "ann", "coder", "Task of ann.")
    wait_until(
        lambda: list(project.survivors().values()).count("sleep 1000") == 2, what="ann is busy"
    )
    for name in ("ann", "bob"):
        os.kill(project.member(name)["pid"], signal.SIGSTOP)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not project.survivors(), what="all have ended")


def test_a_key_command_does_not_outlive_supervisor_and_teammate(project: Project) -> None:
    """Both are killed while the command waits, for example for a passphrase; nothing adopts it."""
    project.write("team.toml", "[model]\nkey_command = \"sh -c 'sleep 1000; true'\"\n")
    first = project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    wait_until(lambda: "sleep 1000" in project.survivors().values(), what="it waits")
    os.kill(first, signal.SIGSTOP)
    os.kill(project.member("ann")["pid"], signal.SIGKILL)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not project.survivors(), what="all have ended")


def test_a_foreign_process_in_the_roster_or_pid_file_is_never_signalled(project: Project) -> None:
    """After a reboot or an edit, a pid and a start time may belong to any process."""
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.do("teamd", "stop")
    with child("import sys; sys.stdin.read()") as stranger:
        who = Identity.of(stranger.pid)
        assert who is not None
        there = {"pid": who.pid, "started": who.started}
        project.paths.supervisor.write_text(json.dumps(there), encoding="utf-8")
        assert project.run("teamd", "stop").status == 3
        roster = json.loads(project.paths.config.read_bytes())
        named = [{**member, **there} for member in roster["members"]]
        project.paths.config.write_text(json.dumps({**roster, "members": named}), encoding="utf-8")
        project.start()
        project.wait_for("ann", "idle")
        assert who.alive
