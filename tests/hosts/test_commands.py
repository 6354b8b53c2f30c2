"""Commands for another host run at most once and never late, despite cuts and kills."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from teamd.errors import DeadlinePassed, ExitCode
from teamd.files import locks
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.messages import new_id
from teamd.postman.commands import FarAnswer, FarRequest, ask
from teamd.postman.connection import BrokerConnection, NoAnswer
from teamd.settings.schema import HostSettings
from tests.hosts.towns import Hosts, hosts
from tests.waiting import until, wait_until

ALLOW = 'allow = { spawn = ["h1"], shutdown = ["h1"] }'
GONE: Final = {"name": "carol", "seconds": 2.0, "force": True}
SLACK_SECONDS = 0.3  # from accepting a request to logging it


@dataclass(slots=True)
class Weather:
    """Random faults while commands cross, by a seed.

    Attributes:
        happened: the count of each fault.
    """

    town: Hosts
    chance: random.Random
    happened: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def cuts(self) -> int:
        """The number of times the link was cut, in either way."""
        return self.happened["cut"] + self.happened["half open"]

    @contextmanager
    def blowing(self) -> Iterator[None]:
        """Cause faults during the block; the broker runs afterwards."""
        thread = threading.Thread(target=self._blow)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _blow(self) -> None:
        kill = self._kill_postman
        kinds = (kill, kill, self._kill_broker, self._freeze_broker)
        while not self._over.wait(self.chance.uniform(0.0, 3.0)):
            self.chance.choice(kinds)()

    def _kill_postman(self) -> None:
        host = self.chance.choice([*self.town.projects])
        path = HostPlaces(self.town.projects[host].paths).postman
        for pid in locks._holders(path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.happened["kill"] += 1

    def _kill_broker(self) -> None:
        self.town.kill_broker()
        self._over.wait(self.chance.uniform(0.0, 1.0))
        self.town.start_broker()
        self.happened["cut"] += 1

    def _freeze_broker(self) -> None:
        """Leave the connection open but let nothing through: a half-open link."""
        self.town.signal_broker(signal.SIGSTOP)
        self._over.wait(self.chance.choice([0.2, 1.0, 7.0]))
        self.town.signal_broker(signal.SIGCONT)
        self.happened["half open"] += 1


@dataclass(slots=True)
class Try:
    """One command, and the result that its sender got."""

    command: str
    begun: float
    ended: float = 0.0
    code: int | None = None
    asked: bool = True
    requests: list[str] = field(default_factory=list)  # ids in the log of the other host


def far_hosts(town: Hosts) -> FarHosts:
    """Return the other hosts of h1."""
    settings = HostSettings(name="h1", servers=(f"nats://127.0.0.1:{town.port}",))
    return FarHosts(town.projects["h1"].paths, "h1", settings=settings)


def attempt(far: FarHosts, number: int, chance: random.Random) -> Try:
    seconds = chance.choice([0.05, 0.5, 5.0])
    if number % 2:
        what, facts = "shutdown", GONE
    else:
        what, facts = "spawn", {"name": "carol", "role": "coder", "prompt": f"Try {number}."}
    made = Try(what, time.time())
    try:
        answer = ask(far, "h2", what, facts, seconds=seconds)
    except DeadlinePassed as error:
        made.asked = "was not asked" not in str(error)
    else:
        made.code = answer.exit_code
    made.ended = time.time()  # the deadline of an unanswered command, or shortly after it
    return made


def assign(requests: list[dict[str, Any]], made: list[Try]) -> None:
    """Assign each request to the command during which it began, which is its only one."""
    for one in requests:
        at = moment(one)
        during = [
            each
            for each in made
            if each.command == one["command"]
            and each.begun <= at <= each.ended + SLACK_SECONDS
            and not each.requests
        ]
        assert during, f"done too late, or twice: {one}"
        # The slack may reach into the time of the next command, so an answered one comes first.
        best = max(during, key=lambda each: (each.code is not None, each.begun))
        best.requests.append(one["id"])


def requests_of(town: Hosts, host: str) -> list[dict[str, Any]]:
    """Return the requests from h1 in the log of a host's teamd."""
    log = town.projects[host].paths.log("teamd")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [one for one in lines if one["event"] == "request" and one["id"].startswith("h1-")]


def moment(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["time"]).timestamp()


