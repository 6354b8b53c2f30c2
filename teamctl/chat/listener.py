"""The lead's conversation as the chat shows it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from teamctl.chat.lead import explain_answer, needs, short_moment, tell
from teamctl.mail.inbox_reader import NewMailFinder, describe_end
from teamctl.mail.receipts import explain_end
from teamctl.render import layout, output
from teamctl.render.layout import Layout
from teamctl.tail import GrowingFile
from teamctl.transcripts import Retries
from teamd.budget.account import NOTHING, Account
from teamd.budget.ledger import Ledger
from teamd.command_line import terminal
from teamd.errors import StoreError, TeamError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, SHUTDOWN_ANSWER_TYPE, USER, Message, needs_answer
from teamd.transcript import live, records
from teamd.transcript.file import decode_lines


class LeadProgress:
    """The lead's current step, from the records of its conversation."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self.what = ""
        self.since = 0.0

    def note(self, record: records.Record) -> None:
        match record:
            case records.Delivered() | records.CallAnswered() | records.NoteAdded():
                self.what, self.since = "thinking", record.time
            case records.Replied():
                self._tools = {str(call["id"]): describe_call(call) for call in record.calls}
            case records.CallStarted():
                self.what = self._tools.get(record.tool_use_id, "a tool")
                self.since = record.time
            case records.TurnEnded():
                self.what = ""


