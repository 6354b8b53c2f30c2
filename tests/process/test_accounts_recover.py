"""Refused accounts and broken networks recover without a person, at the server's time or soon.

A teammate's loop, the real client and the ledger run against the strict server. The tests control
the clocks: they leap while the teammate rests, so that days pass in moments.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Final

import pytest

from teamd.agent.environment import Environment
from teamd.agent.loop import Loop
from teamd.agent.model_calls import TeammateModel
from teamd.budget.ledger import Ledger
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.messages import STATE_TYPE, TEAMD
from teamd.models import Ask, Model, Reply, RetryPolicy
from teamd.settings.schema import ModelSettings
from teamd.supervisor.slots import ConcurrencyLimit, Slots
from tests.strict import refusals
from tests.strict.exchange import Exchange
from tests.strict.faults import Fault, Status
from tests.strict.refusals import Page
from tests.strict.replies import say
from tests.strict.server import StrictServer
from tests.strict.wire import Wire
from tests.unit.life import Life
from tests.waiting import until

REST_SECONDS: Final = 300.0
MINUTE: Final = 60.0
HOUR: Final = 3600.0
# The allowed delay of an attempt, including the ticks of the server's clock.
SOON_SECONDS: Final = 5.0


class Clock:
    """Clocks that run like the machine's, and leap on request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        for name in ("time", "monotonic"):
            monkeypatch.setattr(time, name, self._shifted(getattr(time, name)))
        read = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda which: read(which) + self._ahead)

    def leap(self, seconds: float) -> None:
        """Let that many seconds pass."""
        self._ahead += seconds

    def _shifted(self, read: Callable[[], float]) -> Callable[[], float]:
        return lambda: read() + self._ahead


class Recorded:
    """A model that records its requests.

    Attributes:
        asked: the times of the requests, in seconds since the epoch.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.asked: list[float] = []

    async def reply(self, ask: Ask) -> Reply:
        """Answer like the wrapped model."""
        self.asked.append(time.time())
        return await self._model.reply(ask)


class RealModelLife(Life):
    """A teammate's life that makes model calls with the real client, which asks a server."""

    def _make_loop(self, env: Environment) -> Loop:
        self._whole = TeammateModel(env)
        self.recorded = Recorded(self._whole.calls_of(env.conversation))
        self.model = self.recorded  # type: ignore[assignment]  # not a scripted model
        return super()._make_loop(env)

    @property
    def served(self) -> int:
        """The number of replies so far, each of which ended a turn."""
        return self.states.count("idle")

    @property
    def pauses(self) -> list[float | None]:
        """The times at which the pauses end by themselves, oldest first."""
        said = Mailbox(self.paths, TEAMD, durable=False).peek()
        states = (message for message in said if message.type == STATE_TYPE)
        return [one.extra["until"] for one in states if one.content == "paused"]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Let the teammate live, with slots from a supervisor, during the block."""
        async with self.lived():
            journal = Journal(self.paths.log("teamd"), "teamd")
            slots = Slots(ConcurrencyLimit(lambda: 8, RetryPolicy), journal)
            slots.open("alice", os.dup(self.slots.fileno()))
            serving = asyncio.create_task(serve(slots))
            try:
                yield
            finally:
                serving.cancel()
                await asyncio.wait([serving])
                slots.close("alice")
                slots._selector.close()
                await self._whole.provider.close()  # type: ignore[attr-defined]
                journal.close()


async def serve(slots: Slots) -> None:
    """Grant slots as the supervisor's loop does."""
    heard = asyncio.Event()
    asyncio.get_running_loop().add_reader(slots.fileno(), heard.set)
    try:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), slots.next_due_seconds)
            heard.clear()
            slots.serve()
    finally:
        asyncio.get_running_loop().remove_reader(slots.fileno())


@dataclass(frozen=True)
class Failure:
    """A kind of failure.

    Attributes:
        fault: makes the fault, given its end in seconds since the epoch.
        lasts_seconds: its duration; `None` for the third midnight from now, UTC.
        told: whether the server announces its end.
        words: required words of the sentence.
    """

    fault: Callable[[float], Fault]
    lasts_seconds: float | None = None
    told: bool = False
    words: tuple[str, ...] = ()


def day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True)
class Busy:
    """An error that announces its end.

    Attributes:
        status: the HTTP status.
        end: in seconds since the epoch.
        asked: formats its `retry-after`.
    """

    status: int
    end: float
    asked: Callable[[float], str]

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send the error, with a second added to its end for rounding."""
        Status(self.status, retry_after=self.asked(self.end + 1)).strike(wire, exchange)


def seconds_left(moment: float) -> str:
    return f"{moment - time.time():.0f}"


def http_date(moment: float) -> str:
    return formatdate(moment, usegmt=True)


FAILURES: Final = {
    "usage limit with a date": Failure(
        lambda end: refusals.usage_limit(day(end)), None, told=True, words=("account", "limit")
    ),
    "rate limit of an hour": Failure(lambda end: Busy(429, end, seconds_left), HOUR, told=True),
    "maintenance until a date": Failure(lambda end: Busy(503, end, http_date), 2 * HOUR, told=True),
    "limit of a subscription": Failure(
        lambda end: refusals.subscription_limit(end + 1), 5 * HOUR, told=True
    ),
    "spend cap of the tier": Failure(lambda end: refusals.spend_cap(day(end)), None, told=True),
    "free requests of the day": Failure(refusals.daily_requests, None, told=True),
    "empty balance": Failure(lambda _: refusals.CREDIT, 7 * HOUR, words=("credit",)),
    "budget of a gateway": Failure(lambda _: refusals.BUDGET, HOUR, words=("credit", "limit")),
    "disabled key": Failure(
        lambda _: refusals.REVOKED_KEY, 2 * HOUR, words=("ANTHROPIC_API_KEY", "key_command")
    ),
    "proxy that denies": Failure(lambda _: Page(403), HOUR, words=("proxy", "HTTPS_PROXY")),
    "server that resets": Failure(lambda _: Status(500), 30 * MINUTE),
    "claim of a past date": Failure(
        lambda _: refusals.usage_limit("2020-01-01"), HOUR, words=("limit",)
    ),
}


def midnight_after_next() -> float:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + timedelta(days=3)).timestamp()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    """Clocks that leap, and an environment with only the server's key and no proxy."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CREDENTIALS_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Clock(monkeypatch)


