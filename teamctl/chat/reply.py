"""The lead's reply as it streams in: as plain text for a pipe, or rendered for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from teamctl.render import output
from teamctl.render.layout import Layout
from teamd.files import files
from teamd.transcript import live

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
    """Shows the characters of a reply as they come, without its thinking.

    Args:
        path: the file of the partial reply.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._attempt = b""
        self._shown = ""
        self.open_line = False

    def more(self) -> str:
        attempt, said = read_partial(self._path)
        if not attempt:
            return ""
        again = attempt != self._attempt
        self._attempt = attempt
        return self._show(_without_thinking(said), again=again)

    def rest(self, whole: str) -> str:
        whole = _without_thinking(whole)
        left = self._show(whole, again=not whole.startswith(self._shown))
        self._shown = ""
        return left

    def _show(self, whole: str, *, again: bool) -> str:
        """Return the text that was not shown yet; `again` if the reply begins again."""
        ends = "\n" if again and self.open_line else ""
        new = whole if again else whole[len(self._shown) :]
        self._shown = whole
        if ends or new:
            self.open_line = bool(new) and not new.endswith("\n")
        return ends + new


def _without_thinking(text: str) -> str:
    return output.plain("".join(part for part, thinks in live.split(text) if not thinks))
