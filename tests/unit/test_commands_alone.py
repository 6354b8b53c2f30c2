"""Commands without a running teamd, without a team, without members or times."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
import pytest

from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.journal import Journal
from teamd.process_id import Identity
from teamd.settings.trust import TrustStore
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied
from tests.unit.life import TerminalStream, call, enrol


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into an empty folder."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def _served(paths: TeamPaths) -> Iterator[None]:
    """Hold the lock of a running teamd."""
    claim = pidfile.claim(paths)
    yield
    os.close(claim)


def test_watching_all_hosts_is_refused_with_the_right_command(paths: TeamPaths) -> None:
    done = call(paths, "team", "--watch", "--hosts")
    assert done.status == 2
    assert "--watch shows this host; `teamctl team --hosts` shows all of them" in done.err


def test_a_watch_without_a_terminal_is_refused_with_the_right_command(paths: TeamPaths) -> None:
    """A pipe would get the screen's control codes endlessly."""
    done = call(paths, "team", "--watch")
    assert (done.status, done.out) == (2, "")
    assert "--watch needs a terminal; `teamctl team --json` is for programs" in done.err


@pytest.mark.usefixtures("empty")
def test_in_a_project_without_teams_both_ways_to_create_one_are_shown() -> None:
    said = "no teams here; `teamd start` makes one, `teamctl create NAME` one by name\n"
    assert call(None, "teams").out == said
    assert json.loads(call(None, "teams", "--json").out) == {"teams": []}


def test_init_keeps_existing_settings(empty: Path) -> None:
    made = call(None, "init")
    assert made.status == 0
    assert "optional, and `teamd start` or `teamd reload` reads it" in made.out
    (empty / "team.toml").write_text("# mine\n")
    done = call(None, "init")
    file = empty / "team.toml"
    told = f"teamctl: {file} exists already; edit it, or move it away first\n"
    assert (done.status, done.err) == (1, told)
    assert file.read_text() == "# mine\n"


def test_the_postmans_log_is_shown_unless_a_teammate_has_its_name(paths: TeamPaths) -> None:
    HostPlaces(paths).create()
    for path, event in ((HostPlaces(paths).log, "carried"), (paths.log("postman"), "delivered")):
        with closing(Journal(path, "postman")) as journal:
            journal.note(event)
    assert call(paths, "logs", "Postman").out.endswith(" carried\n")
    enrol(paths, postman=Status.IDLE)
    assert call(paths, "logs", "Postman").out.endswith(" delivered\n")


@pytest.mark.parametrize("who", [{}, {"ada": Status.SHUTDOWN}])
def test_a_broadcast_without_receivers_is_an_error(
    paths: TeamPaths, who: dict[str, Status]
) -> None:
    enrol(paths, **who)
    done = call(paths, "broadcast", "Hello?")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("teamctl: there is nobody to send to; `teamctl ")


def test_a_task_without_times_is_shown_without_them(paths: TeamPaths) -> None:
    """Another program has created it; 1970 would be wrong."""
    (paths.tasks / "1.json").write_text(json.dumps({"id": "1", "subject": "Old"}))
    done = call(paths, "task", "show", "1")
    labels = [line.partition(":")[0] for line in done.out.splitlines()]
    assert labels == ["task 1 (pending)", "proof"]


def test_wait_prints_the_state_of_each_teammate_as_json(paths: TeamPaths) -> None:
    enrol(paths, ada=Status.IDLE, bob=Status.FAILED)
    done = call(paths, "wait", "bob", "ada", "--json")
    found = json.loads(done.out)["members"]
    assert [(one["name"], one["state"]) for one in found] == [("bob", "failed"), ("ada", "idle")]
    assert done.status == 1


@pytest.mark.usefixtures("_served")
def test_ps_does_not_mistake_a_reused_pid_for_a_stopped_teammate(paths: TeamPaths) -> None:
    """Its pid now belongs to this process, as the roster's start time shows."""
    own = Identity.own()
    before = {"role": "coder", "status": Status.IDLE, "pid": own.pid, "started": own.started - 1}
    Roster(paths).update(lambda team: team.with_new("ada", **before))
    (first, *_) = json.loads(call(paths, "ps", "--json").out)["processes"]
    assert (first["pid"], first["name"]) == (own.pid, "teamd")


