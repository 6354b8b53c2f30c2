"""Slots for model calls: so many at a time over a team, first come first served, freed by a death.

The supervisor's end and those of teammates, over real socket pairs.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.throttle import CallSlots, Throttle
from teamd.journal import Journal
from teamd.models import Ask, RefusedError, Reply, TransientError
from teamd.models.retry import Retrying, RetryPolicy
from teamd.supervisor.slots import ConcurrencyLimit, Slots
from teamd.team.call_slots import ASK, CHANNEL, SlotRelease
from tests.strict.replies import say
from tests.unit.life import Player, replied
from tests.waiting import until

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
ASKED = Ask(model="claude-sonnet-5-5", system="x", tools=[], messages=[MESSAGE], max_tokens=9)
POLICY = RetryPolicy(first_seconds=0.01, longest_seconds=60)


class Slow:
    """A model that answers once it is let go.

    Attributes:
        order: who has been asked.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.go = asyncio.Event()
        self.order: list[str] = []

    def of(self, name: str) -> _Part:
        """Return the same model, as a teammate asks it."""
        return _Part(self, name)


class _Part:
    def __init__(self, whole: Slow, name: str) -> None:
        self._whole = whole
        self._name = name

    async def reply(self, ask: Ask) -> Reply:  # noqa: ARG002 -- the protocol's
        """Wait and answer."""
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
        """End a teammate: what it had open is closed, and the supervisor reaps it."""
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
    """A team with so many slots."""
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


@asynccontextmanager
async def asked_once(*, resting: bool = True) -> AsyncIterator[tuple[socket.socket, CallSlots]]:
    """A supervisor's end of a channel, and slots of which one was granted and came back."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
    with ours, theirs:
        ours.settimeout(5)
        theirs.setblocking(False)
        slots = CallSlots(theirs.fileno(), lambda: resting)
        slots.ask_ahead()  # nothing is known of the first
        taking = asyncio.create_task(slots.take("a"))
        await asyncio.sleep(0)
        ours.send(b"3")
        slots.give_back(SlotRelease(number=await taking))
        assert [ours.recv(64), ours.recv(64)] == [b"ask a", SlotRelease(number=3).encode()]
        yield ours, slots


def begin(model: Any, slots: CallSlots) -> asyncio.Task[Reply]:
    return asyncio.create_task(Throttle(model, slots).reply(ASKED))


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_no_more_than_so_many_calls_are_under_way(tmp_path: Path) -> None:
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


def test_the_first_of_those_that_begin_alike_is_waited_for(tmp_path: Path) -> None:
    """Its request writes the tools to the server's cache, and the others read them there."""

    async def scenario() -> None:
        async with team(tmp_path, 5) as there:
            model, calls = Slow(), []
            said: list[Callable[[], None]] = []

            class Server:
                def __init__(self, name: str) -> None:
                    self._part = model.of(name)

                async def reply(self, ask: Ask) -> Reply:
                    said.append(ask.begun)
                    return await self._part.reply(ask)

            for name in ("ann", "bob", "cid"):
                throttle = Throttle(Server(name), there.enter(name), caches=True)
                calls.append(asyncio.create_task(throttle.reply(ASKED)))
            await until(lambda: model.order == ["ann"])
            calls.append(begin(model.of("dan"), there.enter("dan")))  # its server keeps nothing
            await until(lambda: model.order == ["ann", "dan"])
            said[0]()
            await until(lambda: model.inside == 4)
            model.go.set()
            await asyncio.gather(*calls)

    run(scenario)


def test_a_slot_that_goes_to_another_conversation_says_nothing_of_the_first_ones_prefix() -> None:
    """Or what is not in the server's cache would be taken to be there."""

    async def scenario() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
        with ours, theirs:
            theirs.setblocking(False)
            slots = CallSlots(theirs.fileno())
            first, second = (asyncio.create_task(slots.take(prefix)) for prefix in ("a", "b"))
            await asyncio.sleep(0)
            assert ours.recv(64) == b"ask a"
            first.cancel()
            ours.send(b"7")
            assert await second == 7
            slots.begun(7)
            slots.give_back(SlotRelease(number=7))
            assert ours.recv(64) == SlotRelease(number=7).encode()

    run(scenario)


