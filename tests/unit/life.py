"""One teammate's loop with real files and a model that plays the answers of a test."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from teamctl.main import main
from teamd.agent.approvals import Plans
from teamd.agent.call_slots import CallSlots
from teamd.agent.conversation.compaction import Compaction, ask_nobody
from teamd.agent.conversation.context import frame_of
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import OpenWork
from teamd.agent.delivery import Delivery
from teamd.agent.environment import Environment
from teamd.agent.loop import Loop
from teamd.agent.model_calls import ModelCalls
from teamd.agent.turn import Cancellation
from teamd.agent.wakeup import CallBudget, HeartbeatSender, Wakeup
from teamd.approvals.store import Approvals
from teamd.budget.ledger import Ledger
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.masking import Mask
from teamd.messages import INTERRUPT_TYPE, STATE_TYPE, TEAMD, Message
from teamd.model_server import Usage
from teamd.model_server.facts import ModelFacts
from teamd.models import Ask, Provider, Reply, RetryPolicy
from teamd.sandbox.probe import Probe
from teamd.settings import Settings
from teamd.settings.schema import Mail, ModelSettings
from teamd.team.heartbeat import Heartbeat
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.slot_messages import CHANNEL
from teamd.team.states import Status
from teamd.tools import Input, Tool, Toolbox
from teamd.tools.approval import ShutdownResponse, SubmitPlan
from teamd.transcript.file import Transcript, decode
from teamd.transcript.records import NewsAdded, Opened, Record
from tests.strict.conversation import Issued
from tests.strict.replies import Answer, say
from tests.strict.rules import VERSION, Terms, check_create
from tests.waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The exit status of a call, and its whole output."""

    status: int
    out: str
    err: str


class Stream(io.TextIOWrapper):
    """An output stream of a command: not a terminal, with its text available afterwards."""

    def __init__(self, **options: Any) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", **options)

    @property
    def text(self) -> str:
        """The whole output."""
        self.flush()
        written = self.buffer
        assert isinstance(written, io.BytesIO)
        return written.getvalue().decode()


class TerminalStream(Stream):
    """The same as a terminal; its width is that of `COLUMNS`, or 80."""

    def isatty(self) -> bool:
        return True


def call(paths: TeamPaths | None, *argv: str, out: Stream | None = None) -> Called:
    """Run a command for a team, or without a team for the current folder."""
    which = [] if paths is None else ["--team-dir", str(paths.root)]
    out, err = out or Stream(), Stream()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["teamctl", *which, *argv])
        with pytest.raises(SystemExit) as ended:
            main()
    return Called(status=ended.value.code, out=out.text, err=err.text)  # type: ignore[arg-type]


def as_record(fields: dict[str, Any]) -> Record:
    """Return the record in a line with these fields."""
    record = decode(json.dumps(fields).encode())
    assert record is not None
    return record


MODEL = "claude-sonnet-5-5"
SYSTEM = "You are 'alice', role: tester."
TERMS = Terms(keys=(), models=(MODEL, "other"), context_tokens=1_000_000, output_tokens=100_000)
NEVER_SECONDS = 3600.0


def quiet_pulse() -> HeartbeatSender:
    """Return a heartbeat sender whose beats have no receiver."""
    return HeartbeatSender(Heartbeat(), every_seconds=NEVER_SECONDS)


def body_of(ask: Ask) -> dict[str, Any]:
    """Return the body of a request."""
    return {
        "model": ask.model,
        "max_tokens": ask.max_tokens,
        "stream": True,
        "system": [{"type": "text", "text": ask.system}],
        "tools": ask.tools,
        "messages": ask.messages,
    }


def replied(answer: Answer, ask: Ask | None = None) -> Reply:
    """Turn a strict server's answer into a model's reply, with thinking bound to a request."""
    body = {"messages": []} if ask is None else body_of(ask)
    message = answer.message(model=MODEL, usage={}, body=body)
    usage = Usage(input_tokens=10, cache_read_tokens=20, cache_write_tokens=30, output_tokens=4)
    return Reply(
        content=message["content"],
        stop_reason=message["stop_reason"],
        model=MODEL,
        usage=usage,
        frame="" if ask is None else frame_of(ask, ""),
    )


class Judge:
    """Refuses every request that the real service would refuse."""

    def __init__(self) -> None:
        self._issued = Issued()

    def check(self, ask: Ask) -> None:
        """Raise `ApiError` unless the service would answer."""
        check_create(body_of(ask), VERSION, TERMS, self._issued)

    def remember(self, reply: Reply) -> None:
        """Record the thinking of a reply as issued."""
        self._issued.remember({"content": reply.content, "stop_reason": reply.stop_reason})


Play = Answer | Exception


