"""Attacks by mail and by files: floods, forged lines, and links or FIFOs in place of files."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Final

import pytest

from teamd.process_id import Identity
from tests.children import child
from tests.e2e.harness import Project
from tests.forked.client import server as forks
from tests.waiting import wait_until

FLOOD: Final = 1_000_000  # messages
HUGE: Final = 100_000_000  # bytes of one message
MEMORY: Final = 500_000  # KiB of address space: a few times the need of a command without a flood
# Paths where a cloned repository or another program of this user might put a link or a FIFO.
STRANGE: Final = {
    "inbox/ann.jsonl": ("teamctl send ann hi", "teamctl inbox ann"),
    "inbox/lead.jsonl": ("teamctl send lead hi", "teamctl inbox", "teamctl inbox --peek"),
    "config.json": ("teamctl team", "teamctl send ann hi", "teamd status", "teamctl usage"),
    "ledger.jsonl": ("teamctl usage", "teamd start"),
    "transcripts/ann.jsonl": ("teamctl transcript ann", "teamctl trace abcdef"),
    "transcripts/user.jsonl": ("teamctl transcript user",),
    "tasks/board.lock": ("teamctl task add x",),
    "tasks/1.json": ("teamctl task show 1",),
    "requests/abcd.json": ("teamctl approve abcd",),
    "logs/ann.log": ("teamctl logs ann",),
    "teamd.pid": ("teamd stop", "teamd status", "teamd start", "teamctl spawn bob coder x"),
}


def put_line(project: Project, name: str, text: str) -> None:
    """Append a line to an inbox, as any program of the person can."""
    inbox = project.paths.inbox(name)
    line = project.write("line", text + "\n")
    project.do("flock", str(inbox), "-c", f"cat {line} >> {inbox}")


@pytest.fixture
def still(project: Project) -> Project:
    """A team with ann and bob, and without teamd."""
    project.ask_no_service()
    project.enlist("ann", "bob")
    return project


@pytest.mark.slow
def test_commands_do_not_follow_links_or_block_on_fifos(still: Project, tmp_path: Path) -> None:
    """`teamctl send` once wrote to the target of a linked inbox."""
    precious = tmp_path / "precious"
    precious.write_text("precious\n")
    for name, calls in STRANGE.items():
        place = still.paths.root / name
        kept = place.read_bytes() if place.exists() else None
        # tests/unit/test_safe_open.py shows each kind at each file without a process.
        for put in (place.symlink_to, lambda _, at=place: os.mkfifo(at)):
            place.unlink(missing_ok=True)
            put(precious)
            for call in calls:
                done = still.run(*call.split(), timeout_seconds=20)
                assert done.status == 1, (name, call, done)
                said = done.complaint
                assert f"{place} is " in said, (name, call, done)
                assert any(what in said for what in ("a symbolic link", "not a regular file"))
        place.unlink()
        if kept is not None:
            place.write_bytes(kept)
    assert precious.read_text() == "precious\n"
    checked = still.run("teamctl", "doctor")
    assert "is a symbolic link" not in checked.stdout


def test_doctor_names_files_that_do_not_belong_to_the_team(still: Project, tmp_path: Path) -> None:
    still.paths.inbox("ann").symlink_to(tmp_path / "elsewhere")
    checked = still.run("teamctl", "doctor")
    assert checked.status == 1
    assert f"{still.paths.inbox('ann')} is a symbolic link" in checked.stdout
    assert "put the file itself in its place" in checked.stdout


@pytest.mark.slow
def test_a_teammate_with_a_replaced_inbox_does_not_delay_others(team: Project) -> None:
    outside = team.write("outside", "mine\n")
    for name in ("carl", "dora"):
        team.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
        team.wait_for(name, "idle")
    inbox = team.paths.inbox("carl")
    inbox.unlink(missing_ok=True)
    inbox.symlink_to(outside)
    refused = team.run("teamctl", "send", "carl", "hi")
    assert refused.status == 1
    assert f"{inbox} is a symbolic link" in refused.complaint
    team.do("teamctl", "send", "dora", "Are you there?", "--wait")
    inbox.unlink()
    team.do("teamctl", "send", "carl", "And you?", "--wait")
    assert outside.read_text() == "mine\n"


def test_prune_does_not_follow_links(still: Project, tmp_path: Path) -> None:
    """It once removed the target of a link at `jobs/NAME` for a name that is not in the team."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.json").write_text("mine")
    (still.paths.root / "jobs").mkdir()
    (still.paths.root / "jobs" / "zoe").symlink_to(elsewhere)
    refused = still.run("teamctl", "prune")
    assert refused.status == 1
    assert "jobs/zoe is a symbolic link" in refused.complaint
    assert (elsewhere / "1.json").read_text() == "mine"


def test_a_process_named_in_a_forged_pid_file_is_not_signalled(still: Project) -> None:
    with child("import sys; sys.stdin.read()") as stranger:
        there = Identity.of(stranger.pid)
        assert there is not None
        named = {"pid": there.pid, "started": there.started}
        still.paths.supervisor.write_text(json.dumps(named))
        for command in ("stop", "reload", "restart"):
            ended = still.run("teamd", command)
            assert ended.status == (0 if command == "restart" else 3), ended
            assert there.alive
        still.do("teamd", "stop")
        assert there.alive


