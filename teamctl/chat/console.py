"""The chat at a terminal: line editing and history while the team's output comes in."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Final

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle

from teamctl.arguments import answerable, members
from teamctl.chat.lead import Lead
from teamctl.chat.listener import Listener, Turn
from teamctl.mail.receipts import GONE, explain_wait
from teamctl.render import layout
from teamctl.tail import hints
from teamd.command_line import terminal
from teamd.errors import TeamError
from teamd.files import files, pidfile
from teamd.files.paths import TeamPaths
from teamd.messages import COMPACT_TYPE, LEAD
from teamd.team.roster import Roster

COMPACT: Final = "/compact"
HELP: Final = "/help"
QUIT: Final = "/quit"


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command.

    Attributes:
        argv: turns its arguments into those of `teamctl`; `None` for commands of the chat itself.
        names: returns the completions of its first argument.
    """

    usage: str
    help: str
    argv: Callable[[str], list[str]] | None = None
    names: Callable[[TeamPaths], list[str]] = lambda _: []

    @property
    def word(self) -> str:
        """The command with its slash, without arguments."""
        return self.usage.partition(" ")[0]


def _call(name: str) -> Callable[[str], list[str]]:
    return lambda _: [name]


def _answer(name: str, option: str) -> Callable[[str], list[str]]:
    """Return an `argv` function for answers; the words after the id are the reason."""

    def argv(rest: str) -> list[str]:
        request, _, words = rest.partition(" ")
        said = [f"{option}={words.strip()}"] if words.strip() else []
        return [name, *([request] if request else []), *said]

    return argv


def _transcript(rest: str) -> list[str]:
    return ["transcript", rest.partition(" ")[0] or LEAD]


COMMANDS: Final = {
    one.word: one
    for one in (
        SlashCommand("/team", "show the members of the team and their states", _call("team")),
        SlashCommand("/inbox", "read your mail", _call("inbox")),
        SlashCommand("/tasks", "show the task board", _call("tasks")),
        SlashCommand("/requests", "list what waits for your answer", _call("requests")),
        SlashCommand(
            "/approve ID [WORDS]",
            "approve a request",
            _answer("approve", "--feedback"),
            answerable,
        ),
        SlashCommand(
            "/reject ID [WORDS]", "reject a request", _answer("reject", "--reason"), answerable
        ),
        SlashCommand("/usage", "show tokens and cost", _call("usage")),
        SlashCommand("/transcript [NAME]", "show a conversation", _transcript, members),
        SlashCommand(COMPACT, "have the lead summarize its conversation"),
        SlashCommand(HELP, "list these commands"),
        SlashCommand(QUIT, "leave; the team goes on (also Ctrl-D)"),
    )
}


def describe() -> str:
    width = max(len(one.usage) for one in COMMANDS.values())
    return "\n".join(f"{one.usage:{width}}  {one.help}" for one in COMMANDS.values())


