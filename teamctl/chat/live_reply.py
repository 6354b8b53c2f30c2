"""A reply that is under way, as it is shown word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamctl import output
from teamd.files import files

if TYPE_CHECKING:
    from pathlib import Path


class LiveReply:
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
        """Return what came since the last look."""
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
        """Return what is left to show of a reply that stands in the conversation now."""
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
