"""A streaming reply, in `transcripts/NAME.partial`: its text, and its thinking between marks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from teamd.errors import StoreError
from teamd.files.safe_open import safe_open

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


@dataclass(slots=True)
class LiveFile:
    """Shows a reply as it streams in; the file is never used as the reply itself.

    The file's first line names the attempt: a reply that broke off starts over. The file is made
    with the first word, or with the request if half a reply may have been read before. It is
    removed when the reply is whole, or has failed. If it cannot be written, nothing is shown.
    """

    path: Path
    _half: bool = True  # may have been read; an earlier process may have been killed in mid-reply
    _exists: bool = True  # as far as is known
    _named: bool = False
    _text: LiveText = field(default_factory=LiveText)

    @contextmanager
    def written(self) -> Iterator[None]:
        """Keep the file during the block, in which a reply streams in."""
        self.remove()
        if self._half:
            self._append("")
        self._half = True
        try:
            yield
            self._half = False
        finally:
            self.remove()

    def hear(self, text: str) -> None:
        """Add a piece of text."""
        self._append(self._text.add(text, thinks=False))

    def think(self, text: str) -> None:
        """Add a piece of thinking."""
        self._append(self._text.add(text, thinks=True))

    def remove(self) -> None:
        self._named, self._text = False, LiveText()
        if self._exists:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
                self._exists = False

    def _append(self, text: str) -> None:
        begins, self._exists = not self._named, True
        if begins:
            text = f"{os.urandom(8).hex()}\n{text}"
        with suppress(OSError, StoreError):
            flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if begins else os.O_APPEND)
            fd = safe_open(self.path, flags)
            try:
                os.write(fd, text.encode(errors="replace"))
                self._named = True
            finally:
                os.close(fd)


def compose(content: Iterable[Any]) -> str:
    """Return the text of a whole reply as it would have been streamed."""
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