def copy(ask: Ask) -> Ask:
    """Copy a request and its conversation: `deepcopy` takes five times as long."""
    tools, messages = pickle.loads(pickle.dumps((ask.tools, ask.messages)))
    return replace(ask, tools=tools, messages=messages)


class Player(Provider):
    """A model that plays its turns in order, then has nothing to say.

    Attributes:
        asked: copies of the requests, each of them valid for the service.
    """

    def __init__(self, *plays: Play, judge: Judge | None = None) -> None:
        self.asked: list[Ask] = []
        self._plays = deque(plays)
        self.judge = judge or Judge()

    async def reply(self, ask: Ask) -> Reply:
        """Play the next turn."""
        self.asked.append(copy(ask))
        self.judge.check(ask)
        play = self._plays.popleft() if self._plays else say("Nothing to do.")
        if isinstance(play, Exception):
            raise play
        reply = replied(play, ask)
        self.judge.remember(reply)
        return reply

    def last(self, number: int = -1) -> list[dict[str, Any]]:
        """Return the blocks of the last user message of one request."""
        message = self.asked[number].messages[-1]
        assert message["role"] == "user"
        return list(message["content"])


class FreeSlots(CallSlots):
    """Slots of a team without a limit."""

    def __init__(self) -> None:
        super().__init__(-1)

    async def take(self, prefix: str = "") -> int:  # noqa: ARG002 -- of the class above
        return 0

    def _send(self, word: bytes) -> None:
        """Tell nobody."""


def calls_to(provider: Provider, ledger: Ledger, **parts: Any) -> ModelCalls:
    """Return alice's model calls to a provider; they are tried once, and wait for no slot."""
    given = {
        "slots": FreeSlots(), "name": "alice", "policy": RetryPolicy(attempts=1),
        "tell": lambda *_: None,
    }  # fmt: skip
    return ModelCalls(provider=provider, ledger=ledger, **{**given, **parts})


def enrol(paths: TeamPaths, **members: Status) -> None:
    """Make a team directory whose roster has these members."""
    paths.create()
    for name, status in members.items():
        member = Member(name=name, agent_id=f"{name}@project", role="tester", status=status)
        Roster(paths).update(partial(_with, member))


def _with(member: Member, team: Team) -> Team:
    return team.with_member(member)


class Nothing(Input):
    """A word that tells calls apart."""

    word: str = ""


class Do(Tool[Nothing]):
    """Runs an action of the test during each call."""

    name: ClassVar[str] = "do"
    description: ClassVar[str] = "Do it."
    Input = Nothing

    def __init__(self, action: Callable[[str], Awaitable[None]] | None = None) -> None:
        self.done: list[str] = []
        self._action = action

    async def call(self, arguments: Nothing, _key: str) -> str:
        """Run the action."""
        if self._action is not None:
            await self._action(arguments.word)
        self.done.append(arguments.word)
        return f"did {arguments.word}"


