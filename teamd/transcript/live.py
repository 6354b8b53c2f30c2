"""A reply as it comes, in `transcripts/NAME.partial`: its text, and its thinking between marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

BEGINS: Final = "\x0e"
ENDS: Final = "\x0f"
_MARKS: Final = re.compile(f"[{BEGINS}{ENDS}]")


class LiveText:
    """Puts the marks between pieces of text and of thinking."""

    def __init__(self) -> None:
        self._thinks = False

    def add(self, piece: str, *, thinks: bool) -> str:
        """Return a piece with the mark that it needs before it."""
        mark = "" if thinks == self._thinks else BEGINS if thinks else ENDS
        self._thinks = thinks
        return mark + _MARKS.sub("", piece)


def compose(content: Iterable[Any]) -> str:
    """Return the text of a whole reply as it would have come."""
    live, parts = LiveText(), []
    for block in content:
        if thinking := thinking_of(block):
            parts.append(live.add(thinking, thinks=True))
        elif block["type"] == "text" and block["text"]:
            parts.append(live.add(block["text"], thinks=False))
    return "".join((*parts, live.add("", thinks=False)))


def split(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of such a text, and whether each is thinking."""
    for number, part in enumerate(text.split(BEGINS)):
        thinking, _, said = part.partition(ENDS) if number else ("", "", part)
        if thinking:
            yield thinking, True
        if said:
            yield said, False


def thinking_of(block: Any) -> str:
    """Return the text of a thinking block; empty for other blocks, and if it was omitted."""
    text = block.get("thinking") if block["type"] == "thinking" else None
    return text if isinstance(text, str) else ""
