"""Hosts whose clocks differ by hours: mail, commands and displayed times are not affected."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.harness import Project
from tests.hosts.towns import Hosts, hosts
from tests.waiting import wait_until

pytestmark = pytest.mark.faketime

PRELOAD = Path(__file__).parents[1] / "e2e/faked_clock"
ALLOW = 'allow = { spawn = ["h1", "h2"] }'
APART_SECONDS = 5 * 3600


def set_clock(project: Project, offset: str) -> None:
    """Change the time of day for all processes of a project; see test_clock_set_back."""
    show = ["faketime", "-f", "+0", "printenv", "LD_PRELOAD"]
    library = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    project.environment |= {
        "LD_PRELOAD": library,
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "PYTHONPATH": str(PRELOAD),
    }


def contents(town: Hosts, host: str, name: str) -> list[str]:
    """Return the texts of the mail in a conversation."""
    records = town.projects[host].records(name, "mail")
    return [one["content"] for record in records for one in record["messages"]]


@pytest.mark.slow
@pytest.mark.parametrize("offset", ["+5h", "-5h"])
def test_clocks_hours_apart_do_not_affect_mail_commands_or_shown_times(
    tmp_path: Path, offset: str
) -> None:
    """Mail arrives once, commands meet their deadlines, and times are by the local clock."""
    with hosts(tmp_path, allow=ALLOW, started=False) as town:
        set_clock(town.projects["h2"], offset)
        town.start_broker()
        for project in town.projects.values():
            project.start()
        town.wait_for("h1", "h2", "reachable")
        town.wait_for("h2", "h1", "reachable")
        for host, other, name in (("h1", "h2", "bob"), ("h2", "h1", "alice")):
            spawned = town.on(host, "spawn", f"{name}@{other}", "clerk", "Begin.")
            assert (spawned.status, spawned.stdout) == (0, f"{other}: {name} (clerk) is at work\n")
            town.on(host, "send", f"{name}@project@{other}", "Across the hours.")
            wait_until(lambda: "Across the hours." in contents(town, other, name), what=name)  # noqa: B023
        stamp = town.projects["h2"].records("bob", "mail")[0]["time"]
        assert abs(abs(stamp - time.time()) - APART_SECONDS) < APART_SECONDS / 2, "they are apart"
        wait_until(lambda: town.json("h1", "team", "--hosts")["hosts"][0]["members"], what="bob")
        (there,) = town.json("h1", "team", "--hosts")["hosts"]
        assert abs(there["members"][0]["since_unix"] - time.time()) < APART_SECONDS / 2
        assert abs(there["since_unix"] - time.time()) < APART_SECONDS / 2
        assert json.dumps(there["reports"]) == "[]"
