"""The summary that takes the place of a conversation that is too long, and what still holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

from teamd.agent.conversation.prompts import render_inbox
from teamd.messages import Message

# The open work of a teammate, as the team's records have it: titles, and the lines below each.
OpenWork: TypeAlias = Callable[[], Sequence[tuple[str, Sequence[str]]]]

DEMAND: Final = """\
<note>This conversation has become too long for your context. Write a summary of it now: it will \
stand in the place of everything above, and is all that you will remember. Say what you were \
asked to do and by whom; what is done, with the paths, names, commands and figures that matter; \
what was decided and why; what you learned from others; what failed; what you were in the middle \
of, and what is left to do. Who you are, your open tasks and unanswered mail will be added to it, \
word for word. Answer with the text of the summary and nothing else: no tool that you call now \
will run.</note>"""
GAP: Final = "<note>Here a part of this conversation is left out: it was too long.</note>"
_NO_SUMMARY: Final = (
    "(There is none: the conversation was too long even to be summarised. Look at the files, the "
    "board and your mail for what was done, and ask whoever gave you the work.)"
)
_THOUSAND: Final = 1000


@dataclass(frozen=True, slots=True)
class OpenItem:
    """Mail or a note that a teammate has read and not finished.

    Attributes:
        messages: the mail.
        note: a text that is not mail.
        passing: whether a reply settles it; otherwise the end of the turn does.
    """

    messages: tuple[Message, ...] = ()
    note: str = ""
    passing: bool = False

    @property
    def texts(self) -> list[str]:
        """The texts in it, each of which may be cut."""
        return [self.note] if self.note else [mail.content for mail in self.messages]


def restate(who: str, work: OpenWork, items: Sequence[OpenItem], *, limit_bytes: int) -> str:
    """Describe the teammate and its open work, from the program's records.

    Args:
        who: the line that `introduce` returns.
        work: the open work in the records of the team.
        items: mail and notes that are not finished; kept word for word.
        limit_bytes: of mail and notes; beyond it the longest are cut, with a note.
    """
    parts = [escape(who), *(_list_lines(title, lines) for title, lines in work())]
    if items:
        parts.append("What came and you have not finished with, word for word:")
        share = _share([len(text.encode()) for item in items for text in item.texts], limit_bytes)
        parts += [_render_item(item, share) for item in items]
    return "\n\n".join(filter(None, parts))


def render_summary(text: str, restated: str) -> str:
    """Render a summary and the program's additions in the form that the model reads.

    Args:
        text: the model's own summary; empty if it wrote none.
        restated: the text that `restate` returns.
    """
    return (
        "<note>Your conversation had become too long. What it held until here is replaced by "
        "this summary of yours, and by what still holds. Go on from there.</note>\n"
        f"<summary>\n{escape(text) or _NO_SUMMARY}\n</summary>\n"
        f"<still-holds>\n{restated}\n</still-holds>"
    )


def render_cleared(tool: str, size: int) -> str:
    """Return the text that replaces a tool's old output of so many bytes."""
    amount = f"{size} bytes" if size < _THOUSAND else f"{round(size / _THOUSAND)} kB"
    return f"[cleared: {amount} of output of {tool}; run it again if you need it]"


def clip_text(text: str, limit_bytes: int) -> str:
    """Return a text; a long text is cut, with a line that says how much is missing."""
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    kept = data[:limit_bytes].decode(errors="ignore")
    missing = len(data) - len(kept.encode())
    return f"{kept}\n[cut here: {missing} bytes more were too long for your context]"


def _share(sizes: Sequence[int], limit: int) -> int:
    """Return the size to cut the longest to, so that all of them together keep to the limit."""
    rest, left = limit, len(sizes)
    for size in sorted(sizes):
        if size * left > rest:
            return rest // left
        rest, left = rest - size, left - 1
    return limit


def _render_item(item: OpenItem, share: int) -> str:
    if item.note:
        return clip_text(item.note, share)
    cut = [replace(mail, content=clip_text(mail.content, share)) for mail in item.messages]
    return render_inbox(cut)


def _list_lines(title: str, lines: Sequence[str]) -> str:
    return "\n".join((title, *(f"- {escape(line)}" for line in lines))) if lines else ""
