"""The server of the page over real sockets: what it refuses, and what it survives."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

from tests.e2e.served import Server, events, served
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness import Project

MANY: Final = 10_000
# Opens so many connections, sends what it is told over each, and keeps them.
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


def raw(server: Server, path: str, *headers: str) -> bytes:
    """Ask for a path just as it is written."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {server.host}", "Connection: close", *headers]
    shown = f"Authorization: Bearer {server.token}"
    return server.send("\r\n".join([*lines, shown, "", ""]).encode())


def test_the_page_is_served_and_nothing_else(server: Server) -> None:
    status, headers, content = server.ask("/", headers={})
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/main.js" in content
    for name in ("main.js", "style.css"):
        assert server.ask(f"/{name}", headers={})[0] == 200
    for name in ("nothing", "static/main.js", "__init__.py", "guard.py", ".team/config.json"):
        assert server.ask(f"/{name}")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/../pages.py",
        "/../../../../../../etc/passwd",
        "/..%2f..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/main.js/../../pages.py",
        "/api/transcript?name=../config",
        "/api/transcript?name=..%2fconfig",
        "/api/transcript?name=alice.jsonl%00",
        "/api/log?name=../../team.toml",
        "/api/log?name=/etc/passwd",
        "/api/diff?name=../..",
        "/api/trace?id=../../etc/passwd",
        "/api/do/../session",
    ],
)
def test_no_path_leads_out(server: Server, path: str) -> None:
    head, _, body = raw(server, path).partition(b"\r\n\r\n")
    assert head.split()[1] in (b"404", b"409", b"405"), head
    assert b"root:" not in body
    assert b"members" not in body
    assert b"import" not in body


def test_what_browsers_tell_of_other_pages_is_refused(server: Server) -> None:
    """The guard has tests of its own; here its headers come through the wire."""
    elsewhere = "http://127.0.0.1:1"  # a page on another local port
    assert raw(server, "/api/session").split()[1] == b"200"
    assert raw(server, "/api/session", f"Origin: {elsewhere}").split()[1] == b"403"
    assert raw(server, "/api/session", "Sec-Fetch-Site: same-site").split()[1] == b"403"
    assert raw(server, "/", "Sec-Fetch-Dest: iframe").split()[1] == b"403"
    foreign = b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert server.send(foreign).split()[1] == b"421"
    for token in ("", "x", server.token[:-1]):
        assert server.ask("/api/session", headers={"Authorization": f"Bearer {token}"})[0] == 401
    plain = {**server.headers, "Content-Type": "text/plain"}  # all that a no-cors script may send
    body = json.dumps({"to": "alice", "text": "x"})
    assert server.ask("/api/do/send", body=body, headers=plain)[0] == 415
    assert server.ask("/api/do/nothing", body="{}")[0] == 404
    for broken in ("", "x", "[]", "[" * 100_000):
        assert server.ask("/api/do/send", body=broken)[0] == 400
    assert server.ask("/api/do/send", body="x" * (3 << 20))[0] == 413


def test_no_answer_sets_a_cookie(server: Server) -> None:
    for path in ("/", "/main.js", "/nothing", "/api/session", "/api/mail", "/api/do/send"):
        for headers in ({}, server.headers):
            for body in (None, "{}"):
                _, found, _ = server.ask(path, headers=headers, body=body)
                assert "set-cookie" not in found
                assert "frame-ancestors 'none'" in found["content-security-policy"]


def test_tokens_die_with_the_process(project: Project) -> None:
    project.enlist("alice")
    with served(project) as first:
        address, old = first.address[1], first.headers
        assert first.ask("/api/session")[0] == 200
    with served(project, "--port", str(address)) as second:
        assert second.address == first.address
        assert second.ask("/api/session", headers=old)[0] == 401
        assert second.ask("/api/session")[0] == 200


