"""The chat at a terminal: line editing, history and a footer while the team's output comes in."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from teamctl.chat.footer import Footer
from teamctl.chat.lead import Lead
from teamctl.chat.listener import Listener
from teamctl.chat.slash import (
    COMPACT,
    MAIL,
    MODEL,
    Run,
    SlashCompleter,
    SlashSuggestion,
    argv_of_mail,
    obey,
)
from teamctl.chat.spending import Spending
from teamctl.mail.receipts import GONE, explain_wait
from teamctl.render import output
from teamctl.tail import hints
from teamd.command_line import terminal
from teamd.errors import TeamError
from teamd.files import files, pidfile
from teamd.files.paths import TeamPaths
from teamd.messages import COMPACT_TYPE, LEAD
from teamd.team.roster import Roster

_CONTINUED: Final = "  "
_PROMPT: Final = "> "
_PART_BYTES: Final = 1 << 16
_LOOK_SECONDS: Final = 1.0  # finds changes that a watch missed, and a dead team
_STYLE: Final = Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack"})
_HOW_TO_LEAVE: Final = "(Ctrl-D or /quit leaves; the team goes on)"


def make_session(
    paths: TeamPaths,
    footer: Callable[[], str] | None = None,
    keys: KeyBindings | None = None,
) -> PromptSession[str]:
    """Return the line editor: Enter sends the text, Alt-Enter adds a line to it.

    Args:
        paths: the team.
        footer: returns the lines below the typed text; `None` for none.
        keys: further key bindings.
    """
    return PromptSession(
        history=FileHistory(str(paths.chat_history)),
        completer=SlashCompleter(paths),
        complete_style=CompleteStyle.READLINE_LIKE,  # as in a shell
        complete_while_typing=False,
        auto_suggest=SlashSuggestion(paths),
        multiline=True,
        prompt_continuation=_CONTINUED,
        bottom_toolbar=footer,
        style=_STYLE,
        key_bindings=_bind_enter(keys or KeyBindings()),
    )


def _bind_enter(keys: KeyBindings) -> KeyBindings:
    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def talk(lead: Lead, run: Run) -> None:
    """Talk until the person leaves; the team keeps running.

    Args:
        lead: the lead, after `Lead.call`.
        run: runs a `teamctl` command of this team.

    Raises:
        TeamError: the lead or its supervisor has ended.
    """
    try:
        asyncio.run(_Chat(lead, run).hold())
    finally:
        lead.paths.note_seen()


class _Chat:
    """A conversation.

    At a terminal the typed line stays on the screen during a turn, and each line is sent at once.
    In a pipe, and at a terminal that cannot overwrite a line, each line waits for the turn before.
    """

    def __init__(self, lead: Lead, run: Run) -> None:
        self._lead = lead
        self._run = run
        self._listener = Listener(lead.paths, self._write)
        self._heard = asyncio.Event()
        self._person = sys.stdin.isatty()
        # Piped output has neither prompts nor costs.
        self._drawn = self._person and sys.stdout.isatty()
        self._prompts_in_turns = self._drawn and os.environ.get("TERM") != "dumb"
        self._editing = False
        self._turn: Spending | None = None  # of the running turn
        self._trouble: TeamError | None = None  # of the lead or teamd, which ends the chat
        self._held = ""  # why the lead takes no mail, as last shown

    async def hold(self) -> None:
        """Read lines from the person, and send them to the lead."""
        if self._person:
            self._listener.catch_up(fresh=self._lead.fresh)
        else:
            self._listener.skip()
        folders = (self._lead.paths.transcripts, self._lead.paths.inboxes)
        with hints(folders, lambda _: self._look()):  # shows events even while a line is typed
            self._look()
            if self._prompts_in_turns:
                await self._converse()
                return
            async for line in self._typed() if self._drawn else _lines(sys.stdin.fileno()):
                if not await self._take(line.strip()):
                    return

    async def _converse(self) -> None:
        """Send each typed line at once, with a footer below the line."""
        # Created here with private permissions.
        files.append(self._lead.paths.chat_history, b"", durable=False)
        footer = Footer(self._lead.paths)
        session = make_session(self._lead.paths, lambda: footer.text, self._bind_interrupt())
        watching = asyncio.create_task(self._watch(session, footer))
        try:
            while self._trouble is None:
                with patch_stdout(raw=True):
                    self._editing = True  # output appears above the line, in whole lines
                    line = await session.prompt_async(_PROMPT)
                self._editing = False
                if not await self._take(line.strip()):
                    return
                footer.look()
            raise self._trouble
        except EOFError:
            return
        finally:
            self._editing = False
            watching.cancel()

    async def _watch(self, session: PromptSession[str], footer: Footer) -> None:
        """Look at the team each second; end the editing if the lead has ended."""
        while True:
            try:
                if self._works:  # an idle chat outlives a restart of teamd
                    self._check_lead()
                self._look()
            except TeamError as error:
                self._trouble = error
                if session.app.is_running:
                    session.app.exit(exception=error)
                return
            footer.look()
            session.app.invalidate()
            await asyncio.sleep(_LOOK_SECONDS)

    def _bind_interrupt(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            """Interrupt the lead's turn and keep the typed text; otherwise clear the text."""
            if self._works:
                self._interrupt()
            else:
                event.current_buffer.reset()
                self._write(_HOW_TO_LEAVE + "\n")

        return keys

    def _interrupt(self) -> None:
        try:
            self._lead.interrupt()
        except TeamError as error:  # such as a teamd that has just ended
            self._listener.notice(str(error))

    @property
    def _works(self) -> bool:
        """Whether the lead is in a turn, or about to begin one."""
        return bool(self._listener.doing.what) or self._listener.awaits_delivery

    async def _take(self, line: str) -> bool:
        """Run a slash command or send the line to the lead; return whether the chat continues."""
        command = line.split(maxsplit=1)[0].lower() if line.startswith("/") else None
        rest = line[len(command or "") :].strip()
        try:
            if command == COMPACT:
                await self._say("Sum up our conversation.", kind=COMPACT_TYPE)
            elif command == MODEL:
                self._change_model(rest)
            elif command is not None:
                return obey(command, rest, self._run)
            elif line.startswith(MAIL):
                self._run(argv_of_mail(line))
            elif line:
                await self._say(line)
        except TeamError as error:
            if not self._prompts_in_turns:
                raise
            self._listener.notice(str(error))
        return True

    def _change_model(self, model: str) -> None:
        if model:
            self._lead.change_model(model)
        now = Roster(self._lead.paths).read().get(LEAD).model
        output.echo(f"the lead's model is {now or f'{self._lead.usual_model}, as in the settings'}")

    async def _say(self, text: str, **more: str) -> None:
        works = self._works
        self._listener.wait_for(self._lead.tell(text, **more))
        if not self._prompts_in_turns:
            await self._wait_for_turn()
        elif works:
            self._write(terminal.style("· lead reads this after its step\n", dim=True))

    async def _wait_for_turn(self) -> None:
        """Wait for the answering turn to end; Ctrl-C interrupts it, a second one stops waiting."""
        interrupts = 0

        def interrupt() -> None:
            nonlocal interrupts
            interrupts += 1
            self._interrupt()
            self._heard.set()

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            while self._listener.ended is None and interrupts < 2:  # noqa: PLR2004 -- see above
                self._heard.clear()
                if self._check_lead() or self._listener.ended is not None:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._heard.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _check_lead(self) -> bool:
        """Return whether the lead currently takes no mail; tell the person why, once.

        Raises:
            TeamError: the lead or its supervisor has ended; in a script, also if the lead does not
                read its mail.
        """
        pidfile.check(self._lead.paths)
        member = Roster(self._lead.paths).read().get(LEAD)
        why_waiting = explain_wait(self._lead.paths, member)
        # Read after the roster, so that the last records of an ended lead are seen.
        self._look()
        if member.status in GONE and self._listener.ended is None:
            why = f": {member.reason}" if member.reason else ""
            raise TeamError(f"lead is {member.status}{why}; `teamctl chat` starts it again")
        if why_waiting is None or not self._listener.awaits_delivery:
            self._held = ""
            return False
        if not self._person:
            raise TeamError(why_waiting)
        if why_waiting != self._held:
            self._listener.notice(why_waiting)
        self._held = why_waiting
        return True

    def _look(self) -> None:
        self._listener.look()
        self._heard.set()
        if not self._drawn:
            return
        if self._listener.doing.what:
            self._turn = self._turn or Spending(self._lead.paths)
        elif self._turn is not None:
            cost, self._turn = self._turn.describe(), None
            self._write(terminal.style(f"· {cost}\n", dim=True))

    async def _typed(self) -> AsyncIterator[str]:
        """Yield the typed lines; none is read during a turn."""
        files.append(self._lead.paths.chat_history, b"", durable=False)
        session = make_session(self._lead.paths)
        while True:
            self._editing = True
            try:
                with patch_stdout(raw=True):
                    line = await session.prompt_async(_PROMPT)
            except KeyboardInterrupt:
                click.echo(_HOW_TO_LEAVE)
                continue
            except EOFError:
                return
            finally:
                self._editing = False
            yield line

    def _write(self, text: str) -> None:
        sys.stdout.write(text if sys.stdout.isatty() else click.unstyle(text))
        if not self._editing:  # the prompt would overwrite a partial line
            sys.stdout.flush()


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
