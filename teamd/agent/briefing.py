"""What a teammate reads of itself after a part of its conversation was taken out of its sight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from xml.sax.saxutils import escape

from teamd.agent import prompts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class OpenWork(Protocol):
    """What a teammate still has to do, as others have it on record; a line each."""

    def tasks(self) -> Sequence[str]:
        """The tasks of the board that it owns and has not completed."""

    def requests(self) -> Sequence[str]:
        """The requests that wait for its answer, and its own that wait for one."""

    def team(self) -> Sequence[str]:
        """Who else is in the team, and how they are."""


class NothingOpen:
    """The open work of a teammate where nobody keeps a record of any."""

    def tasks(self) -> Sequence[str]:
        """None."""
        return ()

    def requests(self) -> Sequence[str]:
        """None."""
        return ()

    def team(self) -> Sequence[str]:
        """Nobody."""
        return ()


@dataclass(frozen=True, slots=True)
class Owed:
    """Something that a teammate was told and has not dealt with.

    Attributes:
        messages: mail, as `Message.to_json` gives it.
        note: or a text that is nobody's mail.
        passing: whether a reply settles it, or only the end of the turn does.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    note: str = ""
    passing: bool = False


def identity(opened: Mapping[str, Any]) -> str:
    """Who a conversation's teammate is, by the record that opened it."""
    name, role, team = (opened.get(key) for key in ("name", "role", "team"))
    if not (name and role and team):
        return str(opened["system"]).split("\n", 1)[0]  # an early version kept no role and team
    return f"You are '{name}', role: {role}, a member of the team '{team}' ({name}@{team})."


def restate(who: str, work: OpenWork, owed: Sequence[Owed], *, limit_bytes: int) -> str:
    """Say who one is and what is open, as the program knows it.

    Args:
        who: as `identity` gives it.
        work: what is open by the records of the team.
        owed: what was told and not dealt with; it is kept word for word.
        limit_bytes: of mail and notes; where they are more, the longest are cut, and say so.
    """
    parts = [
        escape(who),
        _listed("Your teammates:", work.team()),
        _listed("Your open tasks on the board:", work.tasks()),
        _listed("Open requests:", work.requests()),
    ]
    if owed:
        parts.append("What came and you have not finished with, word for word:")
        allowance = _allowance([len(text.encode()) for text in _texts(owed)], limit_bytes)
        parts += [_rendered(one, allowance) for one in owed]
    return "\n\n".join(filter(None, parts))


def render(text: str, restated: str) -> str:
    """Put a summary and what the program adds to it into the form that the model reads.

    Args:
        text: the model's own summary; empty for none.
        restated: as `restate` gives it.
    """
    return (
        "<note>Your conversation had become too long. What it held until here is replaced by "
        "this summary of yours, and by what still holds. Go on from there.</note>\n"
        f"<summary>\n{escape(text) or _NO_SUMMARY}\n</summary>\n"
        f"<still-holds>\n{restated}\n</still-holds>"
    )


def cleared(tool: str, size: int) -> str:
    """What stands in the place of a tool's old output of so many bytes."""
    amount = f"{size} bytes" if size < _THOUSAND else f"{round(size / _THOUSAND)} kB"
    return f"[cleared: {amount} of output of {tool}; run it again if you need it]"


def clip(text: str, limit_bytes: int) -> str:
    """The beginning of a text that is longer than so many bytes, and how much is missing."""
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    kept = data[:limit_bytes].decode(errors="ignore")
    missing = len(data) - len(kept.encode())
    return f"{kept}\n[cut here: {missing} bytes more were too long for your context]"


def _allowance(sizes: Sequence[int], limit: int) -> int:
    """The size to which the longest are cut so that all of them together keep to the limit."""
    rest, left = limit, len(sizes)
    for size in sorted(sizes):
        if size * left > rest:
            return rest // left
        rest, left = rest - size, left - 1
    return limit


def _texts(owed: Sequence[Owed]) -> list[str]:
    return [
        text
        for one in owed
        for text in ([one.note] if one.note else [mail["content"] for mail in one.messages])
    ]


def _rendered(one: Owed, allowance: int) -> str:
    if one.note:
        return clip(one.note, allowance)
    return prompts.render_inbox(
        {**mail, "content": clip(mail["content"], allowance)} for mail in one.messages
    )


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join((title, *(f"- {escape(line)}" for line in lines))) if lines else ""