class Turn:
    """The time and cost of the current turn."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._began = time.monotonic()
        self._before = self._account()

    def cost(self) -> str:
        """Return the time and cost so far."""
        now, before = self._account(), self._before
        spent = replace(
            now,
            usd=now.usd - before.usd,
            unpriced_calls=max(0, now.unpriced_calls - before.unpriced_calls),
        )
        seconds = output.duration(time.monotonic() - self._began)
        return f"{seconds}, {output.cost(spent)}" if now.calls > before.calls else seconds

    def _account(self) -> Account:
        try:
            return Ledger(self._paths.ledger).read().used.get(LEAD, NOTHING)
        except TeamError:  # a later call may read it
            return NOTHING


def describe_call(call: records.Block) -> str:
    """Return a tool call on one line."""
    given = call["input"] if isinstance(call["input"], dict) else {"input": call["input"]}
    said = ", ".join(f"{key}: {value}" for key, value in given.items())
    return layout.clip_line(f"{call['name']} {said}")


_REPLY: Final = b'"reply"'
_LAST: Final = 3  # missed replies to show
_REPLY_LINES: Final = 8
_WHOLE: Final = f"`teamctl transcript {LEAD}` shows it whole"
_MARK: Final = (live.BEGINS, live.ENDS)
_MARKS: Final = re.compile(f"([{live.BEGINS}{live.ENDS}])")
_THINKING: Final = "thinking: "
_WHOLE_OWN: Final = "/inbox shows it whole"


class Listener:
    """Shows new records of the conversation, and new mail for the person.

    Args:
        write: called with text, which may be a part of a line.

    Attributes:
        arrived: whether the awaited message was delivered.
        ended: the end of the turn that read it.
    """

    def __init__(self, paths: TeamPaths, write: Callable[[str], None]) -> None:
        self._write = write
        self._paths = paths
        self._growing = GrowingFile(paths.transcript(LEAD))
        self._marks = False
        self._place = 0
        self._layout = Layout.of_output()
        on_terminal = self._layout.width is not None  # a program reads only the reply
        self._reply_shown = LiveReply(paths.partial(LEAD), thinking=on_terminal)
        self._retries = Retries(paths.log(LEAD))
        self.doing = LeadProgress()
        self._own = Mailbox(paths, USER)
        self._unseen = NewMailFinder()
        self._awaited: str | None = None
        self.arrived = False
        self.ended: records.TurnEnded | None = None

    def skip(self) -> None:
        """Skip the conversation before the chat."""
        for _ in self._lines():
            pass

    def catch_up(self) -> None:
        """Show the replies and events since the last chat, and move the mark."""
        before, left = self._read_mark(), self._left()
        missed = [line for line in self._lines() if self._place > before and _REPLY in line]
        replies = [record for record in decode_lines(missed) if isinstance(record, records.Replied)]
        said = [reply for reply in replies if reply.text.strip()]
        if said:
            self._line(f"What {LEAD} said since the last chat:", dim=True)
        if len(said) > _LAST:
            earlier = f"… {len(said) - _LAST} earlier ones: `teamctl transcript {LEAD}`"
            self._line(self._paths.add_team_option(earlier), dim=True)
        rest = self._paths.add_team_option(_WHOLE)
        for reply in said[-_LAST:]:
            shown = layout.clip_beginning(reply.text, lines=_REPLY_LINES, rest=rest)
            when = f"{short_moment(reply.time)} " if reply.time else ""
            self._line(f"  {when}" + shown.replace("\n", "\n  "))
        if left is not None and (told := list(tell(self._paths, left))):
            self._line("What else happened since:", dim=True)
            for one in told:
                self._line(f"  {one}")
        mail = {str(one.extra.get("request_id")) for one in self._own.peek()}
        for one in needs(self._paths, mail):
            self.notice(one)
        self._marks = True
        self._move_mark()

    def wait_for(self, message_id: str) -> None:
        """Await the end of the turn that reads this message; it sets `ended`."""
        self._awaited = message_id
        self.arrived = False
        self.ended = None

    def look(self) -> None:
        """Show new records and mail."""
        before = self._place
        for record in decode_lines(self._lines()):
            self._tell(record)
            self.doing.note(record)
        if self._marks and self._place != before:
            self._move_mark()
        self._write(self._reply_shown.more())
        for _, what in self._retries.more():
            self._line(f"· {layout.clip_line(what)}", fg="yellow")
        for message in self._unseen.among(self._own.peek()):
            self._mail(message, "you")

    def notice(self, text: str) -> None:
        """Show a text of the chat's own."""
        self._line(output.plain(self._paths.add_team_option(text)), fg="yellow")

    def _read_mark(self) -> int:
        """Return the offset up to which the conversation was shown; 0 if unknown.

        Raises:
            StoreError: the mark cannot be read.
        """
        said = (files.read(self._paths.chat_mark) or b"").strip()
        place = int(said) if said.isdigit() else 0
        there = files.size(self._paths.transcript(LEAD))  # 0 if the file is gone
        return place if place <= there else 0

    def _left(self) -> float | None:
        """Return the time of the last chat; `None` for the first."""
        try:
            left = self._paths.chat_mark.stat().st_mtime
        except OSError:
            return None
        return math.floor(left * 1000) / 1000  # logs truncate to milliseconds

    def _move_mark(self) -> None:
        """Store the offset; if that fails, replies are shown again."""
        self._paths.note_seen()
        with suppress(StoreError):  # a full disk must not end the chat
            files.replace(self._paths.chat_mark, b"%d\n" % self._place, durable=False)

    def _lines(self) -> Iterator[bytes]:
        for line in self._growing.lines():
            self._place += len(line) + 1
            yield line

    def _tell(self, record: records.Record) -> None:
        match record:
            case records.Delivered():
                for message in record.messages:
                    self.arrived |= message.id == self._awaited
                    if message.sender != USER:
                        self._mail(message, LEAD)
            case records.Replied():
                self._reply(record)
            case records.CallAnswered(is_error=True):
                self._line(layout.clip_first_line(record.content), fg="red")
            case records.Summarised():
                self._line("· the conversation was summed up", dim=True)
            case records.TurnEnded():
                self._end(record)

    def _reply(self, reply: records.Replied) -> None:
        self._write(self._reply_shown.rest(live.compose(reply.content)))
        self._end_line()
        for call in reply.calls:
            self._line(f"· {describe_call(call)}", dim=True)

    def _end(self, ended: records.TurnEnded) -> None:
        self._end_line()
        if (why := explain_end(LEAD, ended)) is not None:
            self.notice(why)
        if self.arrived:
            self.ended = ended

    def _mail(self, message: Message, to: str) -> None:
        if (news := _news(message)) is not None:
            self._line(f"· {layout.clip_line(news)}", dim=True)
            return
        rest = self._paths.add_team_option(_WHOLE) if to == LEAD else _WHOLE_OWN
        about = layout.clip_beginning(message.summary or message.content, rest=rest)
        about = about.replace("\n", "\n  ")
        self._line(f"✉ {layout.clip_line(message.sender)} → {to}: {about}", fg="cyan")
        if to != LEAD and needs_answer(message.type):
            self._line(f"  {self._describe_request(message)}", fg="yellow")

    def _describe_request(self, message: Message) -> str:
        """Return the commands that answer a request, or its outcome."""
        ended = describe_end(self._paths, message)
        request = layout.clip_line(str(message.extra.get("request_id", "ID")))
        return ended or explain_answer(request)

    @property
    def in_line(self) -> bool:
        """Return whether the last output ended within a line."""
        return self._reply_shown.open_line

    def _end_line(self) -> None:
        if self._reply_shown.open_line:
            self._write("\n")
            self._reply_shown.open_line = False

    def _line(self, text: str, **style: Any) -> None:
        self._end_line()  # a partial reply may precede it
        for row in list(self._layout.wrap(text)) or [""]:
            self._write(terminal.style(row, **style) + "\n")