def test_a_link_for_reading_only_reads(project: Project) -> None:
    project.enlist("alice")
    with served(project, "--readonly") as server:
        assert server.get("session") == {
            "may_act": False, "reading": None, "boot": server.get("session")["boot"],
        }  # fmt: skip
        status, said = server.act("send", to="alice", text="x")
        assert status == 403
        assert "for reading only" in said
        assert project.mail("alice") == ""
    with served(project) as server:
        reading = Server(f"http://{server.host}/#token={server.get('session')['reading']}", 0)
        assert reading.get("session")["may_act"] is False
        assert reading.act("send", to="alice", text="x")[0] == 403
        assert server.act("send", to="alice", text="x") == (200, "sent to alice")


def test_what_is_done_is_what_the_command_does(server: Server, project: Project) -> None:
    assert server.act("send", to="ALICE", text="hello", key="k1") == (200, "sent to alice")
    assert server.act("send", to="alice", text="hello", key="k1")[0] == 200  # a repeated one
    assert server.act("broadcast", text="to all") == (200, "sent to alice, bob")
    mail = json.loads(project.do("teamctl", "inbox", "alice", "--json"))["messages"]
    assert [one["content"] for one in mail] == ["hello", "to all"]
    assert {one["from"] for one in mail} == {"lead"}
    assert server.act("send", to="carol", text="x") == (
        409, "no teammate named 'carol'; the team is: alice, bob",
    )  # fmt: skip
    assert server.act("send", to="alice", text=" ") == (422, "text is empty; fill it in")
    assert server.act("send", to=7, text="x") == (422, "to has to be a text")
    assert server.act("resume", name="alice", usd="x") == (422, "usd has to be a number")
    assert server.act("approve", id="nothing")[0] == 409
    status, said = server.act("spawn", name="carol", role="coder", prompt="Go.")
    assert status == 503
    assert said == f"no teamd runs for {project.paths.root}; start it with `teamd start`"
    assert server.act("spawn", name="a/b", role="coder", prompt="Go.")[0] == 409
    assert server.act("shutdown", name="alice")[0] == 503
    assert server.act("interrupt", name="alice", text="Stop.")[0] == 503


def test_looking_leaves_every_inbox_as_it_is(server: Server, project: Project) -> None:
    for name in ("alice", "bob", "lead"):
        project.do("teamctl", "send", name, "hello", "--from", "user")

    def everything() -> dict[str, tuple[bytes, int]]:
        files = [path for path in project.paths.root.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = everything()
    with server.opened("/api/events") as stream:
        assert next(events(stream))["event"] == "snapshot"
        for path in ("mail", "mail?words=x", "transcript?name=alice", "log?name=alice"):
            server.get(path)
        identity = server.get("mail")["messages"][0]["id"]
        assert server.get(f"trace?id={identity}") == json.loads(
            project.do("teamctl", "trace", identity, "--json")
        )
    assert everything() == before


def test_the_events_show_what_team_json_shows_and_resume(server: Server, project: Project) -> None:
    with server.opened("/api/events") as stream:
        first = next(events(stream))
    assert first["event"] == "snapshot"
    shown = json.loads(project.do("teamctl", "team", "--json"))
    assert {key: first["data"]["team"][key] for key in shown} == shown
    assert first["data"]["roster"] == json.loads(project.paths.config.read_bytes())
    project.enlist("alice", "bob", "carol")
    with server.opened(
        "/api/events", headers={**server.headers, "Last-Event-ID": first["id"]}
    ) as s:
        kinds = {}
        for event in events(s):
            kinds[event["event"]] = event["data"]
            if {"team", "roster"} <= kinds.keys():
                break
    assert "snapshot" not in kinds
    assert len(kinds["roster"]["members"]) == 3


def test_a_line_that_another_program_appends_is_seen_at_once(
    server: Server, project: Project
) -> None:
    with server.opened("/api/events") as stream:
        found = events(stream)
        next(found)
        line = json.dumps({"from": "cron", "content": "appended"})
        inbox = project.paths.inbox("alice")
        subprocess.run(["flock", inbox, "-c", f"echo '{line}' >> {inbox}"], check=True)
        assert next(one for one in found if one["event"] == "mail")["data"]["waiting"] == 1
    assert server.get("mail?words=appended")["messages"][0]["from"] == "cron"


def test_a_socket_in_a_file_is_its_owners_alone(project: Project) -> None:
    project.enlist("alice")
    file = project.folder / "page.sock"
    with served(project, "--socket", str(file)) as server:
        assert server.host == "127.0.0.1:8080"  # what `ssh -L 8080:page.sock` makes of it
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
            f"teamctl: another server listens at {file}; end it, or name another place"
        )
    assert not file.exists()


