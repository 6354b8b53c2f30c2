"""The web server over real sockets: refused requests, and pages that follow every change."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from teamctl.web.page_actions import ACTIONS
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from teamd.team import teams
from tests.e2e.browser import Server, events, served, wait_for_mail
from tests.e2e.harness import Project, opened


@pytest.fixture
def server(project: Project) -> Iterator[Server]:
    """A server of a team without any process."""
    project.enlist("alice", "bob")
    with served(project) as made:
        yield made


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A shared server for the tests that change nothing."""
    with opened(tmp_path_factory.mktemp("web")) as project:
        project.enlist("alice", "bob")
        with served(project) as made:
            yield made


def _files(project: Project) -> dict[str, tuple[bytes, int]]:
    files = [path for path in project.paths.root.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def raw(server: Server, path: str, *headers: str) -> bytes:
    """Request a path exactly as written."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {server.host}", "Connection: close", *headers]
    shown = f"Authorization: Bearer {server.token}"
    return server.send("\r\n".join([*lines, shown, "", ""]).encode())


def test_only_the_page_is_served(untouched: Server) -> None:
    status, headers, content = untouched.ask("/", headers={})
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/main.js" in content
    for name in ("main.js", "style.css"):
        assert untouched.ask(f"/{name}", headers={})[0] == 200
    for name in ("nothing", "static/main.js", "__init__.py", "guard.py", ".team/config.json"):
        assert untouched.ask(f"/{name}")[0] == 404


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
def test_no_path_leads_out_of_the_served_files(untouched: Server, path: str) -> None:
    head, _, body = raw(untouched, path).partition(b"\r\n\r\n")
    assert head.split()[1] in (b"404", b"409", b"405"), head
    assert b"root:" not in body
    assert b"members" not in body
    assert b"import" not in body


def test_requests_from_other_pages_are_refused(untouched: Server) -> None:
    """The guard has its own tests; here its headers come over a real socket."""
    elsewhere = "http://127.0.0.1:1"  # a page on another local port
    assert raw(untouched, "/api/session").split()[1] == b"200"
    assert raw(untouched, "/api/session", f"Origin: {elsewhere}").split()[1] == b"403"
    assert raw(untouched, "/api/session", "Sec-Fetch-Site: same-site").split()[1] == b"403"
    assert raw(untouched, "/", "Sec-Fetch-Dest: iframe").split()[1] == b"403"
    foreign = b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert untouched.send(foreign).split()[1] == b"421"
    for token in ("", "x", untouched.token[:-1]):
        assert untouched.ask("/api/session", headers={"Authorization": f"Bearer {token}"})[0] == 401
    plain = {
        **untouched.headers,
        "Content-Type": "text/plain",
    }  # all that a no-cors script may send
    body = json.dumps({"to": "alice", "text": "x"})
    assert untouched.ask("/api/do/send", body=body, headers=plain)[0] == 415
    assert untouched.ask("/api/do/nothing", body="{}")[0] == 404
    for broken in ("", "x", "[]", "[" * 100_000):
        assert untouched.ask("/api/do/send", body=broken)[0] == 400
    assert untouched.ask("/api/do/send", body="x" * (3 << 20))[0] == 413


def test_tokens_are_invalid_after_the_process_ends(project: Project) -> None:
    project.enlist("alice")
    with served(project) as first:
        address, old = first.address[1], first.headers
        assert first.ask("/api/session")[0] == 200
    with served(project, "--port", str(address)) as second:
        assert second.address == first.address
        assert second.ask("/api/session", headers=old)[0] == 401
        assert second.ask("/api/session")[0] == 200


def test_a_read_only_link_cannot_act(project: Project) -> None:
    project.enlist("alice")
    with served(project, "--readonly") as server:
        session = server.get("session")
        assert (session["may_act"], session["reading"]) == (False, None)
        status, said = server.act("send", to="alice", text="x")
        assert status == 403
        assert "for reading only" in said
        assert project.mail("alice") == ""
    with served(project) as server:
        reading = Server(f"http://{server.host}/#token={server.get('session')['reading']}", 0)
        assert reading.get("session")["may_act"] is False
        assert reading.act("send", to="alice", text="x")[0] == 403
        assert server.act("send", to="alice", text="x") == (200, "sent to alice")


@pytest.mark.parametrize("options", [(), ("--readonly",)])
def test_a_read_only_link_is_refused_every_action(
    project: Project, options: tuple[str, ...]
) -> None:
    project.enlist("alice")
    with served(project, *options) as server:
        token = server.get("session")["reading"] or server.token
        reading = Server(f"http://{server.host}/#token={token}", 0)
        values = {"id": "1", "name": "alice", "to": "alice", "owner": "alice"}
        words = {"text": "x", "subject": "x", "role": "coder", "prompt": "x"}
        before = _files(project)
        for action in ACTIONS:
            status, said = reading.act(action, **values, **words)
            assert (status, "for reading only" in said) == (403, True), action
        assert _files(project) == before


def test_actions_of_the_page_have_the_same_effect_as_the_commands(
    server: Server, project: Project
) -> None:
    assert server.act("send", to="ALICE", text="hello", key="k1") == (200, "sent to alice")
    assert server.act("send", to="alice", text="hello", key="k1")[0] == 200  # repeated
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


def test_reading_pages_leaves_every_inbox_unchanged(server: Server, project: Project) -> None:
    for name in ("alice", "bob", "lead"):
        project.do("teamctl", "send", name, "hello", "--from", "user")
    before = _files(project)
    with server.opened("/api/events") as stream:
        assert next(events(stream))["event"] == "snapshot"
        for path in ("mail", "mail?words=x", "transcript?name=alice", "log?name=alice"):
            server.get(path)
        identity = server.get("mail")["messages"][0]["id"]
        assert server.get(f"trace?id={identity}") == json.loads(
            project.do("teamctl", "trace", identity, "--json")
        )
    assert _files(project) == before


def test_the_events_match_team_json_and_follow_changes(server: Server, project: Project) -> None:
    kinds: dict[str, Any] = {}
    with server.opened("/api/events") as stream:
        found = events(stream)
        first = next(found)
        shown = json.loads(project.do("teamctl", "team", "--json"))
        assert first["event"] == "snapshot"
        assert {key: first["data"]["team"][key] for key in shown} == shown
        assert first["data"]["roster"] == json.loads(project.paths.config.read_bytes())
        project.enlist("alice", "bob", "carol")
        while not {"team", "roster"} <= kinds.keys():
            event = next(found)
            kinds[event["event"]] = event["data"]
    assert len(kinds["roster"]["members"]) == 3
    with server.opened("/api/events") as stream:  # a page that connects again
        again = next(events(stream))
    assert (again["event"], again["id"]) == ("snapshot", first["id"])
    assert again["data"]["roster"] == kinds["roster"]


def test_a_line_appended_by_another_program_is_seen_at_once(
    server: Server, project: Project
) -> None:
    with server.opened("/api/events") as stream:
        found = events(stream)
        next(found)
        line = json.dumps({"from": "cron", "content": "appended"})
        inbox = project.paths.inbox("alice")
        subprocess.run(["flock", inbox, "-c", f"echo '{line}' >> {inbox}"], check=True)
        wait_for_mail(found)
    assert server.get("mail?words=appended")["messages"][0]["from"] == "cron"


def test_the_full_link_reaches_all_teams_and_a_read_only_link_only_its_own(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.enlist("alice")
    other = TeamPaths(project.root / "billing" / ".team")
    other.create()
    other.config.write_text('{"team_name": "billing", "members": [{"name": "zoe"}]}')
    monkeypatch.setenv(STATE_VARIABLE, project.environment[STATE_VARIABLE])
    teams.remember(other)
    with served(project) as server:
        listed = {one["project"]: one["key"] for one in server.get("teams")["teams"]}
        assert set(listed) == {"billing", "project"}
        key = listed["billing"]
        assert server.get(f"team/{key}/session")["project"] == "billing"
        assert server.act_at(f"team/{key}", "send", to="zoe", text="x") == (200, "sent to zoe")
        with server.opened(f"/api/team/{key}/events") as stream:
            assert next(events(stream))["data"]["team"]["team_name"] == "billing"
        assert server.ask("/api/team/0123456789abcdef/session")[0] == 404
        reading = Server(f"http://{server.host}/#token={server.get('session')['reading']}", 0)
        assert [one["project"] for one in reading.get("teams")["teams"]] == ["project"]
        status, _, content = reading.ask(f"/api/team/{key}/session")
        assert (status, json.loads(content)) == (403, {"error": "this link shows one team only"})
        assert server.ask(f"/api/team/{key}/session", headers={})[0] == 401


def test_board_actions_have_the_same_effect_as_the_commands(
    server: Server, project: Project
) -> None:
    assert server.act("add-task", subject="Write", key="k1") == (200, "task 1 is on the board")
    assert server.act("add-task", subject="Write", key="k1") == (200, "task 1 is on the board")
    assert server.act("claim-task", id="1", owner="alice") == (200, "alice has task 1")
    assert server.act("claim-task", id="1", owner="bob")[0] == 409
    assert server.act("change-task", id="1", status="completed") == (200, "task 1 is completed")
    (task,) = json.loads(project.do("teamctl", "tasks", "--json"))["tasks"]
    assert (task["subject"], task["owner"], task["status"]) == ("Write", "alice", "completed")
    assert server.act("change-task", id="1", status="nonsense") == (
        422, "status has to be one of: pending, in_progress, checking, completed, deleted",
    )  # fmt: skip
    assert server.act("add-task", subject=" ")[0] == 422
    assert server.act("tell", text="Hello.")[0] == 503  # only teamd can start a lead
    assert server.act("enqueue", name="alice")[0] == 409
    assert server.act("dequeue", id="7")[0] == 409
