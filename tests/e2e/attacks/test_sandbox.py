"""The limits of a teammate's tools, tested through the real commands and the service."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from teamd.programs.cgroup import Cgroup
from teamd.sandbox.build import group_name
from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until


def bash(command: str) -> tuple[str, dict[str, str]]:
    return ("bash", {"command": command})


def results(project: Project, name: str) -> list[str]:
    """Return the tool results that the model read last."""
    return [result.text for result in project.asked(name, least=1)[-1].asked.last_results]


def names(project: Project) -> set[str]:
    """Return the names of the files in the workspace."""
    return {path.name for path in project.folder.iterdir()}


def test_a_teammate_changes_only_its_workspace(project: Project) -> None:
    outside = project.root / "outside"
    outside.mkdir()
    project.stage.play(
        "ann",
        use(
            bash(f"echo x > {outside}/planted; cat .team/config.json; echo x > .team/planted"),
            bash("mkdir -p .vscode; echo evil > .vscode/tasks.json; echo evil > AGENTS.md"),
            ("write_file", {"path": ".vscode/tasks.json", "content": "evil"}),
            ("write_file", {"path": "AGENTS.md", "content": "evil"}),
            ("write_file", {"path": "team.toml", "content": "[tools]\nsandbox = 'off'\n"}),
            bash("echo fine > made; git init -q; git add made; git commit -qm made && echo done"),
        ),
        say("Tried."),
    )
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle", turns=2)
    planted, made, *written, done = results(project, "ann")
    assert "No such file or directory" in planted
    assert "Read-only file system" in made
    sentence = "is protected and stays as it is: it runs by itself, or tells agents what to do"
    assert [sentence in text for text in written] == [True, True, True]
    assert done == "done"
    assert list(outside.iterdir()) == []
    wait_until(lambda: names(project) == {".team", ".git", "made"}, what="no placeholder is left")
    assert not (project.paths.root / "planted").exists()


@pytest.mark.slow
def test_the_sandbox_around_commands_is_reported(project: Project) -> None:
    project.write("team.toml", '[role.tester]\nhosts = ["docs.example.org"]\n')
    project.start()
    for name, role in (("ann", "coder"), ("bob", "tester")):
        project.do("teamctl", "spawn", name, role, "Go.", "--wait")
    assert "\nsandbox: bubblewrap, no network\n" in project.do("teamd", "status")
    shown = project.do("teamctl", "team")
    assert "\nbob: sandbox bubblewrap, hosts: docs.example.org\n" in shown
    assert shown.endswith("\nsandbox: bubblewrap, no network\n")
    assert (
        "commands run in a sandbox: bubblewrap, no network"
        in project.run("teamctl", "doctor").stdout
    )
    assert json.loads(project.do("teamd", "status", "--json"))["sandbox"].startswith("bubblewrap")


@pytest.fixture
def bare(project: Project) -> Project:
    """A project where bubblewrap is not installed."""
    programs = project.root / "programs"
    programs.mkdir()
    for folder in map(Path, project.environment["PATH"].split(os.pathsep)):
        for program in folder.iterdir() if os.access(folder, os.R_OK) else ():
            link = programs / program.name
            if program.name != "bwrap" and not link.is_symlink():
                link.symlink_to(program)
    project.environment["PATH"] = str(programs)
    return project


@pytest.mark.slow
def test_without_bubblewrap_a_team_works_but_commands_are_refused(bare: Project) -> None:
    started = bare.run("teamd", "start")
    assert started.status == 0
    why = "bubblewrap is not installed, so commands are refused; `apt install bubblewrap`"
    assert started.stderr.startswith(f"teamd: sandbox none: {why}")
    assert started.stderr.count("\n") == 1
    bare.stage.play(
        "ann",
        use(bash("touch ran"), ("write_file", {"path": "written", "content": "x"})),
        say("Hm."),
    )
    bare.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    bare.wait_for("ann", "idle", turns=2)
    refused, written = results(bare, "ann")
    assert refused.startswith("commands are refused: bubblewrap is not installed")
    assert written.startswith("wrote 1 line")
    assert not (bare.folder / "ran").exists()


@pytest.mark.parametrize("kind", ["off", "external"])
def test_without_a_sandbox_every_start_warns(project: Project, kind: str) -> None:
    project.write("team.toml", f'[tools]\nsandbox = "{kind}"\n')
    started = project.run("teamd", "start")
    assert started.stderr.startswith(f"teamd: sandbox {kind}: commands run with your rights")


def test_a_killed_teammate_leaves_no_placeholders(project: Project) -> None:
    """Its commands end with it, and its supervisor cleans up the workspace."""
    planting = "git init -q; echo evil > .git/hooks/pre-commit; touch begun; sleep 1000"
    project.stage.play("ann", use(bash(planting)), say("Killed?"))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    wait_until((project.folder / "begun").exists, what="the command runs")
    assert (project.folder / ".vscode").is_dir()
    os.kill(project.wait_for("ann", "working")["pid"], signal.SIGKILL)
    project.wait_for("ann", "idle", turns=2)
    assert not (project.folder / ".git/hooks/pre-commit").exists()
    wait_until(lambda: names(project) == {".team", ".git", "begun"}, what="no placeholder is left")
    (taken,) = project.log("teamd", "taken out of protected places")
    assert taken["names"] == [".git/hooks/pre-commit"]


def names_in(group: Cgroup) -> set[str]:
    """Return the names of the programs in a control group."""
    names = set[str]()
    for pid in (group.path / "cgroup.procs").read_text().split():
        with suppress(OSError):  # it has just ended
            names.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return names


@pytest.mark.slow
def test_a_job_cannot_create_a_repository(project: Project) -> None:
    """A job may run for hours, during which the repository's hooks would go unnoticed."""
    project.stage.play(
        "ann",
        use(("background_run", {"command": "git init -q && echo evil > .git/hooks/pre-commit"})),
        say("Begun."),
    )
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle", turns=3)
    wait_until(lambda: names(project) == {".team"}, what="no placeholder is left")


def test_a_stopped_team_leaves_no_control_group(project: Project) -> None:
    project.stage.play("ann", use(bash("true"), ("background_run", {"command": "sleep 100"})))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    wait_until(lambda: len(project.asked("ann")) == 2, what="the job runs")
    group = Cgroup.find(group_name(project.paths, "ann"))
    if group is None or Cgroup.make(group.path.name, 100) is None:
        pytest.skip("this user may not make control groups")
    wait_until(lambda: "sleep" in names_in(group), what="the job is in it, as its teammate is")
    project.do("teamd", "stop")
    assert not group.path.exists()


class Page(BaseHTTPRequestHandler):
    """A web page that answers every request."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a web server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_only_named_hosts_can_be_reached(project: Project, port: int) -> None:
    project.write("team.toml", f'[tools]\nhosts = ["localhost:{port}"]\n')
    project.write(
        "fetch.py", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)"
    )
    addresses = (f"http://localhost:{port}/", "http://example.org/", f"http://127.0.0.1:{port}/")
    fetches = [bash(f"python3 fetch.py {address} 2>&1 | tail -1") for address in addresses]
    project.stage.play("ann", use(*fetches), say("Tried."))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle", turns=2)
    named, other, number = results(project, "ann")
    assert named == "200"
    assert other == "urllib.error.HTTPError: HTTP Error 403: Forbidden"
    assert "Connection refused" in number
