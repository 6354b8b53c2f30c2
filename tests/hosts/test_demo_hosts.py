"""`teamctl demo --hosts`: mail between two hosts, also while the broker is away."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import teamctl.demo
from teamctl.demo.two_hosts import BrokerProcess, find_free_port
from teamctl.hosts.broker_folder import find_program
from teamd.errors import TeamError
from tests.e2e.hall import Hall, opened, read_until
from tests.e2e.harness import Project

STORY: Final = Path(teamctl.demo.__file__).with_name("hosts.toml")


@pytest.fixture
def hall(project: Project) -> Iterator[Hall]:
    with opened(project) as made:
        yield made


def lines_of(shown: str, who: str) -> list[str]:
    """What the demo tells of somebody, without the times and what was only said."""
    lines = re.findall(rf"^ *[\d.]+s {who} +(.*)$", shown, re.MULTILINE)
    return [line for line in lines if not line.startswith("“")]


@pytest.mark.slow
def test_mail_crosses_and_what_is_sent_while_the_broker_is_away_arrives_once(hall: Hall) -> None:
    ended = hall.watch("--hosts")
    assert (ended.status, ended.stderr) == (0, "")
    alice = lines_of(ended.stdout, "alice@h1")
    assert alice[:2] == ["→ bob@demo@h2: please test parse", "→ bob@demo@h2: parse has moved"]
    assert alice[2].startswith("sees sent to bob@demo@h2 (queued for h2: unreachable since ")
    assert lines_of(ended.stdout, "bob@h2") == ["→ alice@demo@h1: parse passes"]
    starts, is_ended, back = lines_of(ended.stdout, "broker")
    assert starts.startswith("starts on 127.0.0.1:")
    assert (is_ended, back) == ("is ended", starts.replace("starts", "is back"))
    h1 = lines_of(ended.stdout, "h1")
    assert re.fullmatch(r"\$ teamctl hosts init --name h1 --listen 127\.0\.0\.1:\d+ h2", h1[0])
    assert h1[-2:] == ["1 message waits here for h2", "nothing waits here any more"]
    assert lines_of(ended.stdout, "h2")[0] == "$ teamctl hosts join h2.token"

    table = ended.stdout[ended.stdout.index("$ teamctl team --hosts") :]
    rows = [line.split()[:3] for line in table.splitlines()[2:4]]
    assert rows == [["alice", "coder", "idle"], ["bob@demo@h2", "tester", "idle"]]
    assert re.search(r"\nAll of it happened, in \d+\.\d s; .* its folder is gone\.\n$", table)
    hall.assert_cleared()


@pytest.mark.slow
def test_who_breaks_it_off_finds_neither_teams_nor_broker(hall: Hall) -> None:
    """By Ctrl-C, and in the middle."""
    begun = hall.begin("--fast", "--hosts")
    read_until(begun.stdout, "alice@h1 →")
    begun.send_signal(signal.SIGINT)
    _, stderr = begun.communicate(timeout=60)
    assert begun.returncode == 128 + signal.SIGINT
    told = "teamctl: the demo was ended by SIGINT; teamd has ended, and its folder is gone\n"
    assert stderr == told
    hall.assert_cleared()


@pytest.mark.slow
def test_it_fails_and_names_the_step_that_did_not_happen(hall: Hall) -> None:
    """Kept, so that one can look."""
    text = STORY.read_text(encoding="utf-8")
    assert "pass at commit 1f2e3d'''" in text
    story = hall.project.write("hosts.toml", text.replace("pass at commit 1f2e3d'''", "fail'''"))
    ended = hall.watch("--hosts", "--keep", "--script", str(story))
    (folder,) = hall.temporary.iterdir()
    assert ended.status == 1
    step = "alice's mail reaches bob, and his reaches alice"
    assert ended.complaint.startswith(f"teamctl: the demo failed: this did not happen: {step} (")
    assert ended.complaint.endswith(f"; look into {folder}")
    assert hall.project.survivors() == {}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("/bin/sh", "-c", "echo begun; echo no room >&2; exit 1"), "no room"),
        (("/bin/sh", "-c", "exit 3"), "exit status 3"),
        (("/nonexistent",), "[Errno 2] No such file or directory: '/nonexistent'"),
    ],
)
def test_a_broker_that_does_not_start_says_why(argv: tuple[str, ...], why: str) -> None:
    broker = BrokerProcess(argv, find_free_port())
    try:
        with pytest.raises(TeamError) as caught:
            broker.start()
    finally:
        broker.end()
    assert str(caught.value) == f"the demo failed: nats-server did not start: {why}"


@pytest.mark.slow
def test_without_nats_server_it_says_how_to_get_it_and_starts_nothing(hall: Hall) -> None:
    """Where the program stands, there is a file that cannot be run."""
    hidden = ("bwrap", "--dev-bind", "/", "/", "--bind", "/dev/null", find_program())
    ended = hall.project.run(*hidden, "teamctl", "demo", "--hosts")
    assert (ended.status, ended.stdout) == (1, "")
    assert ended.complaint == (
        "teamctl: nats-server, which carries the mail between hosts, is not installed here; "
        "`apt-get install nats-server` installs it (others: nats.io)"
    )
    hall.assert_cleared()


def test_without_the_extra_it_says_how_to_get_it_and_starts_nothing(hall: Hall) -> None:
    hidden = hall.project.root / "hidden" / "nats"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError(name='nats')\n")
    where = {"PYTHONPATH": str(hidden.parent)}
    ended = hall.project.run("python3", "-m", "teamctl", "demo", "--hosts", env=where)
    assert (ended.status, ended.stdout) == (1, "")
    assert ended.complaint == (
        "teamctl: `teamctl hosts` needs packages that are not installed; "
        "`pip install 'teamd[hosts]'` installs them"
    )
    hall.assert_cleared()