def test_a_socket_that_a_killed_server_left_is_replaced(project: Project) -> None:
    project.enlist("alice")
    file = project.folder / "page.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(file))
    with served(project, "--socket", str(file)):
        pass
    file.write_text("mine")
    refused = project.run("teamctl", "web", "--socket", str(file))
    assert (refused.status, refused.complaint) == (
        1, f"teamctl: {file} is there already and is no socket; name another place",
    )  # fmt: skip
    assert file.read_text() == "mine"


def test_a_port_that_is_taken_is_told(server: Server, project: Project) -> None:
    port = str(server.address[1])
    refused = project.run("teamctl", "web", "--port", port)
    assert (refused.status, refused.complaint) == (
        1,
        f"teamctl: port {port} cannot be used (Address already in use); name another with --port",
    )


def test_it_listens_on_loopback_only(server: Server) -> None:
    listening = [
        one.laddr.ip
        for one in psutil.Process(server.pid).net_connections()
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_without_the_extra_a_line_says_how_to_get_it(project: Project) -> None:
    project.enlist("alice")
    hide = "import sys; sys.modules['starlette'] = None; from teamctl.main import main; main()"
    ended = project.run(sys.executable, "-c", hide, "web")
    needs = "`teamctl web` needs packages that are not installed"
    assert ended.status == 1
    assert ended.complaint == f"teamctl: {needs}; `pip install 'teamd[web]'` installs them"


@pytest.mark.alone
def test_ten_thousand_open_connections_keep_nobody_out(server: Server, project: Project) -> None:
    """They say nothing, begin a request without end, or ask for what they may not have."""
    before = psutil.Process(server.pid).memory_info().rss
    with server.opened("/api/events") as stream:
        found = events(stream)
        next(found)
        crowds = []
        for first in ("", "GET / HTTP/1.1\r\nX: ", "GET /api/events HTTP/1.1\r\n\r\n") * 4:
            argv = (sys.executable, "-c", CROWD, str(server.address[1]), str(MANY // 12 + 1), first)
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            crowds.append(project.begin(*argv, **pipes))
        for crowd in crowds:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == "open\n"
        assert server.get("session")["may_act"]
        assert server.act("send", to="alice", text="still there") == (200, "sent to alice")
        assert next(one for one in found if one["event"] == "mail")["data"]["waiting"] == 1
        process = psutil.Process(server.pid)
        assert process.num_fds() < 1024
        assert process.memory_info().rss - before < 64 << 20
        for crowd in crowds:
            crowd.kill()


def test_a_reader_that_does_not_read_is_cut_off(server: Server, project: Project) -> None:
    """Others get each event at once meanwhile, and its memory is given back."""
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


def test_a_frozen_or_killed_server_delays_no_mail(server: Server, project: Project) -> None:
    """It holds no lock while it sends: stopped at any moment, it stands in nobody's way."""
    for _ in range(5):
        with server.opened("/api/events") as stream:
            next(events(stream))
            os.kill(server.pid, signal.SIGSTOP)
            try:
                project.do("teamctl", "send", "alice", "x")  # it gives up where a lock is held
            finally:
                os.kill(server.pid, signal.SIGCONT)


def test_ctrl_c_ends_it_quietly_while_a_page_is_open(project: Project) -> None:
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


def test_all_that_a_page_loads_is_small() -> None:
    folder = Path(__file__).parents[2] / "teamctl" / "web" / "static"
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 80_000
