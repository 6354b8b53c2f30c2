"""The lead's conversation as the chat shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from teamctl.chat.lead import explain_answer, needs, short_moment, tell
from teamctl.chat.reply import LiveReply, RenderedReply, ReplyView
from teamctl.mail.inbox_reader import NewMailFinder, describe_end
from teamctl.mail.receipts import explain_end
from teamctl.render import layout, output
from teamctl.render.layout import Layout
from teamctl.tail import GrowingFile
from teamctl.transcripts import Retries
from teamd.command_line import terminal
from teamd.errors import StoreError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, SHUTDOWN_ANSWER_TYPE, USER, Message, needs_answer
from teamd.transcript import live, records
from teamd.transcript.file import decode_lines
from teamd.transcript.records import mail_in


class LeadProgress:
    """The lead's current step, from the records of its conversation."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self.what = ""
        self.since = 0.0

    def note(self, record: records.Record) -> None:
        match record:
            case records.Delivered() if record.messages and all(
                one.wordless for one in record.messages
            ):
                pass  # an interrupt, which may arrive after the end of the turn
            case records.Delivered() | records.CallAnswered() | records.NoteAdded():
                self.what, self.since = "thinking", record.time
            case records.Replied():
                self._tools = {str(call["id"]): describe_call(call) for call in record.calls}
            case records.CallStarted():
                self.what = self._tools.get(record.tool_use_id, "a tool")
                self.since = record.time
            case records.TurnEnded():
                self.what = ""


def describe_call(call: records.Block) -> str:
    """Return a tool call on one line."""
    given = call["input"] if isinstance(call["input"], dict) else {"input": call["input"]}
    said = ", ".join(f"{key}: {value}" for key, value in given.items())
    return layout.clip_line(f"{call['name']} {said}")


