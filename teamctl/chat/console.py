"""The chat at a terminal: line editing and history, while the team goes on writing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle

from teamctl.chat import slash
from teamctl.chat.listener import Listener, Turn
from teamctl.mail.receipts import GONE, explain_wait
from teamctl.render import layout
from teamd.command_line import terminal
from teamd.errors import TeamError
from teamd.files import files, pidfile
from teamd.files.paths import TeamPaths
from teamd.files.watch import Watch, watch
from teamd.messages import COMPACT_TYPE, LEAD
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamctl.chat.lead import Lead


_CONTINUED = "  "


def make_session(paths: TeamPaths) -> PromptSession[str]:
    """Return what reads lines: Enter ends one, Alt-Enter begins another one within it."""
    return PromptSession(
        history=FileHistory(str(paths.chat_history)),
        completer=_SlashCompleter(paths),
        complete_style=CompleteStyle.READLINE_LIKE,  # as in a shell, and without empty lines
        complete_while_typing=False,
        auto_suggest=_SlashSuggestion(paths),
        multiline=True,
        prompt_continuation=_CONTINUED,
        key_bindings=_keys(),
    )


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _found(paths: TeamPaths, typed: str) -> list[str]:
    try:
        return slash.complete(paths, typed)
    except TeamError:  # whoever types wants no error
        return []


class _SlashCompleter(Completer):
    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 -- prompt_toolkit's
    ) -> Iterator[Completion]:
        typed = document.text_before_cursor
        for word in _found(self._paths, typed):
            yield Completion(word, start_position=-len(typed.rpartition(" ")[2]))


class _SlashSuggestion(AutoSuggest):
    """Shows the rest of the first command that a line may become; the right arrow takes it."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths

    def get_suggestion(
        self,
        buffer: Buffer,  # noqa: ARG002 -- prompt_toolkit's
        document: Document,
    ) -> Suggestion | None:
        if len(document.text) < len("/t"):
            return None
        last = document.text.rpartition(" ")[2]
        found = _found(self._paths, document.text)
        return Suggestion(found[0][len(last) :]) if found else None


Run = Callable[[Sequence[str]], None]

_PROMPT: Final = "> "
_CLEAR_LINE: Final = "\r\x1b[K"
_PART_BYTES: Final = 1 << 16
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
        self._listener = Listener(lead.paths, self._write)
        self._typing = False
        self._heard = asyncio.Event()
        self._person = sys.stdin.isatty()
        # Who pipes what is shown into a file wants neither prompts nor what is drawn over.
        self._drawn = self._person and sys.stdout.isatty()
        self._progress = False  # whether a line that is drawn over stands there

    async def hold(self) -> None:
        """Take lines of the person and wait for turns of the lead, one after the other."""
        if self._person:
            self._listener.catch_up()
        else:
            self._listener.skip()
        with self._listened():
            async for line in self._typed() if self._drawn else _lines(sys.stdin.fileno()):
                if not await self._take(line.strip()):
                    return

    async def _take(self, line: str) -> bool:
        """Do what a line says, or have the lead do it; returns whether the chat goes on."""
        command = line.split(maxsplit=1)[0].lower() if line.startswith("/") else None
        if command == slash.COMPACT:
            await self._say("Sum up our conversation.", kind=COMPACT_TYPE)
        elif command is not None:
            return _obey(command, line[len(command) :].strip(), self._run)
        elif line:
            await self._say(line)
        return True

    async def _say(self, text: str, **more: str) -> None:
        self._listener.wait_for(self._lead.tell(text, **more))
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
        turn = Turn(self._lead.paths) if self._drawn else None
        try:
            while self._listener.ended is None and interrupts < 2:  # noqa: PLR2004 -- see above
                self._heard.clear()
                if self._over():
                    break
                self._show_progress(turn)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._heard.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if turn is not None:
            self._write(terminal.style(f"· {turn.cost()}", dim=True) + "\n")

    def _show_progress(self, turn: Turn | None) -> None:
        """Draw what the lead does below all that was said, to be drawn over by what comes next."""
        doing = self._listener.doing
        if turn is None or not doing.what or self._listener.in_line or _dumb():
            return
        since = max(0, int(time.time() - doing.since))
        width = get_terminal_size().columns - 1
        text = f"· {layout.clip_line(doing.what)}, {since}s (in all {turn.cost()})"
        self._write("")
        sys.stdout.write(terminal.style(text[:width], dim=True))
        sys.stdout.flush()
        self._progress = True

    def _over(self) -> bool:
        """Return true once there is nothing to wait for any more.

        Raises:
            TeamError: the lead or its supervisor has gone; without a person to tell, also where
                the lead does not read.
        """
        pidfile.check(self._lead.paths)
        member = Roster(self._lead.paths).read().get(LEAD)
        why_waiting = explain_wait(self._lead.paths, member)
        self._listener.look()  # after the roster: what it wrote before it went, it wrote
        if self._listener.ended is not None:
            return True
        if member.status in GONE:
            why = f": {member.reason}" if member.reason else ""
            raise TeamError(f"lead is {member.status}{why}; `teamctl chat` calls it again")
        if why_waiting is None or self._listener.arrived:
            return False
        if not self._person:
            raise TeamError(why_waiting)
        self._listener.notice(why_waiting)
        return True

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
        self._listener.look()
        self._heard.set()

    async def _typed(self) -> AsyncIterator[str]:
        from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415 -- the same

        from teamctl.chat.console import make_session  # noqa: PLC0415 -- 100 ms, only at a terminal

        # Made here, so that it is private.
        files.append(self._lead.paths.chat_history, b"", durable=False)
        session = make_session(self._lead.paths)
        while True:
            self._typing = True  # what is told meanwhile stands above the line, in whole lines
            try:
                with patch_stdout(raw=True):
                    line = await session.prompt_async(_PROMPT)
            except KeyboardInterrupt:
                click.echo("(Ctrl-D or /quit leaves; the team goes on)")
                continue
            except EOFError:
                return
            finally:
                self._typing = False
            yield line

    def _write(self, text: str) -> None:
        if self._progress:
            sys.stdout.write(_CLEAR_LINE)
            self._progress = False
        sys.stdout.write(text if sys.stdout.isatty() else click.unstyle(text))
        if not self._typing:  # half a line would be drawn over by the one that is typed
            sys.stdout.flush()


def _obey(word: str, rest: str, run: Run) -> bool:
    """Do what a command says.

    Args:
        word: with its slash, in lower case.
        rest: what stands behind it.
        run: runs a `teamctl` command of this team.

    Returns:
        Whether the chat goes on.
    """
    found = slash.COMMANDS.get(word)
    if word == slash.QUIT:
        return False
    if found is None:
        near = slash.find_near(word)
        hint = f"did you mean {near}?" if near else f"{slash.HELP} lists them"
        click.echo(f"no command {word!r}; {hint}", err=True)
    elif found.argv is None:
        click.echo(slash.describe())
    else:
        run(found.argv(rest))
    return True


def _dumb() -> bool:
    """Return whether the terminal cannot draw over a line."""
    return os.environ.get("TERM") == "dumb"


async def _lines(fd: int) -> AsyncIterator[str]:
    """Yield lines as they come; the loop goes on meanwhile. What is not UTF-8 is no crash."""
    rest = b""
    while part := await _read(fd):
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:  # epoll(7) takes no regular file, which lets nobody wait
        return os.read(fd, _PART_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _PART_BYTES)