@pytest.mark.parametrize("heard", [False, True], ids=["granted later", "granted before"])
def test_a_slot_may_be_asked_for_before_its_request_is_there(heard: bool) -> None:
    """It comes while mail is taken; one for which no request comes is given back."""

    async def scenario() -> None:
        async with asked_once() as (ours, slots):
            slots.ask_ahead()
            slots.ask_ahead()
            assert ours.recv(64) == b"ask a", "once"
            if heard:
                ours.send(b"4")
                await until(lambda: slots._asked is None)
                assert ours.recv(64) == SlotRelease(number=4).encode()
            first = asyncio.create_task(slots.take("a"))
            await asyncio.sleep(0)
            ours.send(b"5")
            assert await first == 5
            slots.begun(5)
            said = [ours.recv(64), *([ours.recv(64)] if heard else [])]
            assert said == [*([b"ask a"] if heard else []), b"begun 5"]

    run(scenario)


def test_a_slot_asked_for_ahead_is_not_for_a_request_that_begins_otherwise() -> None:
    """Such as that of a subagent's: others would wait for what it never brings to the cache."""

    async def scenario() -> None:
        async with asked_once() as (ours, slots):
            slots.ask_ahead()
            asking = asyncio.create_task(slots.take("b"))
            ours.send(b"4")
            words = [await asyncio.to_thread(ours.recv, 64) for _ in range(3)]
            assert words == [b"ask a", SlotRelease(number=4).encode(), b"ask b"]
            ours.send(b"5")
            assert await asking == 5
            slots.begun(5)
            assert ours.recv(64) == b"begun 5"

    run(scenario)


def said(fd: int) -> list[bytes]:
    """What there is to be read by now at one end of a channel."""
    words = []
    with suppress(BlockingIOError):
        while True:
            words.append(os.read(fd, 64))
    return words


async def offer(ours: socket.socket, slots: CallSlots, number: int) -> None:
    """Offer a slot to one that rests."""
    ours.send(b"offer %d" % number)
    await until(lambda: slots._offered == number)


@pytest.mark.parametrize("ahead", [False, True], ids=["as the request comes", "before"])
def test_a_slot_that_is_offered_is_not_asked_for(ahead: bool) -> None:
    """It comes with the bell: the way to the supervisor and back is saved."""

    async def scenario() -> None:
        async with asked_once() as (ours, slots):
            await offer(ours, slots, 4)
            if ahead:
                slots.ask_ahead()
            assert await slots.take("a") == 4
            slots.begun(4)
            assert said(ours.fileno()) == [b"begun 4"]
            second = asyncio.create_task(slots.take("a"))
            await asyncio.sleep(0)
            assert said(ours.fileno()) == [b"ask a"], "it was for one request"
            ours.send(b"5")
            assert await second == 5

    run(scenario)


@pytest.mark.parametrize("ahead", [False, True], ids=["not looked at", "looked at"])
def test_a_slot_that_was_offered_for_nothing_is_given_back(ahead: bool) -> None:
    """Such as to one that is paused: others would wait for it."""

    async def scenario() -> None:
        async with asked_once() as (ours, slots):
            slots.decline()
            assert said(ours.fileno()) == []
            await offer(ours, slots, 4)
            if ahead:
                slots.ask_ahead()
            slots.decline()
            slots.decline()
            assert said(ours.fileno()) == [SlotRelease(number=4).encode()]

    run(scenario)


def test_an_offer_is_not_for_a_request_that_begins_otherwise() -> None:
    async def scenario() -> None:
        async with asked_once() as (ours, slots):
            await offer(ours, slots, 4)
            asking = asyncio.create_task(slots.take("b"))
            await asyncio.sleep(0)
            assert said(ours.fileno()) == [SlotRelease(number=4).encode(), b"ask b"]
            ours.send(b"5")
            assert await asking == 5
            slots.begun(5)
            assert said(ours.fileno()) == [b"begun 5"]

    run(scenario)


