"""Hosts that will not come back are shown until a person has them forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teamd.files import files
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import Outbox, count_waiting
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import HostState, Views
from teamd.messages import Message
from tests.e2e.harness import Project
from tests.hosts.towns import Hosts, hosts
from tests.waiting import wait_until

NO_H2 = "teamctl: no host named 'h2'; the others are: h3; `teamctl hosts` shows them"


@pytest.fixture
def known(project: Project) -> Project:
    """A project that knows two other hosts and has no postman."""
    project.ask_no_service('[hosts]\nname = "h1"\nservers = ["nats://127.0.0.1:9"]\n')
    project.paths.create()
    HostPlaces(project.paths).create()
    for host in ("h2", "h3"):
        message = Message(sender="lead", to="bob", content="x", id=host).to_json()
        Outbox(project.paths, host).append(to="bob", team="project", message=message)
    views = Views(project.paths)
    views.change("h2", state=HostState.UNREACHABLE, since=1.0)
    views.write()
    return project


def test_a_forgotten_host_is_no_longer_shown(known: Project) -> None:
    assert known.do("teamctl", "hosts", "forget", "H2") == (
        "h2 is forgotten\ndropped: a line that waited for it\n"
    )
    assert FarHosts(known.paths, "h1").known() == ["h3"]
    for argv in (("hosts", "forget", "h2"), ("send", "bob@project@h2", "x")):
        again = known.run("teamctl", *argv)
        assert (again.status, again.complaint) == (1, NO_H2)
    forgotten = json.loads(known.do("teamctl", "hosts", "forget", "h3", "--json"))
    assert forgotten == {"host": "h3", "dropped": 1}


def test_a_host_with_a_damaged_outbox_can_be_forgotten(known: Project) -> None:
    outbox = HostPlaces(known.paths).outbox("h2")
    files.replace(outbox.with_suffix(".rejected.jsonl"), b"?\n")
    files.replace(outbox, b"?\n")
    assert known.do("teamctl", "hosts", "forget", "h2") == (
        "h2 is forgotten\ndropped: a line that waited for it\n"
    )
    assert FarHosts(known.paths, "h1").known() == ["h3"]


def test_a_host_named_in_the_settings_cannot_be_forgotten(known: Project) -> None:
    known.ask_no_service('[hosts]\nname = "h1"\nallow = { spawn = ["h2"] }\n')
    refused = known.run("teamctl", "hosts", "forget", "h2")
    assert (refused.status, refused.complaint) == (
        1, "teamctl: [hosts] allow names h2; remove it from team.toml first"
    )  # fmt: skip
    assert HostPlaces(known.paths).outbox("h2").exists()


def look_anew(town: Hosts) -> dict[str, str]:
    """Make h1 reconnect and so check all known hosts; return their states."""
    town.kill_broker()
    town.wait_for("h1", "h3", "unreachable")
    town.start_broker()
    town.wait_for("h1", "h3", "reachable")
    return town.states("h1")


@pytest.mark.slow
def test_a_running_postman_forgets_a_host_and_accepts_it_when_it_returns(tmp_path: Path) -> None:
    with hosts(tmp_path, ["h1", "h2", "h3"]) as town:
        town.start_broker()
        for host in ("h2", "h3"):
            town.wait_for("h1", host, "reachable")
        there = town.on("h1", "hosts", "forget", "h2")
        assert (there.status, there.complaint) == (
            1, ("teamctl: h2 is reachable; `teamctl hosts remove h2` on the broker's host shuts "
               "it out")
        )  # fmt: skip
        town.on("h1", "send", "lead@project@h2", "before")
        wait_until(
            lambda: count_waiting(town.projects["h1"].paths, "h2") == 0, what="it is confirmed"
        )
        town.projects["h2"].do("teamd", "stop")
        town.wait_for("h1", "h2", "unreachable")
        (row,) = (one for one in town.json("h1", "hosts")["hosts"] if one["name"] == "h2")
        assert row["round_trip_ms"] is None
        HostPlaces(town.projects["h1"].paths).outbox("h2").unlink()
        assert look_anew(town)["h2"] == "unreachable", "one file less is no word of a person"
        town.kill_broker()
        town.wait_for("h1", "h3", "unreachable")
        town.on("h1", "send", "lead@project@h2", "dropped")
        forgotten = town.on("h1", "hosts", "forget", "h2")
        assert forgotten.stdout == "h2 is forgotten\ndropped: a line that waited for it\n"
        town.start_broker()
        town.wait_for("h1", "h3", "reachable")
        assert look_anew(town) == {"h3": "reachable"}
        town.projects["h2"].start()
        town.wait_for("h1", "h2", "reachable")
        town.on("h1", "send", "lead@project@h2", "after")
        inbox = town.projects["h2"].paths.inbox("lead")
        wait_until(lambda: b"after" in inbox.read_bytes(), what="mail goes there again")
        assert b"dropped" not in inbox.read_bytes()
