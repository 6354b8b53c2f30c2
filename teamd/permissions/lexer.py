"""Reads the words, comments, redirections and here-documents of the shell as bash does.

Text that is not understood with certainty is `Unresolvable`, never guessed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

METACHARACTERS: Final = frozenset(" \t\n;&|()<>")
PROCESS_SUBSTITUTIONS: Final = ("<(", ">(")
_PARAMETER: Final = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII)
# Names in an index or an offset are left out: bash computes with their values and runs the command
# substitutions in them. The same is true for `${x@P}` and nested expansions.
_BRACED: Final = re.compile(
    r"\$\{[!#]?(?:[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[(?:[@*]|[0-9]+)\])?"
    r"(?:(?::?[-+=?]|[%#/^,])[^{}$`'\"\\()<>@\n]*|:[0-9: -]*)?\}",
    re.ASCII,
)
_ARITHMETIC: Final = re.compile(r"\$\(\([0-9 \t+*/%<>=!&|^~?:,-]*\)\)")
_ANSI_C: Final = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_GLOBS: Final = frozenset("*?[")
_WHOLE: Final = frozenset({"[", "[[", "{", "{}"})  # not a pattern if it is the whole word
_ESCAPED_IN_QUOTES: Final = frozenset('$`"\\')
_REDIRECTION: Final = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\()")
_DELIMITER: Final = re.compile(r"[ \t]*(\\?[\w.-]+|'[\w. -]+'|\"[\w. -]+\")(?=[\s;&|()<>]|$)")
_DESCRIPTOR: Final = re.compile(r"[0-9]+-?|-")
_NOWHERE: Final = "/dev/null"


class Unresolvable(Exception):
    """A piece of shell that is not understood with certainty."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    Attributes:
        text: the word without its quotes.
        known: whether the text is all of it; an expansion may add any number of words.
        bare: whether no part is quoted, so that it may be a reserved word.
    """

    text: str
    known: bool
    bare: bool

    @property
    def hides(self) -> bool:
        """Return whether bash would run a substitution in the word if it evaluated the word."""
        return "$(" in self.text or "`" in self.text


@dataclass(slots=True)
class Draft:
    """A partly read simple command, see `SimpleCommand`."""

    words: list[str | None] = field(default_factory=list)
    plain: bool = True
    texts: list[str] = field(default_factory=list)  # filled at the end of the line
    settings: list[str] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Return whether a part has been read, so that no reserved word can follow."""
        return bool(self.words) or not self.plain or bool(self.texts)


@dataclass(frozen=True, slots=True)
class _HereDocument:
    """A here-document whose text follows the line."""

    delimiter: str
    literal: bool
    strips_tabs: bool
    texts: list[str]


class Lexer(ABC):
    """Reads the words of a text in order, and the text between them.

    Attributes:
        at: the position of the next character.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.at = 0
        self._awaited: list[_HereDocument] = []
        self._begin()

    @abstractmethod
    def substitute(self) -> None:
        """Read the commands of a substitution, from after its `(` to after its `)`."""

    @abstractmethod
    def substitute_text(self, text: str) -> None:
        """Read the commands of a substitution in backquotes."""

    @abstractmethod
    def expand(self, text: str) -> None:
        """Read the text of a here-document for the commands that it runs."""

    def word(self) -> Word:
        """Read a word.

        Raises:
            Unresolvable: a word does not start here, or it is not understood.
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
        """Read the whole text as a here-document, for the commands that it runs."""
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
        if one.isspace():  # in some locales bash treats it as a blank
            raise Unresolvable
        self._pattern |= one in _GLOBS or one == "{"
        self._known &= not (first and one == "~")
        self._take(1)

    def _take(self, count: int) -> None:
        self._parts.append(self.ahead(count))
        self.at += count

    def _skip(self, count: int, *, known: bool = False) -> None:
        """Skip characters that are not text of the word: an expansion unless `known`."""
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
        """Read one piece of a text in which only `$`, backquotes and backslashes are special."""
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
            case '$"':  # translated by the locale
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
        """Read commands in the middle of a word, which continues after them."""
        word = self._parts, self._known, self._bare, self._pattern
        read()
        self._parts, self._known, self._bare, self._pattern = word

    def skip_blanks(self, *, comments: bool = True) -> None:
        """Go to the next character of the line that is not a blank, or to the end of the line."""
        while True:
            if self.ahead() in (" ", "\t"):
                self.at += 1
            elif self.ahead(2) == "\\\n":
                self.at += 2
            elif comments and self.ahead() == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def skip_lines(self, *, comments: bool = True) -> None:
        """Go to the next character that is not a blank, on any line."""
        self.skip_blanks(comments=comments)
        while self.ahead() == "\n":
            self.end_line()
            self.skip_blanks(comments=comments)

    def end_line(self) -> None:
        """Go to the next line, after the here-documents that follow this one."""
        self.at += 1
        awaited, self._awaited = self._awaited, []
        for document in awaited:
            self._here_document(document)

    def await_nothing(self) -> None:
        """Refuse a position before the text of a here-document.

        Bash reads the text after the line, but not after a line inside a substitution.
        """
        if self._awaited:
            raise Unresolvable

    def redirect(self, draft: Draft) -> bool:
        """Read a redirection if one starts here; return whether one did."""
        found = _REDIRECTION.match(self.text, self.at)
        if found is None:
            return False
        self.at, sign = found.end(), found[0]
        if sign in ("<<", "<<-"):
            self._await(draft, strips_tabs=sign == "<<-")
            return True
        self.skip_blanks(comments=False)
        if self.ahead() == "#":
            raise Unresolvable
        target = self.word()
        if sign == "<<<":
            refuse_hidden(target)
            draft.texts.append(target.text)
        if ">" in sign and not _goes_nowhere(sign, target):
            draft.plain = False
        return True

    def _await(self, draft: Draft, *, strips_tabs: bool) -> None:
        found = _DELIMITER.match(self.text, self.at)
        if found is None:
            raise Unresolvable
        self.at = found.end()
        name = found[1].strip("\\'\"")
        self._awaited.append(_HereDocument(name, name != found[1], strips_tabs, draft.texts))

    def _here_document(self, document: _HereDocument) -> None:
        lines: list[str] = []
        while True:
            line = self._line()
            if document.strips_tabs:
                line = line.lstrip("\t")
            if line == document.delimiter:
                break
            lines.append(line)
        document.texts.append("\n".join(lines))
        if not document.literal:
            if any(line.endswith("\\") for line in lines):  # bash joins it with the next line
                raise Unresolvable
            self.expand(document.texts[-1])

    def _line(self) -> str:
        if self.at >= len(self.text):
            raise Unresolvable
        end = self.text.find("\n", self.at)
        line = self.text[self.at : end if end >= 0 else None]
        self.at += len(line) + 1
        return line


def refuse_hidden(word: Word) -> None:
    """Refuse a word whose substitution bash might run later, for example in an index."""
    if word.hides:
        raise Unresolvable


def _goes_nowhere(sign: str, target: Word) -> bool:
    """Return whether no file is written: only an open descriptor or `/dev/null`."""
    if sign in (">&", "<&") and target.known and _DESCRIPTOR.fullmatch(target.text):
        return True
    return target.known and target.text == _NOWHERE