def settings(server: StrictServer, **more: object) -> ModelSettings:
    room = ModelSettings(base_url=server.url, attempts=1, rest_seconds=REST_SECONDS)
    return replace(room, **more)  # type: ignore[arg-type]  # of a test


def booked(life: Life) -> tuple[int, int, int]:
    """Return alice's calls and tokens in the ledger, and the number of open reservations."""
    accounts = Ledger(life.paths.ledger).read()
    used = accounts.used["alice"]
    return used.calls, used.tokens, len(accounts.held)


def billed(server: StrictServer) -> int:
    """Count the tokens of all replies that the server has sent."""
    usages = (one.message["usage"] for one in server.requests if one.message is not None)
    return sum(count for usage in usages for name, count in usage.items() if "tokens" in name)


async def settle() -> None:
    """Let all due tasks run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def rest_through(
    life: RealModelLife, clock: Clock, *, told: bool = False, idles: int = 1
) -> None:
    """Wait until the teammate has been idle `idles` times; no attempt is early or long overdue."""

    def idle() -> bool:
        return life.served >= idles and life.states[-1] == "idle"

    def rests() -> bool:
        return idle() or 0 < len(life.recorded.asked) - life.served <= len(life.pauses)

    while True:
        await until(rests)
        if idle():
            return
        await settle()  # the reported pause has begun
        tries, end = len(life.recorded.asked), life.pauses[-1]
        assert end is not None, "it is tried again without a person"
        for left in ((end - time.time()) / 2, 30.0, 10.0):
            if told:
                # Mail does not make the teammate ask a server that has announced the end.
                life.send("Are you there?")
            clock.leap(end - time.time() - left)
            await settle()
            assert len(life.recorded.asked) == tries
        clock.leap(end - time.time())
        await until(lambda known=tries: len(life.recorded.asked) > known)  # type: ignore[misc]
        assert end <= life.recorded.asked[-1] <= end + SOON_SECONDS


@pytest.mark.parametrize("kind", FAILURES)
def test_work_resumes_at_the_announced_time_or_within_an_hour(
    kind: str, clock: Clock, tmp_path: Path
) -> None:
    failure = FAILURES[kind]
    begun = time.time()
    lasts = failure.lasts_seconds
    end = midnight_after_next() if lasts is None else begun + lasts

    with StrictServer(lambda _: say("Done.")) as server:
        server.faults.during(lambda: time.time() < end, failure.fault(end))
        life = RealModelLife(tmp_path, room=settings(server))
        life.send("work")

        async def scenario() -> None:
            async with life.at_work():
                await rest_through(life, clock, told=failure.told)

        asyncio.run(scenario())
        served = life.recorded.asked[-1]
        assert end <= served
        if failure.told:
            assert served <= end + SOON_SECONDS
            assert len(server.requests) == 2
        else:
            assert served <= end + min(HOUR, REST_SECONDS + end - begun) + MINUTE
            assert len(server.requests) <= 8 + (end - begun) / HOUR
        assert server.refused == []
        calls, tokens, held = booked(life)
        assert (tokens, held) == (billed(server), 0)
        assert calls == 1
    (told,) = life.lead
    assert [word for word in failure.words if word not in told] == []


def test_a_fresh_key_is_requested_once_before_a_pause(clock: Clock, tmp_path: Path) -> None:
    """A key is valid for an hour; the command prints the next key, or the same one until then."""
    key, log = tmp_path / "key", tmp_path / "log"
    key.write_text("test-key")
    room: dict[str, object] = {"key_command": f"sh -c 'echo asked >> {log}; cat {key}'"}
    with StrictServer(lambda _: say("Done.")) as server:
        life = RealModelLife(tmp_path, room=settings(server, **room))
        life.send("work")

        async def scenario() -> None:
            async with life.at_work():
                await rest_through(life, clock)
                server.change_keys("next-key")
                key.write_text("next-key")
                life.send("more")
                await rest_through(life, clock, idles=2)
                assert life.pauses == [], "the fresh key was taken at once"
                assert len(server.refused) == 1
                server.change_keys("last-key")
                life.send("and more")
                await until(lambda: life.pauses)
                assert len(server.refused) == 2, "the same key is not sent again"
                assert log.read_text().count("asked") == 3
                key.write_text("last-key")
                await rest_through(life, clock, idles=3)

        asyncio.run(scenario())
        assert len(server.requests) == 3
        assert len(server.refused) == 2
        assert booked(life) == (3, billed(server), 0)