def campaign(
    folder: Path, tries: int, seed: int, *, cuts: int = 0, kills: int = 0
) -> tuple[Counter[str], int, int]:
    """Send one command after another amid faults, and check which were executed.

    Args:
        folder: the folder for all hosts.
        tries: the minimum number of commands.
        seed: for the commands and the faults.
        cuts: the minimum number of link cuts.
        kills: the minimum number of kills; how many occur during `tries` depends on the machine.

    Returns:
        The faults, the number of commands, and the number of executed ones.
    """
    chance = random.Random(seed)
    with hosts(folder, allow=ALLOW) as town:
        town.start_broker()
        town.wait_for("h1", "h2", "reachable")
        far = far_hosts(town)
        weather = Weather(town, random.Random(seed + 1))
        with weather.blowing():
            made: list[Try] = []
            while len(made) < tries or weather.cuts < cuts or weather.happened["kill"] < kills:
                made.append(attempt(far, len(made), chance))
                # The host is unreachable, and the next command would get the same answer.
                if not made[-1].asked:
                    with suppress(AssertionError):
                        wait_until(lambda: far.obstacle("h2") is None, timeout_seconds=2)
        # A process that is killed repeatedly is restarted after pauses of up to half a minute.
        wait_until(lambda: far.obstacle("h2") is None, timeout_seconds=90, what="h2 is back")
        time_of_last = time.time()
        last = ask(far, "h2", "shutdown", GONE, seconds=60.0)
        assert last.text, "commands cross again, and are answered"
        town.projects["h2"].do("teamd", "stop")
        done = requests_of(town, "h2")
        assert set(Counter(one["id"] for one in done).values()) <= {1}, "one was done twice"
        assign([one for one in done if moment(one) < time_of_last], made)
        for one in made:
            if one.code == ExitCode.DONE:
                assert one.requests, "it was said to be done"
            if not one.asked:
                assert not one.requests, "it was refused at once, and done nevertheless"
        path = town.projects["h2"].paths.transcript("carol")
        transcript = path.read_text() if path.exists() else ""
        for number in range(0, len(made), 2):
            assert transcript.count(f'"Try {number}."') <= 1
    return weather.happened, len(made), len(done)


@pytest.mark.slow
def test_a_command_is_executed_at_most_once_and_never_late(tmp_path: Path) -> None:
    campaign(tmp_path, tries=12, seed=7)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("town"), allow=ALLOW) as made:
        made.start_broker()
        made.wait_for("h1", "h2", "reachable")
        yield made


@pytest.fixture
def town(shared: Hosts) -> Hosts:
    """Wait until h2 answers commands: the test before may have stopped its postman."""

    def answers() -> bool:
        with suppress(DeadlinePassed):
            return bool(ask(far_hosts(shared), "h2", "shutdown", GONE, seconds=5.0).text)
        return False

    wait_until(answers, timeout_seconds=60, what="h2 answers")
    return shared


@contextmanager
def stopped(town: Hosts) -> Iterator[None]:
    """Stop the postman of h2 during the block."""
    (pid,) = locks._holders(HostPlaces(town.projects["h2"].paths).postman)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_an_unanswered_command_ends_at_its_deadline_and_is_never_executed(town: Hosts) -> None:
    carol = {"name": "carol", "role": "coder", "prompt": "Begin."}
    with stopped(town):
        begun = time.monotonic()
        with pytest.raises(DeadlinePassed) as refused:
            ask(far_hosts(town), "h2", "spawn", carol, seconds=0.5)
        assert time.monotonic() - begun < 1.5
    assert refused.value.exit_code == ExitCode.DEADLINE
    assert str(refused.value).startswith("h2 did not answer within 0.5 s; `teamctl team")
    assert ask(far_hosts(town), "h2", "shutdown", GONE, seconds=20.0).text
    assert [one for one in requests_of(town, "h2") if one["command"] == "spawn"] == []
    assert town.projects["h2"].member("carol") == {}


@pytest.mark.slow
def test_a_command_that_arrives_late_is_refused_and_never_executed(town: Hosts) -> None:
    """A postman that was stopped finds the command among what has arrived since."""
    log = HostPlaces(town.projects["h2"].paths).log

    async def send_late() -> None:
        settings = far_hosts(town).settings
        async with BrokerConnection.open(settings.servers[0], settings) as link:
            told = json.loads(await link.request("command.h2.h1", b'{"clock": true}', 20))
            request = FarRequest(
                id=new_id(),
                command="spawn",
                arguments={"name": "dora", "role": "coder", "prompt": "Begin."},
                session=told["session"],
                deadline=told["clock"] + 0.1,
            )
            with stopped(town), pytest.raises(NoAnswer):
                await link.request("command.h2.h1", request.encode(), 0.5)
            late = "the spawn came too late to h2, and was not carried out"
            await until(lambda: late in log.read_text(), what="it is refused")
            other = replace(request, id=new_id(), session="0" * 16, deadline=told["clock"] + 60)
            answer = await link.request("command.h2.h1", other.encode(), 20)
            assert FarAnswer.decode(answer) == FarAnswer(text=late, exit_code=ExitCode.DEADLINE)

    asyncio.run(send_late())
    assert town.projects["h2"].member("dora") == {}


@pytest.mark.slow
def test_a_command_for_a_host_whose_postman_does_not_listen_is_refused_at_once(
    town: Hosts,
) -> None:
    """Its last beat is a moment ago, so the view still shows it."""
    far = far_hosts(town)
    town.projects["h2"].do("teamd", "stop")
    try:
        with pytest.raises(DeadlinePassed, match="h2 was not asked: ") as refused:
            ask(far, "h2", "shutdown", GONE, seconds=20.0)
    finally:
        town.projects["h2"].start()
        town.wait_for("h1", "h2", "reachable")
    assert refused.value.exit_code == ExitCode.DEADLINE


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_five_hundred_commands_are_executed_at_most_once_and_never_late(tmp_path: Path) -> None:
    happened, tried, done = campaign(tmp_path, tries=500, seed=20, cuts=15, kills=20)
    print(f"{done} of {tried} were done; {happened}")  # noqa: T201 -- `-s` shows figures
    assert done > 50
