"""The demo over two hosts: mail between them, also while the broker is away."""

from __future__ import annotations

import asyncio
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import click

from teamctl.demo.demo_progress import REST_SECONDS, Onlooker, TeamEvent, Teller
from teamctl.demo.stage import (
    Part,
    Stage,
    failure,
    letters_from,
    letters_to,
    opened,
    read_story,
    script_of,
)
from teamctl.roster_table import show_everywhere
from teamd.errors import ExitCode, TeamError
from teamd.files.watch import wait_for
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import postman_runs, waiting
from teamd.overview.overview import OverviewReader
from teamd.programs.reaped import Reaped
from teamd.team.roster import Roster
from teamd.team.states import Status

_START_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
_LONGEST_LOG: Final = 1 << 16


@dataclass(slots=True)
class BrokerProcess:
    """nats-server on a port of this machine, to be started and ended in turn.

    Attributes:
        argv: the command that starts it.
    """

    argv: Sequence[str]
    port: int
    _loop: asyncio.Runner | None = field(default=None, init=False)
    _program: Reaped | None = field(default=None, init=False)
    _said: bytearray = field(default_factory=bytearray, init=False)

    def start(self) -> None:
        """Start it; it listens when this returns.

        Raises:
            TeamError: it does not.
        """
        self._loop = asyncio.Runner()
        self._loop.run(self._start())

    def end(self) -> None:
        """End it, if it runs; its process is gone when this returns."""
        if self._loop is None:
            return
        with self._loop as loop:
            self._loop = None
            if self._program is not None:
                with self._program as program:
                    self._program = None
                    loop.run(program.end())

    async def _start(self) -> None:
        self._program = Reaped(self.argv, output=self._hear, cwd=None, env=None)
        ended = asyncio.ensure_future(self._program.wait())
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not listens(self.port):
                    await asyncio.wait([ended], timeout=_PAUSE_SECONDS)
                    if ended.done():
                        self._program.drain()
                        raise self._failure(f"exit status {ended.result()}")
        except OSError as error:  # a TimeoutError, too
            raise self._failure(str(error) or f"nothing after {_START_SECONDS:g} s") from error
        finally:
            ended.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await ended

    def _hear(self, said: bytes) -> None:
        self._said += said
        del self._said[:-_LONGEST_LOG]

    def _failure(self, why: str) -> TeamError:
        said = self._said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return TeamError(f"the demo failed: nats-server did not start: {said or why}")


def find_free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether anybody listens on a port of loopback."""
    with closing(socket.socket()) as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


_HOSTS: Final = ("h1", "h2")
_WRITER: Final = ("h1", "alice")
_READER: Final = ("h2", "bob")
_OTHERS: Final = {_WRITER: _READER, _READER: _WRITER}
_LONGEST_NAME: Final = len("alice@h1")
_LETTERS: Final = {_WRITER: 2, _READER: 1}  # how many each sends to the other


@dataclass(frozen=True, slots=True)
class HostsStory:
    """All of it: who is spawned on which host, in that order, and the lead's later mail."""

    parts: tuple[tuple[str, Part], ...]
    later: str
    pace_seconds: float

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """Read the story that comes with the program, or another one.

        Raises:
            TeamError: it cannot be read.
        """
        return read_story(file, "hosts.toml", cls._of)

    @classmethod
    def _of(cls, told: dict[str, Any]) -> Self:
        parts = tuple((one["host"], Part.read(one)) for one in told["teammate"])
        return cls(parts, told["later"], float(told["pace_seconds"]))

    def script(self, *, paced: bool) -> str:
        """Return what `[model] script` plays on both hosts."""
        return script_of((part for _, part in self.parts), self.pace_seconds if paced else 0)


