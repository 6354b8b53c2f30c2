"""The postman as a child of teamd: runs if configured, and is restarted if it dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from teamd_commands import command_line

from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import count_waiting
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import Report, postman_runs, read_views
from teamd.messages import Message
from teamd.settings.trust import TrustStore
from tests.e2e.harness import opened
from tests.hosts.towns import Hosts, hosts
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


# Block the first module that teamd imports before it is ready until a file exists.
SLOW = """
import os, sys, time
class Finder:
    def find_spec(self, name, *_):
        while name == "pydantic" and not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
sys.meta_path.insert(0, Finder())
"""
MOST_SECONDS = 5.0  # from the broker's return until waiting mail has arrived


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("town")) as made:
        made.start_broker()
        made.wait_for("h1", "h2", "reachable")
        made.wait_for("h2", "h1", "reachable")
        yield made


@pytest.fixture
def own_town(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path) as made:
        made.start_broker()
        made.wait_for("h1", "h2", "reachable")
        made.wait_for("h2", "h1", "reachable")
        yield made


def postman(town: Hosts, host: str) -> int:
    """Return the pid of a host's postman, once it runs."""
    path, found = HostPlaces(town.projects[host].paths).postman, set[int]()

    def look() -> bool:
        found.update(locks._holders(path) if path.exists() else ())
        return bool(found)

    wait_until(look, what=f"a postman of {host}")
    return found.pop()


def reports(paths: TeamPaths) -> list[Report]:
    """Return the reports about other hosts; a host never heard of may have no view yet."""
    return [one for view in read_views(paths) for one in view.reports]


def inbox(town: Hosts, host: str) -> list[str]:
    """Return the mail that waits for the person."""
    lines = town.projects[host].paths.inbox("lead").read_text().splitlines()
    return [json.loads(line)["content"] for line in lines]


def test_a_killed_postman_is_restarted_and_mail_continues(town: Hosts) -> None:
    for number in range(3):
        for host in ("h1", "h2"):
            os.kill(postman(town, host), signal.SIGKILL)
        town.on("h1", "send", "lead@project@h2", f"kill {number}")
    expected = [f"kill {number}" for number in range(3)]
    wait_until(lambda: inbox(town, "h2")[-3:] == expected, what="all of it, in order")
    assert [one for one in inbox(town, "h2") if one.startswith("kill")] == expected
    wait_until(lambda: count_waiting(town.projects["h1"].paths, "h2") == 0, what="it is confirmed")


def test_waiting_mail_moves_soon_after_the_broker_returns(town: Hosts) -> None:
    wait_until(
        lambda: count_waiting(town.projects["h1"].paths, "h2") == 0, what="nothing waits yet"
    )
    town.kill_broker()
    town.wait_for("h1", "h2", "unreachable")
    sent = town.on("h1", "send", "lead@project@h2", "while away")
    assert sent.status == 0
    assert "queued for h2: unreachable since" in sent.stdout + sent.stderr
    assert count_waiting(town.projects["h1"].paths, "h2") == 1
    town.start_broker()
    begun = time.monotonic()
    wait_until(lambda: "while away" in inbox(town, "h2"), what="it is there")
    assert time.monotonic() - begun < MOST_SECONDS
    wait_until(lambda: count_waiting(town.projects["h1"].paths, "h2") == 0, what="it is confirmed")
    assert inbox(town, "h2").count("while away") == 1


def test_a_postman_inherits_no_open_files_and_no_secrets(town: Hosts) -> None:
    """It inherits none of teamd's locks, logs, pipes and environment keys."""
    pid, paths = postman(town, "h1"), town.projects["h1"].paths
    opened_files = {one.path for one in psutil.Process(pid).open_files()}
    own = {str(HostPlaces(paths).log), str(paths.last_words)}
    delivered = (str(HostPlaces(paths).root), str(paths.inboxes))  # arriving mail is written there
    assert {path for path in opened_files - own if not path.startswith(delivered)} == set()
    assert b"KEY" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_reload_restarts_or_stops_the_postman(town: Hosts) -> None:
    project = town.projects["h2"]
    before, text = postman(town, "h2"), (project.folder / "team.toml").read_text()
    project.write("team.toml", f"{text}outbox_bytes = 4096\n")
    assert "the postman starts anew" in project.do("teamd", "reload")
    wait_until(lambda: postman(town, "h2") != before, what="another one")
    town.on("h2", "send", "lead@project@h1", "after")
    wait_until(lambda: "after" in inbox(town, "h1"), what="mail from it")
    project.ask_no_service()
    project.do("teamd", "reload")
    wait_until(lambda: not postman_runs(project.paths), what="none")
    project.write("team.toml", text)
    project.do("teamd", "reload")
    town.wait_for("h1", "h2", "reachable")


