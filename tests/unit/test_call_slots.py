"""Slots for model calls: limited per team, first come first served, freed at a death.

The supervisor's end and those of teammates, over real socket pairs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.call_slots import CallSlots
from teamd.budget.ledger import Ledger
from teamd.journal import Journal
from teamd.models import (
    Ask,
    Provider,
    RefusedError,
    Reply,
    RetryPolicy,
    TransientError,
    UnusableError,
)
from teamd.supervisor.slots import LONGEST_WAIT_SECONDS, ConcurrencyLimit, Slots, Warmth
from teamd.team.slot_messages import ASK, CHANNEL, SlotRelease
from tests.strict.replies import say
from tests.unit.life import Player, calls_to, replied
from tests.waiting import until

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
ASKED = Ask(model="claude-sonnet-5-5", system="x", tools=[], messages=[MESSAGE], max_tokens=9)
POLICY = RetryPolicy(first_seconds=0.01, longest_seconds=60)


class Slow:
    """A model that answers once `go` is set.

    Attributes:
        order: the names of the callers.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.go = asyncio.Event()
        self.order: list[str] = []

    def of(self, name: str) -> _Part:
        return _Part(self, name)


class _Part(Provider):
    def __init__(self, whole: Slow, name: str) -> None:
        self._whole = whole
        self._name = name

    async def reply(self, ask: Ask) -> Reply:  # noqa: ARG002 -- the protocol's
        slow = self._whole
        slow.order.append(self._name)
        slow.inside += 1
        slow.most = max(slow.most, slow.inside)
        try:
            await slow.go.wait()
        finally:
            slow.inside -= 1
        return replied(say("Done."))


class Team:
    """A supervisor's slots, and teammates that ask for them."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.ends: dict[str, int] = {}

    def enter(self, name: str) -> CallSlots:
        """Give a teammate its end of a channel."""
        own, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
        own.setblocking(False)
        theirs.setblocking(False)
        self.slots.open(name, own.detach())
        self.ends[name] = theirs.detach()
        return CallSlots(self.ends[name])

    def die(self, name: str) -> None:
        """End a teammate: its descriptors are closed, and the supervisor reaps it."""
        asyncio.get_running_loop().remove_reader(self.ends[name])
        os.close(self.ends.pop(name))
        self.slots.close(name)

    async def serve(self) -> None:
        """Grant slots as the supervisor's loop does."""
        heard = asyncio.Event()
        asyncio.get_running_loop().add_reader(self.slots.fileno(), heard.set)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), self.slots.next_due_seconds)
            heard.clear()
            self.slots.serve()


@asynccontextmanager
async def team(path: Path, most: int, policy: RetryPolicy = POLICY) -> AsyncIterator[Team]:
    """A team with `most` slots."""
    journal = Journal(path / "log", "teamd")
    slots = Slots(ConcurrencyLimit(lambda: most, lambda: policy), journal)
    made = Team(slots)
    serving = asyncio.create_task(made.serve())
    try:
        yield made
    finally:
        assert not serving.done() or serving.result() is None
        serving.cancel()
        asyncio.get_running_loop().remove_reader(slots.fileno())
        for name in list(made.ends):
            made.die(name)
        slots._selector.close()
        journal.close()


def begin(model: Provider, slots: CallSlots, **parts: Any) -> asyncio.Task[Reply]:
    async def call() -> Reply:
        with tempfile.TemporaryDirectory() as folder:
            calls = calls_to(model, Ledger(Path(folder) / "ledger"), slots=slots, **parts)
            return await calls.reply(ASKED)

    return asyncio.create_task(call())


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_no_more_calls_than_allowed_are_under_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with team(tmp_path, 2) as there:
            model = Slow()
            names = [f"t{number}" for number in range(6)]
            calls = [begin(model.of(name), there.enter(name)) for name in names]
            await until(lambda: model.inside == 2)
            model.go.set()
            replies = await asyncio.gather(*calls)
            assert [reply.text for reply in replies] == ["Done."] * 6
            assert model.most == 2
            assert model.order == names, "first come, first served"

    run(scenario)


def test_requests_with_the_same_prefix_wait_for_the_first_one(tmp_path: Path) -> None:
    """Its request writes the tools to the server's cache, which the others then read."""

    async def scenario() -> None:
        async with team(tmp_path, 5) as there:
            model, calls = Slow(), []
            said: list[Callable[[], None]] = []

            class Server(Provider):
                def __init__(self, name: str) -> None:
                    self._part = model.of(name)

                async def reply(self, ask: Ask) -> Reply:
                    said.append(ask.begun)
                    return await self._part.reply(ask)

            calls += [
                begin(Server(name), there.enter(name), caches=True)
                for name in ("ann", "bob", "cid")
            ]
            await until(lambda: model.order == ["ann"])
            calls.append(begin(model.of("dan"), there.enter("dan")))  # its server has no cache
            await until(lambda: model.order == ["ann", "dan"])
            said[0]()
            await until(lambda: model.inside == 4)
            model.go.set()
            await asyncio.gather(*calls)

    run(scenario)


