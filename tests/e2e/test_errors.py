"""Each error is one line with a remedy and the promised exit code."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.harness import Project
from tests.strict.faults import Stall
from tests.waiting import wait_until

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and chown")

REFUSED = [
    ("teamctl send bbo hi", 1, "no teammate named 'bbo'; the team is: ann, wes"),
    ("teamctl send teamd hi", 1, "cannot receive mail; send to a teammate, or use broadcast"),
    ("teamctl spawn bad/name coder x", 1, "'bad/name' cannot be .* use up to 64 of A-Z a-z 0-9"),
    ("teamctl spawn Lead coder x", 1, "'Lead' cannot be a teammate's name: .* take another one"),
    ("teamctl spawn new coder -", 1, "a prompt is needed"),
    ("teamctl spawn wes coder x", 1, "wes is working already; `teamctl send wes …` reaches it"),
    ("teamctl spawn ann tester x", 1, "ann remembers being 'coder', .* --fresh lets it start over"),
    ("teamctl inbox bbo", 1, "no teammate named 'bbo'; the team is"),
    ("teamctl transcript bbo", 1, "no teammate named 'bbo'; the team is"),
    ("teamctl logs bbo", 1, "no teammate named 'bbo'; the team is"),
    ("teamctl shutdown bbo", 1, "no teammate named 'bbo'; the team is"),
    ("teamctl hosts", 1, r"^teamctl: this host has no name in \[hosts\]; `teamctl help hosts`"),
    ("teamctl interrupt ann", 1, "there is nothing to interrupt: `teamctl send` reaches it"),
    ("teamd start", 1, r"a teamd \(pid PID\) already runs for .*; `teamd stop` ends it"),
    ("teamctl --config no.toml send ann x", 1, "no.toml: there is no such file; `teamctl init`"),
    (
        "teamctl --team-dir nowhere team",
        1,
        "there is no team directory .*/nowhere; `teamd start`",
    ),
]
MISUSED = [
    ("teamctl spwan x", "no command 'spwan'; did you mean 'spawn'?"),
    ("teamctl frobnicate", "no command 'frobnicate'; `teamctl --help` lists them all"),
    ("teamctl task ad", "no command 'ad'; did you mean 'add'?"),
    ("teamctl task done 4", "; `teamctl task update ID --status completed` completes a task"),
    ("teamctl interrupt ann stop that", "in quotes: teamctl interrupt ann 'stop that'"),
    ("teamctl transcript ann -n x", "'x' is not a valid whole number"),
    ("teamctl prune --older-than x", "'x' is not a valid number"),
    ("teamctl send ann", "Missing argument 'TEXT'"),
    ("teamctl team --frob", "No such option"),
    ("teamctl team --watch --hosts", "--watch shows this host"),
    ("teamctl shutdown", "name a teammate, or give --all"),
    ("teamctl shutdown ann --all", "name a teammate, or give --all"),
    ("teamd stop --timeout 0", "Invalid value for '--timeout'"),
    ("teamctl shutdown ann --timeout nan", "is no time; give up to 86400 seconds"),
    ("teamctl shutdown ann --timeout -1", "is no time; give up to 86400 seconds"),
]
MISTAKEN = [
    (
        b"[team]\nname = 3\n[modle]\n[limits]\ncalls_per_wake = 0\n",
        ["team.name", "modle", "limits."],
    ),
    (b"[team\n", ["it is not TOML"]),
    (b"# \xff\n", ["it is not UTF-8"]),
]


@pytest.fixture(scope="module")
def crowd(running: Project) -> Project:
    """Ann is idle, and Wes is in an endless model call."""
    running.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    stall = Stall()
    running.server.faults.when(lambda asked: asked.name == "wes", stall)
    running.do("teamctl", "spawn", "wes", "coder", "Go.")
    assert stall.reached.wait(20)
    running.wait_for("ann", "idle")
    wait_until(lambda: not _files(running.paths.inboxes), what="teamd has taken what they reported")
    return running


@pytest.fixture
def still(project: Project) -> Project:
    """A team with ann and bob, and without teamd."""
    project.enlist("ann", "bob")
    return project


@pytest.mark.parametrize(("call", "status", "sentence"), REFUSED, ids=[c for c, _, _ in REFUSED])
def test_a_refusal_is_one_sentence_and_writes_nothing(
    call: str, status: int, sentence: str, crowd: Project, team: Project
) -> None:
    """In other products a typo in a name creates an orphan file."""
    before = _files(team.paths.inboxes), _names(team)
    refused = team.run(*call.split())
    assert refused.status == status
    assert re.search(sentence.replace("PID", str(team.supervisor)), refused.complaint)
    assert refused.complaint.startswith(("teamctl: ", "teamd: "))
    assert refused.stdout == ""
    assert (_files(team.paths.inboxes), _names(team)) == before


@pytest.mark.parametrize(("call", "sentence"), MISUSED, ids=[call for call, _ in MISUSED])
def test_wrong_usage_exits_with_code_2(call: str, sentence: str, still: Project) -> None:
    misused = still.run(*call.split())
    assert misused.status == 2
    assert sentence in misused.stderr
    assert "Usage: " in misused.stderr
    assert misused.stdout == ""


def test_text_that_mail_cannot_contain_is_refused_with_advice(still: Project) -> None:
    for text, sentence in (
        ("a\0b", "a message cannot hold a NUL character; leave it out"),
        ("x" * 1_100_000, "over the limit of 1048576; put the text into a file and send its path"),
    ):
        refused = still.run("teamctl", "send", "ann", "-", stdin=text)
        assert refused.status == 1
        assert sentence in refused.complaint
    assert not still.mail("ann")


def test_without_a_team_every_command_says_how_to_make_one(project: Project) -> None:
    calls = ("teamctl team", "teamctl send ann x", "teamctl inbox", "teamd stop", "teamd status")
    for call in calls:
        refused = project.run(*call.split())
        assert refused.status == 1
        assert refused.complaint.endswith("or above it; `teamd start` makes one here")
    assert list(project.folder.iterdir()) == []


def test_without_teamd_only_commands_that_need_it_are_refused(still: Project) -> None:
    calls = (
        "teamctl spawn ann coder x --no-start",
        "teamctl shutdown ann",
        "teamctl interrupt ann",
        "teamctl pause ann",
        "teamctl ps",
        "teamd stop",
        "teamd reload",
        "teamctl reload",
    )
    for call in calls:
        refused = still.run(*call.split())
        assert refused.status == 3
        assert refused.complaint.endswith("; start it with `teamd start`")
    status = still.run("teamd", "status")
    assert (status.status, status.stderr) == (3, "")
    assert "`teamd start` starts it" in status.stdout
    assert still.do("teamctl", "send", "ann", "one") == "sent to ann\n"
    assert still.do("teamctl", "broadcast", "two") == "sent to ann, bob\n"
    assert still.do("teamctl", "inbox") == "no new mail\n"
    assert "ann" in still.do("teamctl", "team")


@pytest.mark.parametrize(("text", "sentences"), MISTAKEN)
def test_an_invalid_team_toml_is_refused_with_a_list_of_all_its_mistakes(
    text: bytes, sentences: list[str], project: Project
) -> None:
    (project.folder / "team.toml").write_bytes(text)
    refused = project.run("teamd", "start")
    assert refused.status == 1
    lines = refused.stderr.splitlines()
    assert len(lines) == len(sentences)
    for sentence in sentences:
        assert any(sentence in line and "team.toml: " in line for line in lines), refused.stderr
    assert not project.paths.root.exists()


@pytest.mark.slow
def test_a_team_toml_that_becomes_invalid_later_does_not_harm_the_team(project: Project) -> None:
    pid = project.start()
    project.write("team.toml", "[limits]\ncalls_per_wake = 0\n[team]\nname = 3\n")
    for call in (("teamd", "reload"), ("teamd", "restart"), ("teamd", "start")):
        refused = project.run(*call)
        assert refused.status == 1
        assert "limits.calls_per_wake" in refused.stderr
        assert "team.name" in refused.stderr
    assert json.loads(project.do("teamd", "status", "--json"))["pid"] == pid
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        (
            "ALL_PROXY",
            "socks4://localhost:1080",
            (
                "teamd: ALL_PROXY names a socks4:// proxy, and teamd can use http, https, socks5, "
                "socks5h; use one such as socks5://localhost:1080, or unset ALL_PROXY"
            ),
        ),
        (
            "https_proxy",
            "http://proxy:none",
            (
                "teamd: https_proxy is not the address of a proxy; use one such as "
                "socks5://localhost:1080, or unset https_proxy"
            ),
        ),
    ],
)
def test_an_environment_that_cannot_reach_a_server_is_refused_at_start(
    variable: str, value: str, sentence: str, project: Project
) -> None:
    """Otherwise each teammate's process would fail at its first call, again and again."""
    project.environment[variable] = value
    refused = project.run("teamd", "start")
    assert (refused.status, refused.complaint) == (1, sentence)
    assert not project.paths.root.exists()
    doctor = project.run("teamctl", "doctor")
    assert doctor.status == 1
    assert sentence.removeprefix("teamd: ").partition(";")[0] in doctor.stdout