@pytest.mark.parametrize("order", [(b"offer 4", b"5"), (b"5", b"offer 4")])
def test_an_offer_is_no_answer(order: tuple[bytes, bytes]) -> None:
    """A background subagent asks as mail comes: it must not go with what was meant for that."""

    async def scenario() -> None:
        async with asked_once() as (ours, slots):
            asking = asyncio.create_task(slots.take("b"))
            await asyncio.sleep(0)
            for word in order:
                ours.send(word)
            assert await asking == 5
            if order[0] == b"5":
                await until(lambda: slots._offered == 4)
                slots.decline()
            assert said(ours.fileno()) == [b"ask b", SlotRelease(number=4).encode()]
            slots.begun(5)
            assert said(ours.fileno()) == [b"begun 5"]

    run(scenario)


def test_one_that_is_at_work_by_now_gives_back_what_it_is_offered() -> None:
    """It woke by itself, and runs a command for an hour."""

    async def scenario() -> None:
        async with asked_once(resting=False) as (ours, slots):
            ours.send(b"offer 4")
            words: list[bytes] = []

            def heard() -> bool:
                words.extend(said(ours.fileno()))
                return bool(words)

            await until(heard)
            assert words == [SlotRelease(number=4).encode()]
            assert slots._offered is None

    run(scenario)


@pytest.mark.parametrize("how", ["closed", "with words unread"])
def test_who_asks_once_the_channel_has_ended_fails(how: str) -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
        with ours, theirs:
            theirs.setblocking(False)
            slots = CallSlots(theirs.fileno())
            if how == "with words unread":
                slots.give_back(SlotRelease(number=1))
            ours.close()
            for _ in range(2):
                slots.decline()
                with pytest.raises(ConnectionResetError, match="grants no more slots"):
                    await slots.take("a")

    run(scenario)


def test_no_word_is_lost_where_the_supervisor_has_many_to_read() -> None:
    """A slot that is not given back is nobody's, for good."""

    async def scenario() -> None:
        async with asked_once() as (ours, slots):
            sent = 0
            with suppress(BlockingIOError):
                while True:
                    os.write(slots._fd, b"x")
                    sent += 1
            saying = asyncio.create_task(asyncio.to_thread(slots.give_back, SlotRelease(number=7)))
            await until(lambda: os.get_blocking(slots._fd), what="it waits for room")
            words = [await asyncio.to_thread(ours.recv, 64) for _ in range(sent + 1)]
            await saying
            assert words[-1] == SlotRelease(number=7).encode()
            assert not os.get_blocking(slots._fd)

    run(scenario)


def test_a_slot_is_offered_where_nobody_waits_for_it(tmp_path: Path) -> None:
    """To one that has asked before, and neither has a slot nor stands in the queue."""

    async def scenario() -> None:
        async with team(tmp_path, 2) as there:
            model, gone = Slow(), Slow()
            gone.go.set()
            ann, bob = there.enter("ann"), there.enter("bob")
            there.slots.offer("ann")
            there.slots.offer("nobody")
            assert said(there.ends["ann"]) == [], "it has never asked"
            for asker in (ann, bob):
                await begin(gone.of("one"), asker)
            await until(lambda: there.slots._held == 0)
            there.slots.offer("ann")
            there.slots.offer("ann")
            assert said(there.ends["ann"]) == [b"offer 2"], "one is enough"
            calls = [begin(model.of("bob"), bob)]
            await until(lambda: model.inside == 1)
            ann.give_back(SlotRelease(number=2))
            cid = there.enter("cid")
            calls += [begin(model.of("cid"), cid), begin(model.of("ann"), ann)]
            await until(lambda: len(there.slots._queue) == 1)
            there.slots.offer("ann")
            model.go.set()
            await asyncio.gather(*calls)
            assert model.most == 2

    run(scenario)


def test_none_is_offered_while_the_server_takes_no_more_calls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with team(tmp_path, 2) as there:
            ann, bob = there.enter("ann"), there.enter("bob")
            bob.give_back(SlotRelease(number=await bob.take()))
            refused = SlotRelease(number=await ann.take(), refused=True, retry_after_seconds=60)
            there.slots.offer("bob")
            assert said(there.ends["bob"]) == [b"offer 2"]
            bob.give_back(SlotRelease(number=2))
            ann.give_back(refused)
            await until(lambda: there.slots.pause_seconds > 0)
            there.slots.offer("bob")
            assert said(there.ends["bob"]) == []

    run(scenario)