@pytest.mark.usefixtures("_served")
def test_ps_draws_a_row_for_each_process(paths: TeamPaths) -> None:
    heading, first, *_ = call(paths, "ps").out.splitlines()
    assert heading.split() == ["PID", "NAME", "UP", "CPU", "MEM", "COMMAND"]
    pid, name, _, cpu, *_, command = first.split()
    assert (pid, name, cpu[-1], command) == (str(os.getpid()), "teamd", "s", "-")


def test_an_address_inside_a_longer_text_is_not_taken_for_a_host(paths: TeamPaths) -> None:
    enrol(paths, bob=Status.WORKING)
    assert call(paths, "interrupt", "bob", "Write to me@x.org, please.").err.count("teamctl: ") == 1
    assert call(paths, "interrupt", "bob", "eve@h1").err.count("teamctl: ") == 2


def test_trust_with_reload_confirms_nothing_without_a_running_teamd(paths: TeamPaths) -> None:
    paths.settings.write_text("[limits]\ncalls_per_wake = 99\n")
    assert call(paths, "trust", "--reload").status == 3
    assert TrustStore().find(paths.settings) is None
    assert "counts from the next `teamd start` on" in call(paths, "trust").out
    assert TrustStore().find(paths.settings) is not None


def test_with_json_a_warning_is_json(paths: TeamPaths) -> None:
    enrol(paths, bob=Status.IDLE)
    done = call(paths, "send", "bob", "Go.", "--json")
    assert json.loads(done.out)["to"] == "bob"
    assert json.loads(done.err)["warning"].startswith("no teamd runs, so the message waits; ")


def test_a_lead_agent_is_completed_once(paths: TeamPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    enrol(paths, lead=Status.IDLE, leo=Status.IDLE)
    monkeypatch.setenv("TEAMD_DIR", str(paths.root))
    monkeypatch.setenv("_TEAMCTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "teamctl send le")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert call(None).out.split() == ["plain,lead", "plain,leo"]


def test_all_entries_of_one_teammate_are_shown_on_a_terminal(paths: TeamPaths) -> None:
    enrol(paths, alice=Status.IDLE, bob=Status.IDLE)
    for name in ("alice", "bob"):
        transcript = Transcript(paths.transcript(name), durable=False)
        for number in range(60):
            text = [{"type": "text", "text": f"{name} {number}."}]
            transcript.append(Replied(content=text, time=float(number)))
    last = call(paths, "transcript", "alice", out=TerminalStream()).out
    assert "alice 10." in last
    assert "alice 9." not in last
    done = call(paths, "transcript", "--all", "alice", out=TerminalStream())
    assert done.status == 0
    assert "alice 0." in done.out
    assert "bob" not in done.out


def test_a_task_for_nobody_names_the_command_that_gives_it(paths: TeamPaths) -> None:
    enrol(paths, ann=Status.IDLE)
    said = "task 1 is made; `teamctl task claim 1 --for NAME` gives it to a teammate\n"
    assert call(paths, "task", "add", "Write.").out == said
    assert call(paths, "task", "add", "Test.", "--owner", "ann").out == "task 2 is made\n"
    roled = ("task", "add", "Draw.", "--role", "painter")
    assert call(paths, *roled).out == said.replace("1", "3")
    paths.settings.write_text("[tasks]\nauto_claim = true\n")
    assert call(paths, *roled).out == "task 4 is made\n", "a painter takes it by itself"


def test_show_indents_a_long_reason_on_a_terminal(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrol(paths, alice=Status.PAUSED)
    reason = "no key for the model: set ANTHROPIC_API_KEY"
    Roster(paths).update(lambda team: team.with_member(replace(team.get("alice"), reason=reason)))
    monkeypatch.setenv("COLUMNS", "40")
    lines = click.unstyle(call(paths, "show", "alice", out=TerminalStream()).out).splitlines()
    found = next(at for at, line in enumerate(lines) if line.startswith("state "))
    assert lines[found + 1].startswith(" " * 11 + "set ANTHROPIC")
    assert max(map(len, lines[found : found + 3])) <= 40
