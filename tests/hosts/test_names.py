"""Names on other hosts, from the command line to the other host's conversations and back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hosts.towns import Hosts, hosts
from tests.waiting import wait_until

ALLOW = 'allow = { spawn = ["h1"], shutdown = ["h1"], interrupt = ["h1"] }'


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts that know each other: alice is on the first one, bob on the second."""
    with hosts(tmp_path_factory.mktemp("town"), allow=ALLOW) as made:
        made.start_broker()
        for host, name in (("h1", "alice"), ("h2", "bob")):
            made.projects[host].do("teamctl", "spawn", name, "coder", "Begin.", "--wait")
        made.wait_for("h1", "h2", "reachable")
        made.wait_for("h2", "h1", "reachable")
        wait_until(lambda: members(made, "h1", "h2") == {"bob": "idle"}, what="bob is known")
        yield made


def members(town: Hosts, host: str, other: str) -> dict[str, str]:
    found = town.json(host, "team", "--hosts")["hosts"]
    (there,) = [one for one in found if one["name"] == other]
    return {one["name"]: one["status"] for one in there["members"]}


def mail(town: Hosts, host: str, name: str) -> list[dict[str, Any]]:
    """Return the mail in a conversation."""
    path = town.projects[host].paths.transcript(name)
    lines = path.read_text().splitlines() if path.exists() else []
    return [one for record in map(json.loads, lines) for one in record.get("messages", [])]


def texts(town: Hosts, host: str, name: str) -> list[tuple[str, str]]:
    return [(one["from"], one["content"]) for one in mail(town, host, name)]


def test_a_message_arrives_on_the_other_host_with_its_senders_full_name(
    town: Hosts,
) -> None:
    sent = town.json("h1", "send", "BOB@project@H2", "Begun: branch parse, commit 1f2e3d.")
    assert sent["to"] == "bob@project@h2"
    expected = ("lead@project@h1", "Begun: branch parse, commit 1f2e3d.")
    wait_until(lambda: expected in texts(town, "h2", "bob"), what="it is there")
    assert texts(town, "h2", "bob").count(expected) == 1
    (there,) = town.json("h2", "trace", sent["id"])["receivers"]
    assert (there["stage"], there["from"]) == ("delivered", "lead@project@h1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begun", "offered"),
    [
        ("send b", ["bob@project@h2"]),
        ("send ", ["alice", "lead", "bob@project@h2"]),
        ("spawn ", ["alice", "bob@h2"]),
        ("shutdown bo", ["bob@h2"]),
        ("interrupt bo", ["bob@h2"]),
        ("show bo", []),
    ],
)
def test_shell_completion_offers_names_on_other_hosts(
    town: Hosts, begun: str, offered: list[str]
) -> None:
    env = {
        "_TEAMCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": f"teamctl {begun}",
        "COMP_CWORD": "2",
    }
    completed = town.projects["h1"].run("teamctl", env=env).stdout.split()
    spawned = {"plain,carol@h2", "plain,carol@project@h2"}  # perhaps spawned by another test
    assert [one for one in completed if one not in spawned] == [f"plain,{one}" for one in offered]


def test_repeated_sends_with_one_id_arrive_once_on_another_host(town: Hosts) -> None:
    for _ in range(3):
        town.json("h1", "send", "bob@project@h2", "Once.", "--id", "order-66")
    expected = ("lead@project@h1", "Once.")
    wait_until(lambda: expected in texts(town, "h2", "bob"), what="it is there")
    town.json("h1", "send", "bob@project@h2", "Last.")
    last = ("lead@project@h1", "Last.")
    wait_until(lambda: last in texts(town, "h2", "bob"), what="what came behind it is there")
    assert texts(town, "h2", "bob").count(expected) == 1


def test_mail_to_an_unknown_name_on_another_host_is_answered_by_mail(town: Hosts) -> None:
    town.json("h1", "send", "bbo@project@h2", "Hello?", "--from", "alice")

    def told() -> list[str]:
        found = texts(town, "h1", "alice")
        return [text for sender, text in found if sender == "teamd@project@h2"]

    wait_until(told, what="alice is told")
    assert (
        "your message to bbo was not delivered: no teammate named 'bbo'; the team is: bob"
        in (told()[0])
    )


def test_options_and_addresses_invalid_for_other_hosts_are_refused_at_once(
    town: Hosts,
) -> None:
    refused = town.on("h1", "send", "bob@project@h2", "x", "--wait")
    assert refused.status == 2
    assert "only the host of its receiver knows when it is read" in refused.stderr
    refused = town.on("h1", "spawn", "carol@h2", "coder", "Begin.", "--model", "m", "--fresh")
    assert refused.status == 2
    assert "--model, --fresh cannot be used for a teammate on h2" in refused.stderr
    for words, sentence in (
        (("send", "bob@h2", "x"), "h2 is a host, not a team; write bob@project@h2"),
        (("send", "bob@project@h9", "x"), "no host named 'h9'; the others are: h2"),
        (("spawn", "carol@h9", "coder", "Begin."), "no host named 'h9'; the others are: h2"),
        (("interrupt", "carol@other@h2"), "commands reach the team 'project' only"),
        (("shutdown", "a.b@h2"), "'a.b' cannot be a teammate's name"),
    ):
        refused = town.on("h1", *words)
        assert refused.status == 1
        assert sentence in refused.complaint