def test_none_is_offered_where_all_are_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            ann, bob = there.enter("ann"), there.enter("bob")
            bob.give_back(SlotRelease(number=await bob.take()))
            await ann.take()
            there.slots.offer("bob")
            assert said(there.ends["bob"]) == []

    run(scenario)


def test_none_is_offered_while_another_brings_the_same_to_the_cache(tmp_path: Path) -> None:
    """Whoever goes on without that pays for writing it once more."""

    async def scenario() -> None:
        async with team(tmp_path, 9) as there:
            ann, bob = there.enter("ann"), there.enter("bob")
            for slots in (ann, bob):
                slots.give_back(SlotRelease(number=await slots.take("same")))
            await until(lambda: there.slots._held == 0)
            number = await ann.take("same")
            there.slots.offer("bob")
            assert said(there.ends["bob"]) == []
            ann.begun(number)
            await until(lambda: not there.slots._warmth.cold_seconds("same"))
            there.slots.offer("bob")
            assert said(there.ends["bob"]) == [b"offer 3"]

    run(scenario)


def test_a_slot_that_is_granted_as_its_call_is_cancelled_is_given_back() -> None:
    """Nobody else would ever have it."""

    async def scenario() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
        with ours, theirs:
            ours.settimeout(5)
            theirs.setblocking(False)
            call = asyncio.create_task(CallSlots(theirs.fileno()).take())
            await asyncio.sleep(0)
            assert ours.recv(64) == b"ask "
            ours.send(b"7")
            for _ in range(2):  # it is granted in the first round, and would go on in the third
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert ours.recv(64) == SlotRelease(number=7).encode()

    run(scenario)


def test_one_with_many_conversations_is_one_in_the_queue(tmp_path: Path) -> None:
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


def test_the_slots_of_one_that_has_died_are_free_at_once(tmp_path: Path) -> None:
    """Whether it was asking the model, or stood in the queue."""

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


def test_a_failure_and_a_cancellation_give_the_slot_back(tmp_path: Path) -> None:
    """A slot that stays taken would in the end stop the whole team."""

    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            slots = there.enter("ann")
            with pytest.raises(TransientError):
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


def test_a_refusal_of_one_slows_all_and_the_refused_goes_first(tmp_path: Path) -> None:
    """Others would run into the same wall; and who was refused has waited already."""

    async def scenario() -> None:
        async with team(tmp_path, 2) as there:
            model = Slow()
            model.go.set()
            ann, bob = there.enter("ann"), there.enter("bob")
            now = asyncio.get_running_loop().time
            begun = now()
            refused = Throttle(_Refusing(model.of("ann"), RefusedError("429", 0.3)), ann)
            retrying = Retrying(refused, POLICY, lambda *_: None)
            calls = [asyncio.create_task(retrying.reply(ASKED))]
            await until(lambda: there.slots.pause_seconds)
            calls.append(begin(model.of("bob"), bob))
            await asyncio.gather(*calls)
            assert now() - begun >= 0.3
            assert model.order == ["ann", "bob"]

    run(scenario)


class _Refusing:
    """A model that is refused once, and then answers as another does."""

    def __init__(self, model: Any, error: RefusedError) -> None:
        self._model = model
        self._errors = [error]

    async def reply(self, ask: Ask) -> Reply:
        """Refuse once."""
        if self._errors:
            raise self._errors.pop()
        reply: Reply = await self._model.reply(ask)
        return reply


@pytest.mark.parametrize("word", [b"", b"\xff" * 60, b"0 served ", b"begun ask", b"1 refused nan"])
def test_nonsense_of_one_harms_nobody_else(tmp_path: Path, word: bytes) -> None:
    async def scenario() -> None:
        async with team(tmp_path, 1) as there:
            slots = there.enter("bob")
            there.enter("eve")
            for _ in range(3):
                os.write(there.ends["eve"], ASK)  # is granted a slot, and goes mad
            with suppress(OSError):
                os.write(there.ends["eve"], word)
            assert (await begin(Player(say("Done.")), slots)).text == "Done."

    run(scenario)


def test_who_writes_nonsense_does_not_wait_for_ever(tmp_path: Path) -> None:
    """Its call fails, and its process with it: the next one has another channel."""

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
def test_what_a_slots_return_says_is_read_as_it_was_written(returned: SlotRelease) -> None:
    assert SlotRelease.decode(returned.encode()) == returned