@root_only
def test_settings_of_another_user_are_refused(project: Project) -> None:
    """They could start agents for anyone who enters a folder."""
    os.chown(project.write("team.toml", ""), 65534, 65534)
    refused = project.run("teamd", "start")
    assert refused.status == 1
    assert "belongs to another user (uid 65534); copy it to a file of your own" in refused.complaint


@root_only
def test_a_team_directory_of_another_user_is_refused(still: Project) -> None:
    os.chown(still.paths.root, 65534, 65534)
    for call in ("teamctl team", "teamctl send ann x", "teamd start"):
        refused = still.run(*call.split())
        assert refused.status == 1
        assert "belongs to user 65534" in refused.complaint


@pytest.mark.slow
def test_a_missing_key_pauses_a_teammate_and_is_reported_at_once(project: Project) -> None:
    del project.environment["ANTHROPIC_API_KEY"]
    project.start()
    spawned = project.run("teamctl", "spawn", "ann", "coder", "Go.")
    assert spawned.status == 0
    assert "warning: no key for the model: set ANTHROPIC_API_KEY" in spawned.complaint
    assert "`teamd restart`" in project.wait_for("ann", "paused")["reason"]
    waited = project.run("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
    assert waited.status == 1
    assert "bob is paused: no key for the model" in waited.stderr.splitlines()[-1]
    assert "ann is paused: no key for the model" in project.do("teamctl", "inbox")
    assert "ann is paused: no key for the model" in project.do("teamctl", "team")
    assert project.server.requests == []


def test_a_wrong_key_pauses_a_teammate_until_the_key_is_corrected(project: Project) -> None:
    file = project.write("key", "wrong")
    project.write("team.toml", f'[model]\nkey_command = "cat {file}"\n')
    project.start()
    waited = project.run("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    assert waited.status == 1
    assert "ann is paused" in waited.complaint
    assert "refused the key (401: Invalid bearer token); check ANTHROPIC_API_KEY" in waited.stderr
    project.wait_for("ann", "paused")
    assert project.refusals() == ["401 authentication_error: Invalid bearer token"]

    project.write("key", "test-key")
    sent = project.run("teamctl", "send", "ann", "The key is mended.")
    assert "ann is paused; the message waits" in sent.complaint
    project.wait_for("ann", "idle")
    assert "Go." in project.asked("ann", least=1)[0].asked.last_text


def test_an_unknown_model_pauses_a_teammate(project: Project) -> None:
    project.start()
    waited = project.run("teamctl", "spawn", "uma", "coder", "Go.", "--model", "gpt-2", "--wait")
    assert waited.status == 1
    assert "uma is paused" in waited.stderr
    assert "knows no model 'gpt-2' (model: gpt-2); set [model] name in team.toml" in waited.stderr
    assert len(project.refusals()) == 1
    project.do("teamctl", "spawn", "uma", "coder", "Go.", "--model", "claude-haiku-5-5", "--wait")


@pytest.mark.slow
def test_a_late_request_is_only_logged(crowd: Project, team: Project) -> None:
    """A caller that gave up must not find it done an hour later, when the laptop wakes."""
    pid = team.member("ann")["pid"]
    os.kill(team.supervisor, signal.SIGSTOP)
    try:
        late = team.run("teamctl", "shutdown", "ann", "--timeout", "0")
    finally:
        os.kill(team.supervisor, signal.SIGCONT)
    assert late.status == 4
    assert "teamd did not answer within 10 s; `teamctl logs teamd` shows" in late.complaint
    wait_until(lambda: team.log("teamd", "request came too late"), what="it is logged")
    assert team.log("teamd", "request came too late")[-1]["command"] == "shutdown"
    team.do("teamctl", "spawn", "ann", "coder", "Are you there?", "--wait")
    assert team.wait_for("ann", "idle")["pid"] == pid


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.stat().st_size}


def _names(project: Project) -> list[str]:
    return [m["name"] for m in json.loads(project.paths.config.read_bytes())["members"]]
