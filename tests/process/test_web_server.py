"""The process of the web server: its address, its end, and hostile clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import psutil
import pytest

from teamd.command_line.installation import install_command
from tests.e2e.browser import Server, events, served, tunnel, wait_for_mail
from tests.e2e.harness import Project
from tests.waiting import wait_until

# Opens that many connections, sends the given text over each, and keeps them open.
CROWD: Final = """
import socket, sys
port, many, first = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
kept = []
for _ in range(many):
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    try:
        one.sendall(first)
    except OSError:
        pass
    kept.append(one)
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(project: Project) -> Iterator[Server]:
    """A server of a team without any process."""
    project.enlist("alice", "bob")
    with served(project) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    "many",
    [
        2_000,  # more than its limit of open connections
        pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(600)]),
    ],
)
def test_thousands_of_open_connections_do_not_block_other_clients(
    server: Server, project: Project, many: int
) -> None:
    """The connections are silent, send an endless request, or lack a token."""
    before = psutil.Process(server.pid).memory_info().rss
    with server.opened("/api/events") as stream:
        found = events(stream)
        next(found)
        crowds = []
        for first in ("", "GET / HTTP/1.1\r\nX: ", "GET /api/events HTTP/1.1\r\n\r\n") * 4:
            argv = (sys.executable, "-c", CROWD, str(server.address[1]), str(many // 12 + 1), first)
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            crowds.append(project.begin(*argv, **pipes))
        for crowd in crowds:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == "open\n"
        assert server.get("session")["may_act"]
        assert server.act("send", to="alice", text="still there") == (200, "sent to alice")
        wait_for_mail(found)
        process = psutil.Process(server.pid)
        assert process.num_fds() < 1024
        assert process.memory_info().rss - before < 64 << 20
        for crowd in crowds:
            crowd.kill()


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(server: Server, project: Project) -> None:
    """Other clients still get each event at once, and the memory is released."""
    asked = f"GET /api/events HTTP/1.1\r\nHost: {server.host}\r\n"
    shown = f"Authorization: Bearer {server.token}\r\n\r\n"
    with socket.socket() as slow, server.opened("/api/events") as stream:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        slow.connect(server.address)
        slow.sendall((asked + shown).encode())
        found = events(stream)
        next(found)
        for number in range(60):
            project.enlist("alice", note=f"{number} {'x' * 100_000}")
            while next(found)["event"] != "roster":
                pass
        own = slow.getsockname()

        def cut() -> bool:
            there = psutil.Process(server.pid).net_connections()
            return not any(one.raddr and tuple(one.raddr) == own for one in there)

        wait_until(cut, timeout_seconds=30, what="the slow reader is cut off")
        assert server.get("session")["may_act"]


def test_a_frozen_or_killed_server_does_not_delay_mail(server: Server, project: Project) -> None:
    """The server holds no lock while it sends, so a stop at any moment blocks no other process."""
    for _ in range(5):
        with server.opened("/api/events") as stream:
            next(events(stream))
            os.kill(server.pid, signal.SIGSTOP)
            try:
                project.do("teamctl", "send", "alice", "x")  # this fails if a lock is held
            finally:
                os.kill(server.pid, signal.SIGCONT)


def test_ctrl_c_ends_the_server_quietly_while_a_page_is_open(project: Project) -> None:
    project.enlist("alice")
    begun = project.begin("teamctl", "web", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert begun.stdout is not None
    assert begun.stderr is not None
    server = Server(begun.stdout.readline().strip(), begun.pid)
    with server.opened("/api/events") as stream:
        next(events(stream))
        begun.send_signal(signal.SIGINT)
        assert begun.wait(timeout=10) == 0
    assert (begun.stdout.read(), begun.stderr.read()) == ("", "")


def test_a_socket_file_is_accessible_to_its_owner_only(project: Project) -> None:
    project.enlist("alice")
    file = project.folder / "page.sock"
    with served(project, "--socket", str(file)) as server:
        # A browser sends this host with `ssh -L 8080:page.sock`.
        assert server.host == "127.0.0.1:8080"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        asked = f"GET /api/session HTTP/1.0\r\nHost: {server.host}\r\n"
        shown = f"Authorization: Bearer {server.token}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(str(file))
            made.sendall((asked + shown).encode())
            assert made.recv(1 << 16).split()[1] == b"200"
        second = project.run("teamctl", "web", "--socket", str(file))
        assert second.status == 1
        assert second.complaint == (
            f"teamctl: another server listens at {file}; stop it, or name another path"
        )
    assert not file.exists()


def test_a_tunnel_works_from_the_same_port_and_from_the_forwarded_port(
    project: Project,
) -> None:
    """As `ssh -L` creates them. Another port is refused with a hint at the option for it."""
    project.enlist("alice")
    with socket.create_server(("127.0.0.1", 0)) as kept:
        own = ("127.0.0.1", kept.getsockname()[1])
    with ExitStack() as opened:
        named, other = (opened.enter_context(tunnel(own)) for _ in range(2))
        ports = ("--port", str(own[1]), "--forwarded-port", str(named))
        server = opened.enter_context(served(project, *ports))
        assert server.host == f"127.0.0.1:{named}"
        with server.opened("/api/events") as stream:
            assert next(events(stream))["event"] == "snapshot"
            origin = {"Origin": f"http://{server.host}", "Sec-Fetch-Site": "same-origin"}
            body = '{"to": "alice", "text": "through it"}'
            asked = {"body": body, "headers": {**server.headers, **origin}}
            assert server.ask("/api/do/send", **asked)[0] == 200
        opened.enter_context(tunnel(own, begin=("127.0.0.2", own[1])))  # as on another machine
        same = replace(server, link=f"http://127.0.0.2:{own[1]}/")
        host = {"Host": f"127.0.0.1:{own[1]}"}
        assert same.ask("/api/session", headers={**server.headers, **host})[0] == 200
        far = replace(server, link=server.link.replace(str(named), str(other)))
        status, _, content = far.ask("/api/session")
        assert status == 421
        way = f"for a tunnel from port {other} start `teamctl web --forwarded-port {other}`"
        assert json.loads(content)["error"].endswith(way)
        elsewhere = {**server.headers, "Origin": f"http://127.0.0.1:{other}"}
        assert server.ask("/api/session", headers=elsewhere)[0] == 403


def test_a_socket_left_by_a_killed_server_is_replaced(project: Project) -> None:
    project.enlist("alice")
    file = project.folder / "page.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(file))
    with served(project, "--socket", str(file)):
        pass
    file.write_text("mine")
    refused = project.run("teamctl", "web", "--socket", str(file))
    assert (refused.status, refused.complaint) == (
        1, f"teamctl: {file} already exists and is not a socket; name another path",
    )  # fmt: skip
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("gone/page.sock", "there is no folder {folder}/gone for the socket; name another path"),
        ("x" * 100, "{folder}/{place} is too long for a socket; name a shorter path"),
    ],
    ids=["gone", "long"],
)
def test_an_unusable_socket_path_is_reported(project: Project, place: str, sentence: str) -> None:
    project.enlist("alice")
    refused = project.run("teamctl", "web", "--socket", str(project.folder / place))
    expected = sentence.format(folder=project.folder, place=place)
    assert (refused.status, refused.complaint) == (1, f"teamctl: {expected}")


def test_a_port_in_use_is_reported(server: Server, project: Project) -> None:
    port = str(server.address[1])
    refused = project.run("teamctl", "web", "--port", port)
    assert (refused.status, refused.complaint) == (
        1,
        f"teamctl: port {port} cannot be used (Address already in use); name another with --port",
    )


def test_the_browser_opens_the_link_that_json_names(project: Project) -> None:
    project.enlist("alice")
    programs, opened = project.root / "bin", project.folder / "opened"
    programs.mkdir()
    for name in ("xdg-open", "open"):  # Linux and macOS
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "$1" > {opened}.new\nmv {opened}.new {opened}\n')
        program.chmod(0o755)
    with project.serving("teamctl", "web", "--open", "--json") as (_, line):
        wait_until(opened.exists, what="the browser is started")
        assert json.loads(line) == {"url": opened.read_text().strip()}


def test_no_browser_is_opened_for_a_tunnel(project: Project) -> None:
    project.enlist("alice")
    refused = project.run("teamctl", "web", "--open", "--forwarded-port", "9000")
    assert refused.status == 2
    assert "--open is for a browser on this machine" in refused.stderr


def test_the_server_listens_on_loopback_only(server: Server) -> None:
    listening = [
        one.laddr.ip
        for one in psutil.Process(server.pid).net_connections()
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_missing_web_packages_are_reported_with_the_command_to_install_them(
    project: Project,
) -> None:
    project.enlist("alice")
    hide = "import sys; sys.modules['starlette'] = None; from teamctl.main import main; main()"
    ended = project.run(sys.executable, "-c", hide, "web")
    needs = "`teamctl web` needs packages that are not installed"
    assert ended.status == 1
    assert ended.complaint == f"teamctl: {needs}; `{install_command('web')}` installs them"