def _news(message: Message) -> str | None:
    """Return the line for a message of the program; `None` for mail from a teammate."""
    if message.type == SHUTDOWN_ANSWER_TYPE and message.extra.get("approve") is True:
        return f"{message.sender} is shut down"
    if message.type == "message" and "task_id" in message.extra:
        return layout.clip_first_line(message.content)
    return None


class LiveReply:
    """The text of the reply in progress, and the part that was shown.

    Args:
        path: the file of the partial reply.
        thinking: whether thinking is shown.

    Attributes:
        open_line: whether the last output ended within a line.
    """

    def __init__(self, path: Path, *, thinking: bool = True) -> None:
        self._path = path
        self._thinking = thinking
        self._attempt = b""
        self._shown = ""
        self._dim = False
        self.open_line = False

    def more(self) -> str:
        """Return the new text since the last call."""
        attempt, newline, said = (files.read(self._path) or b"").partition(b"\n")
        if not newline:
            return ""
        again = ""
        if attempt != self._attempt:
            again = "\n" if self.open_line else ""  # the reply begins again
            self._attempt, self._shown, self._dim = attempt, "", False
        whole = self._plain(said.decode(errors="ignore"))  # the last character may be incomplete
        return again + self._show(whole[len(self._shown) :])

    def rest(self, whole: str) -> str:
        """Return the part of a complete reply that was not shown yet.

        Args:
            whole: the reply, see `live.compose`.
        """
        whole = self._plain(whole)
        if whole.startswith(self._shown):
            left = whole[len(self._shown) :]
        else:
            left, self._dim = ("\n" if self.open_line else "") + whole, False
        left = self._show(left)
        self._shown, self._dim = "", False
        return left

    def _plain(self, text: str) -> str:
        """Remove control characters, but keep the marks around thinking."""
        parts = _MARKS.split(text)
        return "".join(part if part in _MARK else output.plain(part) for part in parts)

    def _show(self, text: str) -> str:
        self._shown += text
        return "".join(map(self._styled, _MARKS.split(text)))

    def _styled(self, part: str) -> str:
        """Style a part: thinking is dim and on lines of its own."""
        if part in _MARK:
            self._dim = part == live.BEGINS
            if not self._thinking:
                return ""
            ends = "\n" if self.open_line else ""
            self.open_line = self._dim
            return ends + (terminal.style(_THINKING, dim=True) if self._dim else "")
        if not part or (self._dim and not self._thinking):
            return ""
        self.open_line = not part.endswith("\n")
        return terminal.style(part, dim=True) if self._dim else part