class Life:
    """Alice's life, from mail to mail; each `lived` is a new process."""

    def __init__(
        self,
        folder: Path,
        *plays: Play,
        do: Do | None = None,
        calls: int = 50,
        room: ModelSettings | None = None,
        open_work: OpenWork = tuple,
    ) -> None:
        self.paths = TeamPaths(folder / ".team")
        self.post = MailRouter(self.paths, durable=False, max_bytes=1_000_000)
        enrol(self.paths, alice=Status.IDLE)
        self.approvals = Approvals(self.paths, self.post)
        self.judge = Judge()
        self.model: Player = Player(*plays, judge=self.judge)
        self.do = do or Do()
        self.calls = calls
        self.allowance = CallBudget(calls)
        self.room = room or ModelSettings()
        self.settings = Settings(
            model=replace(self.room, max_tokens=1000), mail=Mail(durability="os")
        )
        self.open_work = open_work
        self.fetch: Callable[[], bool] = lambda: False
        self.opening = Opened(system=SYSTEM)
        self.model_name = MODEL
        self.facts: Callable[[str], Awaitable[ModelFacts]] = ask_nobody
        self.news: list[NewsAdded] = []
        self.more: list[Tool[Any]] = []
        self.mailbox = self.post.mailbox("alice")
        self.bell: tuple[int, int] | None = None
        self._slots: socket.socket | None = None
        self.mask = Mask()
        self.busy = False
        self.learn_key: Callable[[], Awaitable[None]] | None = None
        self._task: asyncio.Task[None] | None = None

    def plans(self, conversation: Conversation) -> Plans:
        """Return her plans; the roster says whether she works by plan."""
        return Plans(
            name="alice",
            conversation=conversation,
            approvals=self.approvals,
            roster=Roster(self.paths),
        )

    def conversation(self) -> Conversation:
        """Return the conversation as it is on disk."""
        return Conversation(Transcript(self.paths.transcript("alice"), durable=False))

    def send(self, text: str, **more: Any) -> Message:
        """Put mail into alice's inbox and ring."""
        message = Message(sender="lead", to="alice", content=text, **more)
        self.post.send(message)
        self.ring()
        return message

    def hang_up(self) -> None:
        """Close the supervisor's end, as when it was killed."""
        assert self.bell is not None
        os.dup2(self.bell[0], self.bell[1], inheritable=False)

    def interrupt(self, text: str = "") -> Message:
        """Interrupt her turn, as the supervisor does for a person."""
        message = self.send(text, type=INTERRUPT_TYPE)
        self.signal()
        return message

    def signal(self) -> None:
        """Send her the signal of an interrupt, without mail."""
        self._loop.interrupt()

    def ring(self) -> None:
        """Ring the bell, if there is one yet, as the supervisor does."""
        if self.bell is not None:
            os.write(self.bell[1], b"!")

    @property
    def states(self) -> list[str]:
        """The statuses that she has reported, oldest first."""
        said = Mailbox(self.paths, TEAMD, durable=False).peek()
        return [m.content for m in said if m.type == STATE_TYPE]

    @property
    def lead(self) -> list[str]:
        """The texts of the lead's mail."""
        return [message.content for message in self.post.mailbox("lead").peek()]

    @asynccontextmanager
    async def made(self) -> AsyncIterator[Loop]:
        """Create her loop for the length of a block without running it."""
        self.bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        journal = Journal(self.paths.log("alice"), "alice")
        self.slots, self._slots = socket.socketpair(socket.AF_UNIX, CHANNEL)
        self._slots.setblocking(False)
        self._loop = self._make_loop(self._environment(self.bell[0], journal))
        try:
            yield self._loop
        finally:
            self.slots.close()
            self._slots.close()
            for fd in self.bell:
                os.close(fd)
            self.bell = None
            journal.close()

    @asynccontextmanager
    async def lived(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run her loop for the length of a block."""
        async with self.made() as loop:
            self._task = asyncio.create_task(loop.run())
            try:
                yield self._task
            finally:
                self._task.cancel()
                await asyncio.wait([self._task])

    async def rests(self, status: str = "idle", *, calls: int) -> None:
        """Wait until she has made `calls` requests and has come to rest."""

        def rested() -> bool:
            assert self._task is not None
            if self._task.done():
                self._task.result()
            rests = len(self.model.asked) >= calls and self.states[-1:] == [status]
            # Her last report may be older than her last request.
            return rests and not (status == "idle" and self.conversation().owes_reply)

        await until(rested, what=f"{status} after {calls} calls")
        assert len(self.model.asked) == calls

    def live(self, *, calls: int, status: str = "idle") -> None:
        """Run her until she rests."""

        async def life() -> None:
            async with self.lived():
                await self.rests(status, calls=calls)

        asyncio.run(life())

    def _environment(self, bell: int, journal: Journal) -> Environment:
        return Environment(
            name="alice",
            paths=self.paths,
            settings=self.settings,
            journal=journal,
            slots=CallSlots(-1 if self._slots is None else self._slots.fileno()),
            wakeup=Wakeup(bell, pulse=quiet_pulse(), recheck_seconds=NEVER_SECONDS),
            check=lambda: None,
            granted_bytes=lambda: 0,
            probe=Probe(),
            mask=self.mask,
            ledger=Ledger(self.paths.ledger),
            roster=Roster(self.paths),
        )

    def _make_loop(self, env: Environment) -> Loop:
        self.allowance = CallBudget(self.calls)
        tools: list[Tool[Any]] = [
            self.do,
            *self.more,
            SubmitPlan(env.approvals, "alice", lambda: env.conversation.task, str),
            ShutdownResponse(env.approvals, "alice", env.reporter.report_answer),
        ]
        turn = Cancellation()
        compaction = Compaction(
            conversation=env.conversation,
            model=self.model,
            toolbox=Toolbox(tools, gate=env.plans.refusal, permit=env.permissions.check),
            settings=env.settings.model,
            model_name=lambda of_role: of_role or self.model_name,
            effort=lambda of_role: of_role or env.settings.model.effort,
            facts=self.facts,
            asker=env.name,
            open_work=self.open_work,
        )
        delivery = Delivery(
            env=env,
            opening=lambda: self.opening,
            news=lambda: self.news,
            summarise=compaction.request,
            turn=turn,
        )
        return Loop(
            env=env,
            compaction=compaction,
            delivery=delivery,
            turn=turn,
            claim=self.fetch,
            calls=self.allowance,
            busy=lambda: self.busy,
            learn_key=self.learn_key,
        )