@pytest.mark.slow
@pytest.mark.parametrize("umask", ["000", "777"])
def test_team_files_are_private_to_their_owner_under_any_umask(
    project: Project, umask: str
) -> None:
    project.write("turns.json", '{"turns": {}}').chmod(0o600)
    project.write("team.toml", '[model]\nscript = "turns.json"\n')
    calls = (
        "teamd start",
        "teamctl spawn ann coder Go. --wait",
        "teamctl send ann hi --wait",
        "teamctl task add x",
        "teamctl inbox",
        "teamctl chat Hello.",
        "teamd stop",
    )
    path = f"{forks().commands}:{project.environment['PATH']}"
    for call in calls:
        done = project.run("bash", "-c", f"umask {umask}; {call}", env={"PATH": path})
        assert done.status == 0, (call, done)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in project.paths.root.rglob("*")}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}
    assert stat.S_IMODE(project.paths.root.stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_message_of_a_hundred_megabytes_is_refused_and_other_mail_is_delivered(
    team: Project,
) -> None:
    for name in ("fred", "greta"):
        team.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
        team.wait_for(name, "idle")
    over, endless = "is over the limit of 1048576", "standard input holds more than 16777216 bytes"
    for size, sentence in ((HUGE // 20, over), (HUGE, endless)):
        much = f"head -c {size} /dev/zero | tr '\\0' x | teamctl send fred -"
        refused = team.run("bash", "-c", much)
        assert refused.status == 1
        assert f"{sentence}; put the text into a file and send its path" in refused.complaint
    put_line(team, "fred", json.dumps({"content": "x" * HUGE}))
    team.do("teamctl", "send", "greta", "Are you there?", "--wait")
    wait_until(lambda: not team.paths.has_mail("fred"), what="fred takes it")  # full until then
    team.do("teamctl", "send", "fred", "And you?", "--wait")
    assert team.paths.rejected("fred").stat().st_size > HUGE
    assert team.log("fred", "line rejected")
    assert not team.log("fred", "crashed")


@pytest.mark.slow
def test_a_million_messages_need_no_more_memory_than_a_few(still: Project) -> None:
    """`inbox` shows the first of them, and `send` still works."""
    for name in ("ann", "lead"):
        still.paths.inbox(name).write_bytes(b'{"content": "x"}\n' * FLOOD)
    bounded = f"ulimit -v {MEMORY}; set -o pipefail; exec"
    shown = still.run("bash", "-c", f"{bounded} teamctl inbox ann --json | wc -l")
    assert (shown.status, shown.stderr) == (0, "")
    taken = still.do("bash", "-c", f"{bounded} teamctl inbox --json")
    first = json.loads(taken)["messages"]
    assert 1000 < len(first) < FLOOD
    ann = json.loads(still.do("bash", "-c", f"{bounded} teamctl team --json"))["members"][0]
    assert ann["queued"] == FLOOD
    still.do("bash", "-c", f"{bounded} teamctl send bob hi")
    put_line(still, "ann", "")
    aside = still.paths.taken("lead").read_bytes()
    assert aside.count(b"\n") == FLOOD + 2, "a header, all messages and a marker"


def test_a_full_inbox_refuses_further_mail_with_a_reason(still: Project) -> None:
    still.write("team.toml", "[mail]\nmax_inbox_bytes = 400\n")
    still.do("teamctl", "send", "ann", "x" * 300)
    refused = still.run("teamctl", "send", "ann", "x" * 300)
    assert refused.status == 1
    assert refused.complaint == (
        "teamctl: the inbox of ann is full: [mail] max_inbox_bytes, 400, are reached; "
        "send it again once ann has read its mail"
    )
    all_but = still.run("teamctl", "broadcast", "x" * 300)
    assert all_but.status == 1
    assert all_but.complaint.endswith("; the other receivers have the message")
    assert "xxx" in still.mail("bob")


@pytest.mark.slow
def test_a_flood_of_the_control_inbox_does_not_delay_requests(team: Project) -> None:
    inbox = team.paths.inbox("teamd")
    lines = team.write("flood", '{"content": "x", "type": "nonsense"}\n' * 20_000)
    team.do("flock", str(inbox), "-c", f"cat {lines} >> {inbox}")
    team.do("teamctl", "spawn", "hugo", "clerk", "Go.", "--wait")
    wait_until(lambda: not inbox.stat().st_size, what="all of it is read")


def test_a_linked_team_directory_in_a_cloned_folder_is_refused(
    project: Project, tmp_path: Path
) -> None:
    """`teamd start` would have used any of the person's folders as its team directory."""
    private = tmp_path / "private"
    private.mkdir()
    (private / "config.json").write_text('{"auths": "mine"}')
    project.paths.root.symlink_to(private)
    for command in ("teamd start", "teamctl team", "teamctl send ann hi"):
        refused = project.run(*command.split())
        assert refused.status == 1, refused
        assert ".team is a symbolic link" in refused.complaint
        assert "--team-dir or TEAMD_DIR" in refused.complaint
    assert list(private.iterdir()) == [private / "config.json"]