_REPLY: Final = b'"reply"'
_OPENED: Final = b'{"record": "%s"' % records.Opened.kind.encode()
_EXCHANGE: Final = tuple(
    b'{"record": "%s"' % kind.kind.encode() for kind in (records.Replied, records.Delivered)
)
_LOOKED_BACK: Final = 40  # records
_LAST: Final = 3  # missed replies to show
_REPLY_LINES: Final = 8
_WHOLE: Final = f"`teamctl transcript {LEAD}` shows it whole"
_WHOLE_OWN: Final = "/inbox shows it whole"
_INDENT: Final = "  "
_END_LINES: Final = 12  # of the last reply
_LONGEST: Final = 100  # characters of a line, on average


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
        on_terminal = Layout.of_output().width is not None
        view = RenderedReply if on_terminal else LiveReply  # a program gets the text unchanged
        self._reply_shown: ReplyView = view(paths.partial(LEAD))
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

    def catch_up(self, *, fresh: bool = False) -> None:
        """Show the replies and events since the last chat, and move the mark.

        Args:
            fresh: whether to leave out the end of the previous conversation.
        """
        left = self._left()
        known, missed = self._read_conversation()
        if not fresh:
            self._show_end(known)
        self._show_missed(missed)
        if left is not None and (told := list(tell(self._paths, left))):
            self._line("What else happened since:", dim=True)
            for one in told:
                self._line(f"  {one}")
        mail = {str(one.extra.get("request_id")) for one in self._own.peek()}
        for one in needs(self._paths, mail):
            self.notice(one)
        self._marks = True
        self._move_mark()

    def _read_conversation(self) -> tuple[list[bytes], list[bytes]]:
        """Return the last lines that the person has seen, and the missed replies."""
        before = self._read_mark()
        known: list[bytes] = []
        missed: list[bytes] = []
        for line in self._lines():
            if self._place > before:
                missed += [line] * (_REPLY in line)
            elif line.startswith(_OPENED):
                known = []
            elif line.startswith(_EXCHANGE):
                known = [*known[1 - _LOOKED_BACK :], line]
        return known, missed

    def _show_missed(self, lines: list[bytes]) -> None:
        replies = [record for record in decode_lines(lines) if isinstance(record, records.Replied)]
        said = [reply for reply in replies if reply.text.strip()]
        if said:
            self._line(f"What {LEAD} said since the last chat:", dim=True)
        if len(said) > _LAST:
            earlier = f"… {len(said) - _LAST} earlier ones: `teamctl transcript {LEAD}`"
            self._line(self._paths.add_team_option(earlier), dim=True)
        for reply in said[-_LAST:]:
            when = f"{short_moment(reply.time)} " if reply.time else ""
            self._show_beginning(f"{when}{reply.text.strip()}", _REPLY_LINES)

    def _show_end(self, lines: list[bytes]) -> None:
        """Show the last words of the person and of the lead, from lines of the conversation."""
        asked, said = _last_words(lines)
        rest = self._paths.add_team_option(_WHOLE)
        if asked or said:
            self._line("The end of the last conversation:", dim=True)
        if asked:
            self._indented(f"> {layout.clip_beginning(asked, rest=rest)}", dim=True)
        if said:
            self._show_beginning(said, _END_LINES)

    def _show_beginning(self, text: str, most: int) -> None:
        """Show the first `most` lines of a reply, rendered."""
        lines = text.splitlines()
        beginning = "\n".join(lines[:most])[: most * _LONGEST]
        for row in Layout.of_output().markdown(beginning, _INDENT):
            self._write(f"{row}\n")
        if len(beginning) < len("\n".join(lines)):
            self._line(self._paths.add_team_option(f"{_INDENT}… {_WHOLE}"), dim=True)

    def wait_for(self, message_id: str) -> None:
        """Await the end of the turn that reads this message; it sets `ended`."""
        self._awaited = message_id
        self.arrived = False
        self.ended = None

    @property
    def awaits_delivery(self) -> bool:
        """Whether the awaited message is not yet in the conversation."""
        return self._awaited is not None and not self.arrived

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
        """Show one of the chat's own messages."""
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
            if (mail := _sent_mail(call)) is not None:
                self._letter(LEAD, *mail)
            else:
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
        self._letter(message.sender, to, message.summary or message.content)
        if to != LEAD and needs_answer(message.type):
            self._line(f"  {self._describe_request(message)}", fg="yellow")

    def _letter(self, sender: str, to: str, text: str) -> None:
        """Show mail: who writes to whom, and the beginning of the text."""
        rest = _WHOLE_OWN if to == "you" else self._paths.add_team_option(_WHOLE)
        about = layout.clip_beginning(text, rest=rest)
        names = f"{layout.clip_line(sender)} → {layout.clip_line(to)}"
        self._indented(f"✉ {names}: {about}", fg="cyan")

    def _describe_request(self, message: Message) -> str:
        """Return the commands that answer a request, or its outcome."""
        ended = describe_end(self._paths, message)
        request = layout.clip_line(str(message.extra.get("request_id", "ID")))
        return ended or explain_answer(request)

    def _end_line(self) -> None:
        if self._reply_shown.open_line:
            self._write("\n")
            self._reply_shown.open_line = False

    def _line(self, text: str, **style: Any) -> None:
        self._end_line()  # a partial reply may precede it
        for row in list(Layout.of_output().wrap(text)) or [""]:
            self._write(terminal.style(row, **style) + "\n")

    def _indented(self, text: str, **style: Any) -> None:
        """Show a text whose lines are indented below the first one."""
        self._end_line()
        first, *others = list(Layout.of_output().wrap(text, len(_INDENT))) or [""]
        for row in (first, *(f"{_INDENT}{row}" for row in others)):
            self._write(terminal.style(row, **style) + "\n")


def _last_words(lines: list[bytes]) -> tuple[str, str]:
    """Return the last message of the person, and the last reply to it."""
    asked, said = "", ""
    for record in decode_lines(lines):
        if isinstance(record, records.Replied):
            said = record.text.strip() or said
        for message in mail_in(record):
            if message.sender == USER and message.type == "message":
                asked, said = message.content, ""
    return asked, said


def _sent_mail(call: records.Block) -> tuple[str, str] | None:
    """Return the receiver and the text of a call that sends mail; `None` for another call."""
    given = call["input"] if isinstance(call["input"], dict) else {}
    text, to = given.get("content"), given.get("to")
    if call["name"] == "broadcast":
        to = "all"
    if call["name"] not in ("send_message", "broadcast"):
        return None
    return (to, text) if isinstance(text, str) and isinstance(to, str) else None


def _news(message: Message) -> str | None:
    """Return the line for a message of the program; `None` for mail from a teammate."""
    if message.type == SHUTDOWN_ANSWER_TYPE and message.extra.get("approve") is True:
        return f"{message.sender} is shut down"
    if message.type == "message" and "task_id" in message.extra:
        return layout.clip_first_line(message.content)
    return None