def find_near(word: str) -> str | None:
    """Return the command closest to an unknown one."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for unknown commands

    begun = [name for name in COMMANDS if name.startswith(word)]
    return next(iter(begun or get_close_matches(word, COMMANDS, n=1)), None)


def complete(paths: TeamPaths, typed: str) -> list[str]:
    """Return the completions of a line's last word; none for a line to the lead.

    Args:
        paths: the team.
        typed: the line so far.
    """
    word, space, rest = typed.partition(" ")
    if not word.startswith("/") or " " in rest:
        return []
    if not space:
        return [name for name in COMMANDS if name.startswith(word.lower())]
    found = COMMANDS.get(word.lower())
    names = [] if found is None else found.names(paths)
    return [name for name in names if name.lower().startswith(rest.lower())]


_CONTINUED = "  "


def make_session(paths: TeamPaths) -> PromptSession[str]:
    """Return the line editor: Enter sends the text, Alt-Enter adds a line to it."""
    return PromptSession(
        history=FileHistory(str(paths.chat_history)),
        completer=_SlashCompleter(paths),
        complete_style=CompleteStyle.READLINE_LIKE,  # as in a shell
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
        return complete(paths, typed)
    except TeamError:  # an error must not disturb typing
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
    """Suggests the first matching command; the right arrow accepts it."""

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
_LOOK_SECONDS: Final = 1.0  # finds changes that a watch missed, and a dead team


def talk(lead: Lead, run: Run) -> None:
    """Talk until the person leaves; the team keeps running.

    Args:
        lead: it must have been called.
        run: runs a `teamctl` command of this team.

    Raises:
        TeamError: the lead or its supervisor has ended.
    """
    try:
        asyncio.run(_Chat(lead, run).hold())
    finally:
        lead.paths.note_seen()


class _Chat:
    def __init__(self, lead: Lead, run: Run) -> None:
        self._lead = lead
        self._run = run
        self._listener = Listener(lead.paths, self._write)
        self._typing = False
        self._heard = asyncio.Event()
        self._person = sys.stdin.isatty()
        # Piped output has neither prompts nor progress lines.
        self._drawn = self._person and sys.stdout.isatty()
        self._progress = False  # whether a progress line is shown

    async def hold(self) -> None:
        """Read lines from the person, and wait for the lead's turn after each."""
        if self._person:
            self._listener.catch_up()
        else:
            self._listener.skip()
        folders = (self._lead.paths.transcripts, self._lead.paths.inboxes)
        with hints(folders, lambda _: self._look()):  # shows events even while a line is typed
            self._look()
            async for line in self._typed() if self._drawn else _lines(sys.stdin.fileno()):
                if not await self._take(line.strip()):
                    return

    async def _take(self, line: str) -> bool:
        """Run a slash command or send the line to the lead; return whether the chat continues."""
        command = line.split(maxsplit=1)[0].lower() if line.startswith("/") else None
        if command == COMPACT:
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
        """Wait for the answering turn to end; Ctrl-C interrupts it, a second one stops waiting."""
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
        """Draw a progress line, which the next output overwrites."""
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
        """Return whether the wait is over.

        Raises:
            TeamError: the lead or its supervisor has ended; in a script, also if the lead does not
                read its mail.
        """
        pidfile.check(self._lead.paths)
        member = Roster(self._lead.paths).read().get(LEAD)
        why_waiting = explain_wait(self._lead.paths, member)
        # Read after the roster, so that the last records of an ended lead are seen.
        self._listener.look()
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

    def _look(self) -> None:
        self._listener.look()
        self._heard.set()

    async def _typed(self) -> AsyncIterator[str]:
        # Created here with private permissions.
        files.append(self._lead.paths.chat_history, b"", durable=False)
        session = make_session(self._lead.paths)
        while True:
            self._typing = True  # output appears above the line, in whole lines
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
        if not self._typing:  # the prompt would overwrite a partial line
            sys.stdout.flush()


def _obey(word: str, rest: str, run: Run) -> bool:
    """Run a slash command.

    Args:
        word: the command with its slash, in lower case.
        rest: its arguments.
        run: runs a `teamctl` command of this team.

    Returns:
        Whether the chat continues.
    """
    found = COMMANDS.get(word)
    if word == QUIT:
        return False
    if found is None:
        near = find_near(word)
        hint = f"did you mean {near}?" if near else f"{HELP} lists them"
        click.echo(f"no command {word!r}; {hint}", err=True)
    elif found.argv is None:
        click.echo(describe())
    else:
        run(found.argv(rest))
    return True


def _dumb() -> bool:
    """Return whether the terminal cannot overwrite a line."""
    return os.environ.get("TERM") == "dumb"


async def _lines(fd: int) -> AsyncIterator[str]:
    """Yield lines as they arrive without blocking the loop; invalid UTF-8 is replaced."""
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
    except PermissionError:  # epoll(7) rejects regular files, which never block
        return os.read(fd, _PART_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _PART_BYTES)