@dataclass(slots=True)
class TwoHosts:
    """One performance, on a stage for each host.

    Attributes:
        folder: of all of it.
        kept: whether that stays.
        check: called wherever the play may be broken off; raises if it is to be.
    """

    folder: Path
    story: HostsStory
    check: Callable[[], None]
    kept: bool
    broker: BrokerProcess
    stages: dict[str, Stage] = field(default_factory=dict)
    teller: Teller = field(default_factory=lambda: Teller(_LONGEST_NAME))
    _eyes: dict[tuple[str, str], Onlooker] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def opened(
        cls, folder: Path, story: HostsStory, script: str, check: Callable[[], None], *, kept: bool
    ) -> Iterator[Self]:
        """Open both stages; no process is left however the `with` block is left.

        Raises:
            TeamError: one is.
        """
        made = cls(folder, story, check, kept, BrokerProcess((), find_free_port()))
        with ExitStack() as stack:
            stack.callback(made._check_ended)
            stack.callback(made.broker.end)
            for host in _HOSTS:
                (folder / host).mkdir()
                stage = opened(folder / host, script, kept=kept)
                made.stages[host] = stack.enter_context(stage)
            yield made

    def run(self) -> None:
        """Play it, and look whether all of it happened.

        Raises:
            TeamError: something did not.
            Interrupted: it was broken off.
        """
        self._set_up()
        self._wait("h1 and h2 see each other", self._reachable)
        self._tell("h1", "sees h2, and h2 sees h1")
        self._spawn()
        self._follow("alice's mail reaches bob, and his reaches alice", self._all_arrived(1))
        self._cut()
        self._heal()
        self._wait("both end idle, as h1 sees it", self._idle)
        click.echo("\n$ teamctl team --hosts")
        near = self.stages["h1"].paths
        show_everywhere(OverviewReader(near).read(), self._others("h1"))
        self._judge()

    def _set_up(self) -> None:
        near, far = self.stages.values()
        listen = f"127.0.0.1:{self.broker.port}"
        init = ("hosts", "init", "--name", "h1", "--listen", listen, "h2")
        self._tell("h1", f"$ teamctl {' '.join(init)}")
        said = near.teamctl(*init).splitlines()
        # The command that it gives for a machine without systemd.
        program, *words = shlex.split(next(line for line in said if " -c " in line))
        self.broker.argv = (program, *words, "-l", str(self.folder / "broker.log"))
        self.check()
        self._start_broker("starts")
        token = HostPlaces(near.paths).keys / "tokens" / "h2.token"
        self._tell("h2", f"$ teamctl hosts join {token.name}")
        far.teamctl("hosts", "join", str(token))
        for host, stage in self.stages.items():
            self.check()
            self._tell(host, f"$ teamd start (in {stage.folder})")
            stage.start()

    def _start_broker(self, verb: str) -> None:
        self.broker.start()
        self._tell("broker", f"{verb} on 127.0.0.1:{self.broker.port}, with TLS both ways")

    def _spawn(self) -> None:
        for host, part in self.story.parts:
            self.check()
            given = self.stages[host].spawn(part)
            if given.exit_code != ExitCode.DONE:
                raise self._failure(f"{part.name} is spawned on {host}", given.text)
            member, paths = given.data["member"], self.stages[host].paths
            self.teller.colours[f"{part.name}@{host}"] = member["color"]
            self._tell(host, f"spawns {part.name}, {part.role} (pid {member['pid']})")
            eye = Onlooker(paths, [part.name], self.teller, self.check, host=host)
            self._eyes[host, part.name] = eye

    def _cut(self) -> None:
        """End the broker, and have alice write to bob nevertheless."""
        self.broker.end()
        self._tell("broker", "is ended")
        self._wait("h1 sees that h2 is away", lambda: not self._reachable())
        self._tell("h1", "has not heard of h2 for a while: it is unreachable")
        self._tell("h1", f"$ teamctl send alice {shlex.quote(self.story.later)}")
        self.stages["h1"].teamctl("send", "alice", self.story.later)
        self._follow("alice's second mail waits for h2", self._one_waits)
        self._tell("h1", "1 message waits here for h2")

    def _heal(self) -> None:
        self._start_broker("is back")
        self._follow("alice's second mail reaches bob", self._all_arrived(2))
        self._wait("h2 confirms it", lambda: not waiting(self.stages["h1"].paths, "h2"))
        self._tell("h1", "nothing waits here any more")

    def _judge(self) -> None:
        """Check that each message stands once in a conversation, and that both processes live."""
        for eye in self._eyes.values():
            eye.look()  # what came after the last look would be one too many
        for who, count in _LETTERS.items():
            sent, got = self._sent(who), self._got(who)
            if len(sent) != count or got != sent:
                step = f"each message of {who[1]}@{who[0]} arrives once"
                raise self._failure(step, f"{len(sent)} were sent, {len(got)} arrived")
        members = [
            one for each in self.stages.values() for one in Roster(each.paths).read().members
        ]
        living = {one.process.pid for one in members if one.process and one.process.alive}
        if len(living) != len(_LETTERS):
            raise self._failure("two processes live", f"{len(living)} do")

    def _follow(self, step: str, happened: Callable[[], bool]) -> None:
        """Tell what teammates do, until they are at rest and something has happened."""

        def look() -> bool | None:
            rested = [eye.look() for eye in self._eyes.values()]
            return (all(rested) and happened()) or bool(self._trouble()) or None

        folders = [stage.paths.transcripts for stage in self.stages.values()]
        done = wait_for(self.folder, look, timeout_seconds=REST_SECONDS, also=folders)
        if not done or self._trouble():
            raise self._failure(step, self._trouble() or f"not within {REST_SECONDS:g} s")

    def _wait(self, step: str, happened: Callable[[], bool]) -> None:
        """Wait for what the hosts' own files say."""

        def look() -> bool | None:
            self.check()
            return happened() or None

        places = [HostPlaces(stage.paths) for stage in self.stages.values()]
        folders = [folder for place in places for folder in (place.root, place.rosters)]
        if not wait_for(self.folder, look, timeout_seconds=REST_SECONDS, also=folders):
            raise self._failure(step, f"not within {REST_SECONDS:g} s")

    def _reachable(self) -> bool:
        pairs = zip(_HOSTS, reversed(_HOSTS), strict=True)
        return all(self._others(here).obstacle(there) is None for here, there in pairs)

    def _one_waits(self) -> bool:
        all_sent = len(self._sent(_WRITER)) == _LETTERS[_WRITER]
        return all_sent and waiting(self.stages["h1"].paths, "h2") == 1

    def _all_arrived(self, of_alice: int) -> Callable[[], bool]:
        """Return what says whether so much of her mail has arrived, and all of his."""
        wanted = {_WRITER: of_alice, _READER: _LETTERS[_READER]}
        return lambda: all(len(self._got(who)) >= count for who, count in wanted.items())

    def _idle(self) -> bool:
        near = [one.status for one in Roster(self.stages["h1"].paths).read().members]
        far = [one.status for one in self._others("h1").members("h2")]
        return [*near, *far] == [Status.IDLE, Status.IDLE]

    def _others(self, host: str) -> FarHosts:
        return FarHosts(self.stages[host].paths, host)

    def _sent(self, who: tuple[str, str]) -> list[str]:
        """Return what somebody has sent to the other."""
        return letters_to(_address(_OTHERS[who]), self._eyes[who].records[who[1]])

    def _got(self, sender: tuple[str, str]) -> list[str]:
        """Return what of somebody's mail stands in the other's conversation."""
        other = _OTHERS[sender]
        return letters_from(_address(sender), self._eyes[other].records[other[1]])

    def _trouble(self) -> str:
        return next((eye.trouble for eye in self._eyes.values() if eye.trouble), "")

    def _tell(self, who: str, what: str) -> None:
        self.teller.tell(TeamEvent(time.time(), who, what))

    def _failure(self, step: str, why: str) -> TeamError:
        return failure(self.folder, step, why, kept=self.kept)

    def _check_ended(self) -> None:
        for eye in self._eyes.values():
            eye.close()
        left = [host for host, stage in self.stages.items() if postman_runs(stage.paths)]
        if left:
            raise TeamError(f"the demo failed: a postman is left on {', '.join(left)}")


def _address(who: tuple[str, str]) -> str:
    host, name = who
    return f"{name}@demo@{host}"
