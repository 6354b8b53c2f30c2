"""A reply of the lead while it comes: as plain text for a pipe, or rendered for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from teamctl.render import output
from teamctl.render.layout import Layout
from teamd.command_line import terminal
from teamd.files import files
from teamd.transcript import live

_MARK: Final = (live.BEGINS, live.ENDS)
_MARKS: Final = re.compile(f"([{live.BEGINS}{live.ENDS}])")
_THINKING: Final = "thinking: "
_FENCE: Final = re.compile(r" {0,3}(```|~~~)")


class ReplyView(Protocol):
    """Shows a reply part by part.

    Attributes:
        open_line: whether the last output ended within a line.
    """

    open_line: bool

    def more(self) -> str:
        """Return the new text since the last call."""

    def rest(self, whole: str) -> str:
        """Return the part of a complete reply that was not shown yet.

        Args:
            whole: the reply, see `live.compose`.
        """


def read_partial(path: Path) -> tuple[bytes, str]:
    """Return the name of an attempt and its text so far; an empty name if there is none."""
    attempt, newline, said = (files.read(path) or b"").partition(b"\n")
    # The last character may be incomplete.
    return (attempt, said.decode(errors="ignore")) if newline else (b"", "")


class RenderedReply:
    """Shows the blocks of a Markdown reply, each as soon as it is complete.

    Args:
        path: the file of the partial reply.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._attempt = b""
        self._shown: list[tuple[str, bool]] = []
        self.open_line = False

    def more(self) -> str:
        attempt, said = read_partial(self._path)
        if not attempt:
            return ""
        if attempt != self._attempt:
            self._attempt, self._shown = attempt, []
        return self._show(list(complete_blocks(said)))

    def rest(self, whole: str) -> str:
        shown = self._show([*complete_blocks(whole, ended=True)])
        self._shown = []
        return shown

    def _show(self, blocks: list[tuple[str, bool]]) -> str:
        known = len(self._shown)
        if blocks[:known] != self._shown:
            known = 0  # the reply begins again, or a part of it is masked now
        layout = Layout.of_output()
        lines: list[str] = []
        for number, (block, thinks) in enumerate(blocks[known:], known):
            if thinks:
                lines += layout.lines(f"{_THINKING}{block}", dim=True)
            else:
                lines += [""] * (number > 0)
                lines += layout.markdown(block)
        self._shown = blocks
        return "".join(f"{line}\n" for line in lines)


def complete_blocks(text: str, *, ended: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the blocks of a reply, and whether each is thinking.

    Args:
        text: the reply so far, see `live.compose`.
        ended: whether the last block is complete, too.
    """
    parts = list(live.split(text))
    for number, (part, thinks) in enumerate(parts, 1):
        blocks = list(_blocks(part))
        if number == len(parts) and not ended:
            blocks = blocks[:-1]
        yield from ((block, thinks) for block in blocks if block.strip())


def _blocks(text: str) -> Iterator[str]:
    """Yield the parts between blank lines; a fenced block of code is one part."""
    block: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if not fence and not line.strip():
            if block:
                yield "\n".join(block)
            block = []
            continue
        block.append(line)
        if found := _FENCE.match(line):
            fence = found[1] if not fence else "" if fence == found[1] else fence
    yield "\n".join(block)


class LiveReply:
    """Shows the characters of a reply as they come.

    Args:
        path: the file of the partial reply.
        thinking: whether thinking is shown.
    """

    def __init__(self, path: Path, *, thinking: bool = True) -> None:
        self._path = path
        self._thinking = thinking
        self._attempt = b""
        self._shown = ""
        self._dim = False
        self.open_line = False

    def more(self) -> str:
        attempt, said = read_partial(self._path)
        if not attempt:
            return ""
        again = ""
        if attempt != self._attempt:
            again = "\n" if self.open_line else ""  # the reply begins again
            self._attempt, self._shown, self._dim = attempt, "", False
        whole = self._plain(said)
        return again + self._show(whole[len(self._shown) :])

    def rest(self, whole: str) -> str:
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