def test_a_teammate_can_be_spawned_interrupted_and_shut_down_from_another_host(town: Hosts) -> None:
    done = town.on("h1", "spawn", "carol@h2", "tester", "Test the branch parse.")
    assert (done.status, done.stdout) == (0, "h2: carol (tester) is at work\n")
    there = town.projects["h2"]
    prompt = ("lead@project@h1", "Test the branch parse.")
    wait_until(lambda: prompt in texts(town, "h2", "carol"), what="carol reads her prompt")
    assert there.member("carol").get("spawned_by") is None, "whoever leads there judges her plans"
    wait_until(lambda: members(town, "h1", "h2").get("carol") == "idle", what="carol is idle")

    idle = town.on("h1", "interrupt", "carol@h2")
    assert (idle.status, idle.complaint) == (
        1,
        "teamctl: h2 says: carol is idle; there is nothing to interrupt: `teamctl send` reaches it",
    )
    said = town.on("h1", "interrupt", "carol@project@h2", "Use the other branch.")
    assert (said.status, said.stdout) == (
        0, "h2: carol was idle; it reads your text now\n",
    )  # fmt: skip
    word = ("lead@project@h1", "Use the other branch.")
    wait_until(lambda: word in texts(town, "h2", "carol"), what="carol reads it")

    down = town.on("h1", "shutdown", "carol@h2")
    assert down.status == 0, down.stderr
    assert down.stdout.startswith("h2: carol")
    assert there.member("carol")["status"] == "shutdown"
    again = town.on("h1", "shutdown", "dora@h2")
    assert again.status == 1
    assert "h2 says: no teammate named 'dora'" in again.complaint


def test_a_command_from_a_host_without_permission_is_refused_quickly(town: Hosts) -> None:
    begun = time.monotonic()
    refused = town.on("h2", "spawn", "carol@h1", "tester", "Begin.")
    assert time.monotonic() - begun < 3.0, "a second, and the command's own start under load"
    assert refused.status == 1
    assert refused.complaint == (
        "teamctl: h1 says: h1 does not let h2 spawn teammates: its team.toml has no "
        '"h2" in [hosts] allow spawn'
    )
    assert town.projects["h1"].member("carol") == {}


def test_a_broadcast_reaches_all_hosts(town: Hosts) -> None:
    told = town.on("h1", "broadcast", "Stop pushing to main.", "--all-hosts")
    assert told.stdout.startswith("sent to alice, bob@project@h2")
    expected = ("lead@project@h1", "Stop pushing to main.")
    wait_until(lambda: expected in texts(town, "h2", "bob"), what="bob has it")
    assert ("lead", "Stop pushing to main.") in texts(town, "h1", "alice")


@pytest.mark.slow
def test_without_a_broker_mail_waits_and_commands_fail_and_hosts_shows_since_when(
    town: Hosts,
) -> None:
    """One test for all, because it kills the broker that the other tests use."""
    town.kill_broker()
    for host, other in (("h1", "h2"), ("h2", "h1")):
        town.wait_for(host, other, "unreachable")
    queued = town.on("h1", "send", "bob@project@h2", "Later.")
    assert (queued.status, queued.stdout) == (0, "sent to bob@project@h2\n")
    assert queued.complaint.startswith("warning: queued for h2: unreachable since ")
    begun = time.monotonic()
    refused = town.on("h1", "spawn", "dora@h2", "tester", "Begin.")
    assert time.monotonic() - begun < 3.0
    assert refused.status == 4
    assert refused.complaint.startswith("teamctl: h2 was not asked: unreachable since ")
    (there,) = town.json("h1", "hosts")["hosts"]
    assert (there["name"], there["state"], there["waiting"]) == ("h2", "unreachable", 1)
    assert there["since_unix"] <= time.time()
    missed = town.on("h1", "broadcast", "Anybody?", "--all-hosts")
    assert "warning: h2 was missed: unreachable since " in missed.stderr
    shown = town.on("h1", "team", "--hosts").stdout
    assert "bob@project@h2" in shown
    assert "h2: unreachable since " in shown
    assert "1 line waits for it" in shown
    assert "failed" not in shown
    found = town.on("h1", "doctor").stdout
    assert "h2: unreachable since " in found
    town.start_broker()
    expected = ("lead@project@h1", "Later.")
    wait_until(lambda: expected in texts(town, "h2", "bob"), what="it has come")
    town.wait_for("h1", "h2", "reachable")
    town.wait_for("h2", "h1", "reachable")
    assert town.projects["h2"].member("dora") == {}, "it was refused, not kept for later"


@pytest.mark.slow
def test_a_host_without_a_postman_reports_that(town: Hosts) -> None:
    town.projects["h1"].do("teamd", "stop")
    shown = town.on("h1", "hosts")
    assert "no postman runs here, so mail to other hosts waits; `teamd start`" in shown.stdout
    assert town.json("h1", "hosts")["postman"] is False
    assert town.states("h1") == {"h2": "unreachable"}, "nobody looks, so nobody knows better"
    refused = town.on("h1", "interrupt", "bob@h2")
    assert refused.status == 4
    assert "h2 was not asked: no postman runs here" in refused.complaint
    town.projects["h1"].start()
    town.wait_for("h1", "h2", "reachable")
    town.wait_for("h2", "h1", "reachable")