@contextmanager
def channel() -> Iterator[tuple[socket.socket, CallSlots]]:
    """A supervisor's end of a channel, and the slots at its other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
    with ours, theirs:
        ours.settimeout(5)
        theirs.setblocking(False)
        yield ours, CallSlots(theirs.fileno())


def test_a_slot_for_a_cancelled_request_does_not_go_to_one_with_another_prefix() -> None:
    """The supervisor would take the wrong prefix for cached."""

    async def scenario() -> None:
        with channel() as (ours, slots):
            first, second = (asyncio.create_task(slots.take(prefix)) for prefix in ("a", "b"))
            await asyncio.sleep(0)
            assert ours.recv(64) == b"ask a"
            first.cancel()
            ours.send(b"7")
            assert await asyncio.to_thread(ours.recv, 64) == SlotRelease(number=7).encode()
            assert await asyncio.to_thread(ours.recv, 64) == b"ask b"
            ours.send(b"8")
            assert await second == 8
            slots.report_begun(8)
            assert ours.recv(64) == b"begun 8"

    run(scenario)


@pytest.mark.parametrize("how", ["closed", "with words unread"])
def test_a_call_fails_once_the_channel_is_closed(how: str) -> None:
    async def scenario() -> None:
        with channel() as (ours, slots):
            if how == "with words unread":
                slots.release(SlotRelease(number=1))
            ours.close()
            for _ in range(2):
                with pytest.raises(ConnectionResetError, match="grants no more slots"):
                    await slots.take("a")

    run(scenario)


def test_a_cancelled_call_is_not_failed_when_the_channel_closes() -> None:
    async def scenario() -> None:
        with channel() as (ours, slots):
            first, second = (asyncio.create_task(slots.take(prefix)) for prefix in ("a", "b"))
            await asyncio.sleep(0)
            first.cancel()
            ours.close()
            with pytest.raises(ConnectionResetError, match="grants no more slots"):
                await second
            with pytest.raises(asyncio.CancelledError):
                await first

    run(scenario)


def test_a_release_waits_until_the_channel_has_room() -> None:
    """A lost release would block a slot until the teammate ends."""

    async def scenario() -> None:
        with channel() as (ours, slots):
            sent = 0
            with suppress(BlockingIOError):
                while True:
                    os.write(slots._fd, b"x")
                    sent += 1
            saying = asyncio.create_task(asyncio.to_thread(slots.release, SlotRelease(number=7)))
            await until(lambda: os.get_blocking(slots._fd), what="it waits for room")
            words = [await asyncio.to_thread(ours.recv, 64) for _ in range(sent + 1)]
            await saying
            assert words[-1] == SlotRelease(number=7).encode()
            assert not os.get_blocking(slots._fd)

    run(scenario)


def test_a_slot_granted_as_its_call_is_cancelled_is_released() -> None:
    """Otherwise no other call could use it."""

    async def scenario() -> None:
        with channel() as (ours, slots):
            call = asyncio.create_task(slots.take())
            await asyncio.sleep(0)
            assert ours.recv(64) == b"ask "
            ours.send(b"7")
            for _ in range(2):  # it is granted in the first round, and would continue in the third
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert ours.recv(64) == SlotRelease(number=7).encode()

    run(scenario)


def test_a_teammate_with_many_conversations_has_one_place_in_the_queue(tmp_path: Path) -> None:
    """Background subagents of one teammate must not starve the others."""

    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            model = Slow()
            ann, bob = there.enter("ann"), there.enter("bob")
            calls = [begin(model.of("ann"), ann) for _ in range(4)]
            await until(lambda: model.inside == 1)
            calls += [begin(model.of("bob"), bob) for _ in range(2)]
            await asyncio.sleep(0)
            model.go.set()
            await asyncio.gather(*calls)
            assert model.order == ["ann", "ann", "bob", "ann", "bob", "ann"]

    run(scenario)


def test_the_slots_of_a_dead_teammate_are_free_at_once(tmp_path: Path) -> None:
    """Whether it was asking the model or waiting."""

    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            model = Slow()
            slots = {name: there.enter(name) for name in ("ann", "bob", "cid")}
            calls = {name: begin(model.of(name), its) for name, its in slots.items()}
            await until(lambda: model.order == ["ann"])
            there.die("bob")
            there.die("ann")
            await until(lambda: model.order == ["ann", "cid"])
            for call in calls.values():
                call.cancel()

    run(scenario)


def test_a_failed_or_cancelled_call_releases_its_slot(tmp_path: Path) -> None:
    """A slot that stays taken would in the end stop the whole team."""

    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            slots = there.enter("ann")
            with pytest.raises(UnusableError):
                await begin(Player(TransientError("broken")), slots)
            model = Slow()
            call = begin(model.of("ann"), slots)
            await until(lambda: model.inside)
            waiting = begin(model.of("waiting"), slots)
            await asyncio.sleep(0)
            for task in (waiting, call):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await begin(Player(say("Done.")), slots)).text == "Done."
            assert model.order == ["ann"]

    run(scenario)


def test_a_refusal_pauses_all_calls_and_the_refused_one_goes_first(tmp_path: Path) -> None:
    """Others would be refused as well, and the refused one has already waited."""

    async def scenario() -> None:
        async with team(tmp_path, 2) as there:
            model = Slow()
            model.go.set()
            ann, bob = there.enter("ann"), there.enter("bob")
            now = asyncio.get_running_loop().time
            begun = now()
            refused = _Refusing(model.of("ann"), RefusedError("429", 0.3))
            calls = [begin(refused, ann, policy=POLICY)]
            await until(lambda: there.slots._limit.pause_seconds)
            calls.append(begin(model.of("bob"), bob))
            await asyncio.gather(*calls)
            assert now() - begun >= 0.3
            assert model.order == ["ann", "bob"]

    run(scenario)


class _Refusing(Provider):
    """A model that is refused once, and then answers."""

    def __init__(self, model: Provider, error: RefusedError) -> None:
        self._model = model
        self._errors = [error]

    async def reply(self, ask: Ask) -> Reply:
        """Refuse once."""
        if self._errors:
            raise self._errors.pop()
        return await self._model.reply(ask)


@pytest.mark.parametrize("word", [b"", b"\xff" * 60, b"0 served ", b"begun ask", b"1 refused nan"])
def test_invalid_datagrams_of_one_teammate_do_not_block_others(tmp_path: Path, word: bytes) -> None:
    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            slots = there.enter("bob")
            there.enter("eve")
            for _ in range(3):
                os.write(there.ends["eve"], ASK)  # is granted a slot, and then writes garbage
            with suppress(OSError):
                os.write(there.ends["eve"], word)
            assert (await begin(Player(say("Done.")), slots)).text == "Done."

    run(scenario)


def test_a_teammate_that_wrote_an_invalid_datagram_fails_its_calls(tmp_path: Path) -> None:
    """Its process ends with that, and the next one gets a new channel."""

    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            model = Slow()
            other = begin(model.of("bob"), there.enter("bob"))
            await until(lambda: model.inside == 1)
            call = begin(model.of("eve"), there.enter("eve"))
            await until(lambda: there.slots._queue, what="eve waits for a slot")
            os.write(there.ends["eve"], b"nonsense")
            with pytest.raises(ConnectionResetError):
                await call
            model.go.set()
            assert (await other).text == "Done."

    run(scenario)


@pytest.mark.parametrize("returned", [
    SlotRelease(number=7), SlotRelease(number=0, served=True),
    SlotRelease(number=1, refused=True, retry_after_seconds=1.5),
    SlotRelease(number=1, refused=True),
])  # fmt: skip
def test_a_release_is_decoded_as_it_was_encoded(returned: SlotRelease) -> None:
    assert SlotRelease.decode(returned.encode()) == returned


def test_requests_wait_until_the_first_reply_with_their_prefix_begins() -> None:
    warmth = Warmth()
    assert warmth.cold_seconds("tools") == 0
    warmth.granted(1, "tools")
    assert 0 < warmth.cold_seconds("tools") <= LONGEST_WAIT_SECONDS
    assert warmth.cold_seconds("other tools") == 0
    warmth.begun(1)
    assert warmth.cold_seconds("tools") == 0
    warmth.granted(2, "tools")
    assert warmth.cold_seconds("tools") == 0, "it is in the cache by now"


def test_after_a_failed_call_the_next_one_warms_the_prefix() -> None:
    warmth = Warmth()
    warmth.granted(1, "tools")
    warmth.ended(1)
    assert warmth.cold_seconds("tools") == 0
    warmth.granted(2, "tools")
    assert warmth.cold_seconds("tools") > 0
    warmth.begun(1)
    assert warmth.cold_seconds("tools") > 0, "the first call has ended"


def test_requests_without_a_prefix_do_not_wait() -> None:
    warmth = Warmth()
    warmth.granted(1, "")
    assert warmth.cold_seconds("") == 0


def test_a_slow_server_delays_others_only_once() -> None:
    warmth = Warmth()
    warmth.granted(1, "tools")
    first = warmth.cold_seconds("tools")
    warmth.granted(2, "tools")  # for example, because the time for the first was over
    assert warmth.cold_seconds("tools") <= first
    warmth.ended(2)
    assert 0 < warmth.cold_seconds("tools") <= first
    warmth.ended(1)
    assert warmth.cold_seconds("tools") == 0
