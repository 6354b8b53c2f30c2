"""What happens in the lead's conversation, as a person reads it along."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from teamctl import output
from teamctl.following import Growing
from teamd.protocol import LEAD, USER, Message
from teamd.store import files
from teamd.store.mailbox import Mailbox
from teamd.store.transcript import mail_in, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from teamd.store.paths import TeamPaths
    from teamd.store.transcript import Record

_LONGEST_CALL: Final = 100
_ENDS: Final = {
    "limit": "lead used up the model calls of one wake; say something to let it go on",
    "refusal": "the model refused to go on; ask differently",
    "interrupted": "interrupted",
}


class Listening:
    """Tells what is new in the conversation since the last look.

    Args:
        write: takes text; a line may come in pieces.
    """

    def __init__(self, paths: TeamPaths, write: Callable[[str], None]) -> None:
        self._write = write
        self._growing = Growing(paths.transcript(LEAD))
        self._partial = Partial(paths.partial(LEAD))
        self._own = Mailbox(paths, USER)
        self._shown: set[tuple[str, str, str]] = set()
        self._awaited: str | None = None
        self._arrived = False
        self.ended: Record | None = None
        for _ in self._growing.lines():  # what was before the chat is not told again
            pass

    def wait_for(self, message_id: str) -> None:
        """Look for the end of the turn in which this message is read; `ended` tells of it."""
        self._awaited = message_id
        self._arrived = False
        self.ended = None

    def look(self) -> None:
        """Tell what is new."""
        for record in filter(None, map(parse, self._growing.lines())):
            self._tell(record)
        self._write(self._partial.more())
        for message in self._own.peek():
            identity = (message.id, message.sender, message.content)
            if identity not in self._shown:
                self._shown.add(identity)
                self._mail(message, "you")

    def _tell(self, record: Record) -> None:
        match record.get("record"):
            case "mail":
                for fields in mail_in(record):
                    self._arrived |= fields.get("id") == self._awaited
                    if fields.get("from") != USER:
                        self._mail(Message.decode(json.dumps(fields).encode(), to=LEAD), LEAD)
            case "reply":
                self._reply(record["content"])
            case "result" if record["is_error"]:
                self._end_line()  # a subagent's words may stand there
                self._line(output.plain(record["content"]).splitlines()[0], fg="red")
            case "ended":
                self._end(record)

    def _reply(self, content: list[dict[str, Any]]) -> None:
        text = "".join(block["text"] for block in content if block["type"] == "text")
        self._write(self._partial.rest(output.plain(text)))
        self._end_line()
        for block in content:
            if block["type"] == "tool_use":
                given = ", ".join(f"{key}: {value}" for key, value in block["input"].items())
                call = output.plain(f"{block['name']} {given}").replace("\n", " ")
                clipped = call if len(call) <= _LONGEST_CALL else f"{call[:_LONGEST_CALL]}…"
                self._line(f"· {clipped}", dim=True)

    def _end(self, record: Record) -> None:
        self._end_line()
        if record["outcome"] == "paused":
            self._line(f"lead is paused: {output.plain(record['text'])}", fg="yellow")
        elif record["outcome"] in _ENDS:
            self._line(_ENDS[record["outcome"]], fg="yellow")
        if self._arrived:
            self.ended = record

    def _mail(self, message: Message, to: str) -> None:
        self._end_line()
        about = output.plain(message.summary or message.content).replace("\n", " ")
        self._line(f"✉ {output.plain(message.sender)} → {to}: {about}", fg="cyan")

    def _end_line(self) -> None:
        if self._partial.open_line:
            self._write("\n")
            self._partial.open_line = False

    def _line(self, text: str, **style: Any) -> None:
        self._write(click.style(text, **style) + "\n")


class Partial:
    """The words of a reply that is under way, and how many of them have been shown.

    Attributes:
        open_line: whether what was shown last did not end its line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._attempt = b""
        self._shown = ""
        self.open_line = False

    def more(self) -> str:
        """What came since the last look."""
        attempt, newline, said = (files.read(self._path) or b"").partition(b"\n")
        if not newline:
            return ""
        again = ""
        if attempt != self._attempt:
            again = "\n" if self.open_line else ""  # it broke off, and is said anew
            self._attempt, self._shown = attempt, ""
        whole = output.plain(said.decode(errors="ignore"))  # a character may be half there
        return again + self._show(whole[len(self._shown) :])

    def rest(self, whole: str) -> str:
        """What is left to show of a reply that stands in the conversation now."""
        if whole.startswith(self._shown):
            left = whole[len(self._shown) :]
        else:
            left = ("\n" if self.open_line else "") + whole
        left = self._show(left)
        self._shown = ""
        return left

    def _show(self, text: str) -> str:
        self._shown += text
        if text:
            self.open_line = not text.endswith("\n")
        return text
