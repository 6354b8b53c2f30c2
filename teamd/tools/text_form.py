"""The parts of a text file that a model does not see: its byte order mark and its line endings.

A newline in a model's text means the end of a line: CR LF or LF, as the file has it there. A CR LF
that the model writes itself is a CR LF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

_BOM: Final = "\ufeff"
_LF: Final = "\n"
_CRLF: Final = "\r\n"
_LINE_END: Final = re.compile("\r?\n")
_MOST_COMPARED: Final = 1 << 18  # pairs of lines: comparing takes time in proportion at best


def name_line_endings(data: bytes) -> str:
    """Return which line endings a text has; empty where all are LF."""
    crlf, ends = data.count(b"\r\n"), data.count(b"\n")
    if crlf == 0:
        return ""
    return "CRLF line endings" if crlf == ends else f"mixed line endings: {crlf} CRLF of {ends}"


class Replacement:
    """The replacement of every occurrence of a text in the text of a file.

    Attributes:
        count: how often the old text occurs.
        first: the place of its first occurrence, -1 without one.
    """

    def __init__(self, text: str, old: str, new: str) -> None:
        end = _only_line_end(text)
        if end == _CRLF:
            old, new = _LINE_END.sub(end, old), _LINE_END.sub(end, new)
        self._text, self._old, self._new = text, old, new
        self._mixed: re.Pattern[str] | None = None
        if end is None and _LF in old + new:
            parts = re.split("(?<!\r)\n", old)  # a CR LF in it matches nothing but a CR LF
            self._mixed = re.compile("\r?\n".join(map(re.escape, parts)))
            found = self._mixed.search(text)
            self.first = found.start() if found else -1
            self.count = sum(1 for _ in self._mixed.finditer(text))
        else:
            self.first, self.count = text.find(old), text.count(old)

    @property
    def size(self) -> int:
        """How long the text becomes; in a file with mixed line endings, about."""
        return len(self._text) + self.count * (len(self._new) - len(self._old))

    def apply(self) -> str:
        """Return the text with its new parts; everything around them is as it was."""
        if self._mixed is None:
            replaced = self._text.replace(self._old, self._new)
        else:
            replaced = "".join(self._parts(self._mixed))
        return _keep_mark(self._text, replaced)

    def _parts(self, mixed: re.Pattern[str]) -> Iterator[str]:
        end = 0
        for match in mixed.finditer(self._text):
            yield self._text[end : match.start()]
            end = match.end()
            around = _line_end_near(self._text, match.start(), end)
            yield _take_line_ends(match.group(), self._new, around)
        yield self._text[end:]


def take_form(before: str, content: str) -> str:
    """Return content with the byte order mark and the line endings of the text it replaces.

    Content that has a CR LF itself keeps its line endings.
    """
    content = _keep_mark(before, content)
    if _CRLF in content:
        return content
    end = _only_line_end(before)
    if end is None:
        around = _line_end_near(before, len(before), len(before))
        return _take_line_ends(before, content, around)
    return content if end == _LF else content.replace(_LF, end)


def _keep_mark(before: str, text: str) -> str:
    if text and before.startswith(_BOM) and not text.startswith(_BOM):
        return _BOM + text
    return text


def _only_line_end(text: str) -> str | None:
    """Return the line ending of a text, LF where it has none; `None` if it has both."""
    crlf = text.count(_CRLF)
    if crlf == 0:
        return _LF
    return _CRLF if crlf == text.count(_LF) else None


def _line_end_near(text: str, start: int, end: int) -> str:
    """Return the next line ending after a part of a text, else the last one before it."""
    at = text.find(_LF, end)
    if at < 0:
        at = text.rfind(_LF, 0, start)
    return _CRLF if at > 0 and text[at - 1] == "\r" else _LF


def _take_line_ends(old: str, new: str, around: str) -> str:
    """Return the new text with the old one's line endings.

    A line that stays, or takes the place of another, has that one's ending; an added line has the
    ending of the line before it.

    Args:
        old: the text that is replaced.
        new: the text in its place, with LF for each line ending to be found.
        around: the ending of the line that the old text ends in.
    """
    old_lines, old_ends = _split(old)
    lines, ends = _split(new)
    old_ends[-1] = around
    partners = _pair(old_lines, lines)
    previous, taken = old_ends[0], list[str]()
    for at, (line, end) in enumerate(zip(lines, ends, strict=True)):
        if end:
            partner = partners.get(at)
            own = previous if partner is None else old_ends[partner]
            previous = own if end == _LF else end
            taken.append(line + previous)
        else:
            taken.append(line)
    return "".join(taken)


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of a text, and how each ends: the last one does not."""
    *whole, last = text.split(_LF)
    ends = [_CRLF if line.endswith("\r") else _LF for line in whole]
    return [*(line.removesuffix("\r") for line in whole), last], [*ends, ""]


def _pair(old: list[str], new: list[str]) -> dict[int, int]:
    """Return for lines of a new text, by number, the old ones that they are or replace."""
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    rest = range(1, most - head + 1)
    tail = next((at - 1 for at in rest if old[-at] != new[-at]), most - head)
    pairs = {at: at for at in range(head)}
    pairs |= {len(new) - at: len(old) - at for at in range(1, tail + 1)}
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    blocks = [(0, len(old), 0, len(new))]
    if len(old) * len(new) <= _MOST_COMPARED:
        compared = SequenceMatcher(None, old, new, autojunk=False)
        blocks = [code[1:] for code in compared.get_opcodes()]
    for old_start, old_end, start, end in blocks:
        both = zip(range(start, end), range(old_start, old_end), strict=False)
        pairs |= {head + at: head + partner for at, partner in both}
    return pairs