def test_a_full_outbox_refuses_mail_with_a_remedy(own_town: Hosts) -> None:
    """In separate hosts, because mail of other tests may still be in the file."""
    town = own_town
    project = town.projects["h2"]
    text = (project.folder / "team.toml").read_text()
    project.write("team.toml", f"{text}outbox_bytes = 4096\n")
    project.do("teamd", "reload")
    town.kill_broker()
    sent = [town.on("h2", "send", "lead@project@h1", "x" * 1500) for _ in range(4)]
    town.start_broker()
    assert [one.status for one in sent] == [0, 0, 1, 1]
    assert sent[-1].complaint == (
        "teamctl: too much mail waits for h1: [hosts] outbox_bytes, 4096, are reached; "
        "send it again once h1 can be reached"
    )
    project.write("team.toml", text)
    project.do("teamd", "reload")
    wait_until(lambda: count_waiting(project.paths, "h1") == 0, what="the others have arrived")


def test_the_postman_ends_with_teamd(tmp_path: Path) -> None:
    with hosts(tmp_path, ["h1"]) as town:
        pid = postman(town, "h1")
        os.kill(town.projects["h1"].supervisor, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(pid), what="it is gone")


def test_without_a_host_name_there_is_no_postman_and_no_folder(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        project.ask_no_service()
        project.start()
        project.do("teamctl", "send", "lead", "hello")
        children = psutil.Process(project.supervisor).children()
        assert not [one for one in children if "teamd.postman" in one.cmdline()]
        assert not project.paths.hosts.exists()
        assert project.log("teamd", "postman begins") == []
    code = "import sys, teamd.daemon, teamctl.main; sys.exit('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_postman_starts_before_teamd_has_loaded_its_modules(tmp_path: Path) -> None:
    """Imports are slow under load, and other hosts would see no postman meanwhile."""
    with hosts(tmp_path, ["h1"], started=False) as town:
        project, go = town.projects["h1"], tmp_path / "go"
        slow = project.write("slow/sitecustomize.py", SLOW)
        project.environment |= {"PYTHONPATH": str(slow.parent), "GO": str(go)}
        starting = project.begin("teamd", "start", installed=True)
        try:
            postman(town, "h1")
            assert starting.poll() is None
        finally:
            go.touch()
        assert starting.wait(timeout=60) == 0


def test_a_damaged_outbox_does_not_delay_mail(town: Hosts) -> None:
    """Waiting mail and later mail both arrive, and the person gets a report."""
    outbox = HostPlaces(town.projects["h1"].paths).outbox("h2")
    town.on("h1", "send", "lead@project@h2", "before the damage")
    with outbox.open("ab") as file:
        file.write(b"rubbish\n")
    sent = town.on("h1", "send", "lead@project@h2", "behind the damage")
    assert (sent.status, sent.stderr) == (0, "")
    wait_until(lambda: "behind the damage" in inbox(town, "h2"), what="it is there")
    assert inbox(town, "h2").count("before the damage") == 1
    assert outbox.with_suffix(".rejected.jsonl").read_bytes() == b"rubbish\n"
    words = "a line of what waits for it was damaged, and is not sent"
    wait_until(lambda: words in [one.text for one in reports(town.projects["h1"].paths)])


def test_waiting_lines_of_the_version_before_are_sent(own_town: Hosts) -> None:
    """It numbered and chained the lines, and began the file with a line about it."""
    project = own_town.projects["h1"]
    own_town.kill_broker()
    project.do("teamd", "stop")
    message = Message(sender="lead", to="lead", content="of the version before").to_json()
    mail = {"kind": "mail", "to": "lead", "team": "project", "message": message}
    lines = [
        {"epoch": "0123456789abcdef", "first": 7, "chain": "00" * 8},
        {"n": 7, "chain": "11" * 8, **mail},
        {"n": 8, "chain": "22" * 8, "kind": "request", "id": "x"},
        {"n": 9, "chain": "33" * 8, **mail, "message": {**message, "id": "2", "content": "second"}},
    ]
    places = HostPlaces(project.paths)
    places.outbox("h2").write_text("".join(json.dumps(one) + "\n" for one in lines))
    places.confirmed("h2").write_text('{"epoch": "0123456789abcdef", "n": 6, "chain": "00"}\n')
    places.received("h2").write_text('{"epoch": "fedcba9876543210", "n": 3, "chain": "00"}\n')
    project.start()
    project.do("teamctl", "send", "lead@project@h2", "of this version")
    own_town.start_broker()
    wait_until(lambda: count_waiting(project.paths, "h2") == 0, what="they are confirmed")
    assert inbox(own_town, "h2") == ["of the version before", "second", "of this version"]
    assert reports(project.paths) == reports(own_town.projects["h2"].paths) == []


def test_waiting_mail_survives_removing_and_restoring_the_settings(town: Hosts) -> None:
    project = town.projects["h2"]
    text = (project.folder / "team.toml").read_text()
    town.kill_broker()
    project.do("teamctl", "send", "lead@project@h1", "before they went")
    project.ask_no_service()
    project.do("teamd", "reload")
    wait_until(lambda: not postman_runs(project.paths), what="no postman")
    refused = town.on("h2", "send", "lead@project@h1", "while they are gone")
    assert refused.status == 1
    assert "this host has no name in [hosts]; `teamctl help hosts`" in refused.complaint
    project.write("team.toml", text)
    project.do("teamd", "reload")
    project.do("teamctl", "send", "lead@project@h1", "since they are back")
    town.start_broker()
    wait_until(lambda: "since they are back" in inbox(town, "h1"), what="all is there")
    assert inbox(town, "h1").count("before they went") == 1
    town.wait_for("h1", "h2", "reachable")


def test_a_moved_team_keeps_its_waiting_mail(town: Hosts) -> None:
    """Its postman ends with its teamd, and writes nothing at the old path."""
    project = town.projects["h2"]
    before = reports(project.paths)
    town.kill_broker()
    town.on("h2", "send", "lead@project@h1", "before the move")
    pid, new = postman(town, "h2"), project.folder.with_name("renamed")
    project.folder.rename(new)
    try:
        # Wakes its teamd, which notices the move.
        project.run("teamctl", "send", "lead", "Anybody?", cwd=new)
        wait_until(lambda: not psutil.pid_exists(pid), what="its postman has ended")
        settings = new / "team.toml"  # a different file for trust, so the person confirms it again
        TrustStore(project.environment).confirm(settings, settings.read_bytes())
        project.start_in(new)
        sent = project.run("teamctl", "send", "lead@project@h1", "behind the move", cwd=new)
        assert sent.status == 0
        town.start_broker()
        wait_until(lambda: "behind the move" in inbox(town, "h1"), what="all is there")
        assert inbox(town, "h1").count("before the move") == 1
        town.on("h1", "send", "lead@project@h2", "to where it is")
        there = HostPlaces(TeamPaths(new / ".team")).paths.inbox("lead")
        wait_until(lambda: "to where it is" in there.read_text(), what="mail finds it")
        assert not project.folder.exists()
        project.run("teamd", "stop", cwd=new)
    finally:
        new.rename(project.folder)
    project.start()
    town.wait_for("h1", "h2", "reachable")
    assert reports(project.paths) == before


def test_teammates_get_an_error_for_a_full_outbox_and_continue(tmp_path: Path) -> None:
    """They get a tool error at once; when waiting mail has moved, there is room again."""

    def tell(content: str) -> list[Any]:
        return ["send_message", {"to": "lead@project@h2", "content": content}]

    mail, again = [tell(f"{n} {'x' * 1500}") for n in range(4)], tell("there is room")
    turns = [{"use": mail}, {"say": "It is full.", "expect": "too much mail waits for h2"}]
    with hosts(tmp_path, allow="outbox_bytes = 4096") as town:
        project = town.projects["h1"]
        town.start_broker()
        town.wait_for("h1", "h2", "reachable")
        town.kill_broker()
        script = {"turns": {"alice": [*turns, {"use": [again]}, {"say": "Sent."}]}}
        project.write("turns.json", json.dumps(script))
        project.do("teamctl", "spawn", "alice", "clerk", "Begin.", "--wait")
        project.wait_for("alice", "idle")
        results = [one["content"] for one in project.records("alice", "result")]
        full = "too much mail waits for h2: [hosts] outbox_bytes, 4096, are reached"
        assert [full in one for one in results] == [False, False, True, True]
        town.start_broker()
        wait_until(lambda: len(inbox(town, "h2")) == 2, what="what waited has moved")
        wait_until(lambda: count_waiting(project.paths, "h2") == 0, what="it is confirmed")
        project.do("teamctl", "send", "alice", "Go on.")
        wait_until(lambda: "there is room" in inbox(town, "h2"), what="she has gone on")


@pytest.mark.parametrize("servers", ["[]", '["nats://127.0.0.1:{port}"]'])
def test_a_postman_without_a_connection_uses_little_cpu(tmp_path: Path, servers: str) -> None:
    """Forever without a server, and for seconds at each start if no server answers."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listed = servers.format(port=silent.getsockname()[1])
        document = f'[hosts]\nname = "h1"\nservers = {listed}\n'
        argv = [*command_line("postman"), str(paths.root), document]
        with subprocess.Popen(argv) as child:
            try:
                wait_until(HostPlaces(paths).name.exists, what="it serves")
                process = psutil.Process(child.pid)
                before = sum(process.cpu_times()[:2])
                time.sleep(1.5)  # measures the CPU time of an interval
                used = sum(process.cpu_times()[:2]) - before
            finally:
                child.kill()
    assert used < 0.5, f"{used:.2f} s of 1.5 s"


def test_a_failing_postman_is_reported_with_the_command_that_says_why(tmp_path: Path) -> None:
    """Teamd is running, so the advice to start it would not help."""
    with hosts(tmp_path, ["h1"]) as town:
        project = town.projects["h1"]
        pid, state = postman(town, "h1"), HostPlaces(project.paths).state
        wait_until(state.exists, what="a view")
        # It ends if it cannot write its view at startup.
        wait_until(partial(_put_folder, state), what="a folder stands there")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not postman_runs(project.paths), what="none runs")
        said = town.on("h1", "hosts").stdout
        assert (
            "no postman runs here, so mail to other hosts waits; `teamctl doctor` says why" in said
        )
        assert "`teamctl logs postman` says why" in town.on("h1", "doctor").stdout


def _put_folder(path: Path) -> bool:
    """Replace a file that another process may rewrite at any time by a folder."""
    path.unlink(missing_ok=True)
    with suppress(FileExistsError):
        path.mkdir()
        return True
    return False


def test_forgetting_a_host_reports_a_postman_that_hangs(own_town: Hosts) -> None:
    own_town.projects["h2"].do("teamd", "stop")
    own_town.wait_for("h1", "h2", "unreachable")
    pid = postman(own_town, "h1")
    os.kill(pid, signal.SIGSTOP)
    try:
        done = own_town.on("h1", "hosts", "forget", "h2")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (done.status, done.complaint) == (
        1,
        (
            "teamctl: the postman still knows h2; `teamd reload` restarts it; then forget the host "
            "again"
        ),
    )
    wait_until(lambda: own_town.states("h1") == {}, what="it goes on, and forgets")


def test_a_roster_that_cannot_be_stored_does_not_delay_mail_and_comes_again(
    own_town: Hosts,
) -> None:
    """As after a disk was full for a moment; the members would otherwise stay unknown."""
    kept = HostPlaces(own_town.projects["h1"].paths).roster("h2")
    wait_until(kept.exists, what="a roster")
    pid = postman(own_town, "h1")
    kept.unlink()
    kept.mkdir()
    own_town.projects["h2"].do("teamctl", "spawn", "bob", "coder", "Wait for mail.", "--wait")
    log = HostPlaces(own_town.projects["h1"].paths).log
    wait_until(lambda: "roster not kept" in log.read_text(), what="it could not be kept")
    own_town.on("h2", "send", "lead@project@h1", "meanwhile")
    wait_until(lambda: "meanwhile" in inbox(own_town, "h1"), what="mail arrives")
    assert postman(own_town, "h1") == pid
    kept.rmdir()
    wait_until(
        lambda: kept.exists() and b'"bob"' in kept.read_bytes(), timeout_seconds=60, what="again"
    )


def test_ctrl_c_reports_that_the_other_host_may_still_execute_the_command(own_town: Hosts) -> None:
    here, pid = own_town.projects["h1"], postman(own_town, "h2")
    os.kill(pid, signal.SIGSTOP)
    try:
        asking = here.begin("teamctl", "shutdown", "bob@h2", stderr=subprocess.PIPE)
        process = psutil.Process(asking.pid)

        def asks() -> bool:
            return any(one.raddr.port == own_town.port for one in _connections(process))

        wait_until(asks, what="the request")
        asking.send_signal(signal.SIGINT)
        _, stderr = asking.communicate(timeout=20)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert asking.returncode == 130
    assert stderr.startswith("teamctl: the request stands: h2 may do it within ")
    assert stderr.endswith("; `teamctl team --hosts` shows it\n")


def _connections(process: psutil.Process) -> list[Any]:
    return [one for one in process.net_connections() if one.raddr]
