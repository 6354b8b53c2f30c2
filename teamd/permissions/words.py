"""Words of the shell: quotes, escapes and expansions, read as bash reads them.

Whatever is not understood with certainty is `Unresolvable`, never guessed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

METACHARACTERS: Final = frozenset(" \t\n;&|()<>")
PROCESS_SUBSTITUTIONS: Final = ("<(", ">(")
_PARAMETER: Final = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII)
# Names in an index or an offset are left out: bash computes with what they hold, and runs the
# command substitutions in it. So are `${x@P}`, and whatever holds another expansion.
_BRACED: Final = re.compile(
    r"\$\{[!#]?(?:[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[(?:[@*]|[0-9]+)\])?"
    r"(?:(?::?[-+=?]|[%#/^,])[^{}$`'\"\\()<>@\n]*|:[0-9: -]*)?\}",
    re.ASCII,
)
_ARITHMETIC: Final = re.compile(r"\$\(\([0-9 \t+*/%<>=!&|^~?:,-]*\)\)")
_ANSI_C: Final = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_GLOBS: Final = frozenset("*?[")
_WHOLE: Final = frozenset({"[", "[[", "{", "{}"})  # no pattern where nothing stands beside it
_ESCAPED_IN_QUOTES: Final = frozenset('$`"\\')


class Unresolvable(Exception):
    """A piece of shell that is not understood with certainty."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    Attributes:
        text: the word without its quotes.
        known: whether that is all of it; an expansion may make any number of words of it.
        bare: whether nothing of it is quoted, so that it may be a reserved word.
    """

    text: str
    known: bool
    bare: bool

    @property
    def hides(self) -> bool:
        """Return whether it holds a substitution that bash runs only if it evaluates the word."""
        return "$(" in self.text or "`" in self.text


class Words(ABC):
    """Reads the words of a text, one after the other.

    Attributes:
        text: all of it.
        at: the place of the next character.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.at = 0
        self._begin()

    @abstractmethod
    def substitute(self) -> None:
        """Read the commands of a substitution, from behind its `(` to behind its `)`."""

    @abstractmethod
    def substitute_text(self, text: str) -> None:
        """Read the commands of a substitution that is a text of its own."""

    def word(self) -> Word:
        """Read a word.

        Raises:
            Unresolvable: there is none, or it is not understood.
        """
        self._begin()
        start = self.at
        while self.at < len(self.text) and not self._at_end_of_word():
            self._piece(first=self.at == start)
        if self.at == start:
            raise Unresolvable
        text = "".join(self._parts)
        known = self._known and (not self._pattern or (self._bare and text in _WHOLE))
        return Word(text, known, self._bare)

    def expansions(self) -> None:
        """Read all of the text as that of a here-document, for what it runs."""
        self._begin()
        while self.at < len(self.text):
            self._quoted_piece()

    def ahead(self, count: int = 1) -> str:
        """Return the next characters."""
        return self.text[self.at : self.at + count]

    def _begin(self) -> None:
        self._parts: list[str] = []
        self._known = self._bare = True
        self._pattern = False

    def _at_end_of_word(self) -> bool:
        return self.ahead() in METACHARACTERS and self.ahead(2) not in PROCESS_SUBSTITUTIONS

    def _piece(self, *, first: bool) -> None:
        readers: dict[str, Callable[[], None]] = {
            "\\": self._escape,
            "'": self._single_quotes,
            '"': self._double_quotes,
            "`": self._backquotes,
            "$": self._dollar,
            "<": self._process,
            ">": self._process,
        }
        reader = readers.get(self.ahead())
        if reader is not None:
            reader()
            return
        one = self.ahead()
        if one.isspace():  # in some locales bash takes it for a blank
            raise Unresolvable
        self._pattern |= one in _GLOBS or one == "{"
        self._known &= not (first and one == "~")
        self._take(1)

    def _take(self, count: int) -> None:
        self._parts.append(self.ahead(count))
        self.at += count

    def _skip(self, count: int, *, known: bool = False) -> None:
        """Pass what is no text of the word, but mostly an expansion."""
        self._known &= known
        self.at += count

    def _escape(self) -> None:
        if len(self.ahead(2)) < 2:  # noqa: PLR2004 -- the backslash and what it escapes
            raise Unresolvable
        self.at += 1
        if self.ahead() == "\n":
            self.at += 1
            return
        self._bare = False
        self._take(1)

    def _single_quotes(self) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unresolvable
        self._bare = False
        self._parts.append(self.text[self.at + 1 : end])
        self.at = end + 1

    def _double_quotes(self) -> None:
        self._bare = False
        self.at += 1
        while self.ahead() != '"':
            if not self.ahead():
                raise Unresolvable
            self._quoted_piece()
        self.at += 1

    def _quoted_piece(self) -> None:
        """Read one piece of a text in which only `$`, backquotes and backslashes count."""
        match self.ahead():
            case "\\" if self.ahead(2) == "\\\n":
                self.at += 2
            case "\\" if self.ahead(2)[1:] in _ESCAPED_IN_QUOTES:
                self.at += 1
                self._take(1)
            case "`":
                self._backquotes(quoted=True)
            case "$" if self.ahead(2) not in ("$'", '$"'):
                self._dollar()
            case _:
                self._take(1)

    def _backquotes(self, *, quoted: bool = False) -> None:
        end = self.text.find("`", self.at + 1)
        inner = self.text[self.at + 1 : end]
        if end < 0 or "\\" in inner or (quoted and '"' in inner):
            raise Unresolvable
        self._skip(len(inner) + 2)
        self._aside(lambda: self.substitute_text(inner))

    def _dollar(self) -> None:
        match self.ahead(2):
            case "$'":
                self._ansi_quotes()
            case '$"':  # translated by what the locale says
                self._skip(1)
                self._double_quotes()
            case "$(" if self.ahead(3) != "$((":
                self._skip(2)
                self._aside(self.substitute)
            case "$(":
                self._expansion(_ARITHMETIC)
            case "${":
                self._expansion(_BRACED)
            case "$[":
                raise Unresolvable
            case _ if found := _PARAMETER.match(self.text, self.at):
                self._skip(len(found[0]))
            case _:
                self._take(1)

    def _expansion(self, shape: re.Pattern[str]) -> None:
        found = shape.match(self.text, self.at)
        if found is None:
            raise Unresolvable
        self._skip(len(found[0]))

    def _ansi_quotes(self) -> None:
        found = _ANSI_C.match(self.text, self.at)
        if found is None:
            raise Unresolvable
        self._bare = False
        self._parts.append(found[1])
        self._skip(len(found[0]), known="\\" not in found[1])

    def _process(self) -> None:
        self._skip(2)
        self._aside(self.substitute)

    def _aside(self, read: Callable[[], None]) -> None:
        """Read commands in the middle of a word, which goes on behind them."""
        word = self._parts, self._known, self._bare, self._pattern
        read()
        self._parts, self._known, self._bare, self._pattern = word
