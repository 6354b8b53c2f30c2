"""The chat at a terminal: line editing and history, while the team goes on writing."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import click

from teamctl.chat import words
from teamctl.chat.listening import Listening
from teamd.errors import TeamError
from teamd.protocol import COMPACT_TYPE, LEAD
from teamd.states import Status
from teamd.store import files, running
from teamd.store.roster import Roster
from teamd.store.watch import watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from teamctl.chat.lead import Lead
    from teamd.store.watch import Watch

    Run = Callable[[Sequence[str]], None]

_PROMPT: Final = "> "
_LOOK_SECONDS: Final = 1.0  # whatever a watch may miss; also how soon a dead team is noticed


def talk(lead: Lead, run: Run) -> None:
    """Talk until the person leaves; the team lives on.

    Args:
        lead: has been called.
        run: runs a `teamctl` command of this team.

    Raises:
        TeamError: the lead or its supervisor has gone.
    """
    asyncio.run(_Chat(lead, run).hold())


class _Chat:
    def __init__(self, lead: Lead, run: Run) -> None:
        self._lead = lead
        self._run = run
        self._listening = Listening(lead.paths, self._write)
        self._typing = False
        self._heard = asyncio.Event()

    async def hold(self) -> None:
        """Lines of the person and turns of the lead, one after the other."""
        lines = self._typed() if sys.stdin.isatty() else self._piped()
        with self._listened():
            async for line in lines:
                if line.split(maxsplit=1)[:1] == ["/compact"]:
                    await self._say("Sum up our conversation.", kind=COMPACT_TYPE)
                elif line.startswith("/"):
                    if not words.obey(line, self._run):
                        return
                elif line:
                    await self._say(line)

    async def _say(self, text: str, **more: str) -> None:
        self._listening.wait_for(self._lead.tell(text, **more))
        await self._turn()

    async def _turn(self) -> None:
        """Wait for the end of the turn that answers; Ctrl-C breaks it off, twice leaves it."""
        interrupts = 0

        def interrupt() -> None:
            nonlocal interrupts
            interrupts += 1
            self._lead.interrupt()
            self._heard.set()

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            while self._listening.ended is None and interrupts < 2:  # noqa: PLR2004 -- see above
                self._check()
                self._heard.clear()
                try:
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._heard.wait()
                except TimeoutError:
                    self._look()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _check(self) -> None:
        running.check(self._lead.paths)
        member = Roster(self._lead.paths).read().get(LEAD)
        if member.status in (Status.FAILED, Status.SHUTDOWN):
            why = f": {member.reason}" if member.reason else ""
            raise TeamError(f"lead is {member.status}{why}; `teamctl chat` calls it again")

    @contextmanager
    def _listened(self) -> Iterator[None]:
        """Tell what happens for the length of a block, also while a line is typed."""
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            for folder in (self._lead.paths.transcripts, self._lead.paths.inboxes):
                watching = watch(folder)
                stack.callback(watching.close)
                loop.add_reader(watching.fileno(), self._hear, watching)
                stack.callback(loop.remove_reader, watching.fileno())
            self._look()
            yield

    def _hear(self, watching: Watch) -> None:
        watching.changed()
        self._look()

    def _look(self) -> None:
        self._listening.look()
        self._heard.set()

    async def _typed(self) -> AsyncIterator[str]:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 -- 100 ms, only at a terminal
        from prompt_toolkit.history import FileHistory  # noqa: PLC0415
        from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415

        history = self._lead.paths.root / "chat.history"
        files.append(history, b"", durable=False)  # made here, so that it is private
        session: PromptSession[str] = PromptSession(history=FileHistory(str(history)))
        while True:
            try:
                with self._line_open(), patch_stdout(raw=True):
                    line = await session.prompt_async(_PROMPT)
            except KeyboardInterrupt:
                click.echo("(Ctrl-D or /quit leaves; the team goes on)")
                continue
            except EOFError:
                return
            yield line.strip()

    async def _piped(self) -> AsyncIterator[str]:
        for line in sys.stdin.buffer:  # as `chat -` reads it: what is not UTF-8 is no crash
            yield line.decode("utf-8", "replace").strip()

    @contextmanager
    def _line_open(self) -> Iterator[None]:
        """A line is being typed: what is told meanwhile stands above it, whole lines at a time."""
        self._typing = True
        try:
            yield
        finally:
            self._typing = False

    def _write(self, text: str) -> None:
        sys.stdout.write(text if sys.stdout.isatty() else click.unstyle(text))
        if not self._typing:  # half a line would be drawn over by the one that is typed
            sys.stdout.flush()
