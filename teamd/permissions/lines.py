"""Lines of the shell: blanks, comments, redirections, and the here-documents behind a line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from teamd.permissions.words import Unresolvable, Word, Words

REDIRECTION: Final = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\()")
_DELIMITER: Final = re.compile(r"[ \t]*(\\?[\w.-]+|'[\w. -]+'|\"[\w. -]+\")(?=[\s;&|()<>]|$)")
_DESCRIPTOR: Final = re.compile(r"[0-9]+-?|-")
_NOWHERE: Final = "/dev/null"


@dataclass(slots=True)
class Draft:
    """A simple command while it is read, see `SimpleCommand`."""

    words: list[str | None] = field(default_factory=list)
    plain: bool = True
    texts: list[str] = field(default_factory=list)  # filled when the line has ended
    settings: list[str] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Return whether anything of it has been read, so that no reserved word can follow."""
        return bool(self.words) or not self.plain or bool(self.texts)


@dataclass(frozen=True, slots=True)
class _HereDocument:
    """A here-document whose text follows the line."""

    delimiter: str
    literal: bool
    strips_tabs: bool
    texts: list[str]


class Lines(Words):
    """Reads what stands between words, and from one line to the next."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._awaited: list[_HereDocument] = []

    def skip_blanks(self, *, comments: bool = True) -> None:
        """Go to the next character of the line that is no blank, or to the end of the line."""
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
        """Go to the next character that is no blank, on whatever line it is."""
        self.skip_blanks(comments=comments)
        while self.ahead() == "\n":
            self.end_line()
            self.skip_blanks(comments=comments)

    def end_line(self) -> None:
        """Go to the next line, past the here-documents that follow this one."""
        self.at += 1
        awaited, self._awaited = self._awaited, []
        for document in awaited:
            self._here_document(document)

    def await_nothing(self) -> None:
        """Refuse a place at which the text of a here-document is still to come.

        Bash reads it behind the line, but not behind a line inside a substitution.
        """
        if self._awaited:
            raise Unresolvable

    def redirect(self, draft: Draft) -> bool:
        """Read a redirection, if there is one here; return whether there was."""
        found = REDIRECTION.match(self.text, self.at)
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
            if any(line.endswith("\\") for line in lines):  # bash joins it with the next one
                raise Unresolvable
            self.expand(document.texts[-1])

    def expand(self, text: str) -> None:
        """Read a here-document for the commands that it runs."""
        raise NotImplementedError

    def _line(self) -> str:
        if self.at >= len(self.text):
            raise Unresolvable
        end = self.text.find("\n", self.at)
        line = self.text[self.at : end if end >= 0 else None]
        self.at += len(line) + 1
        return line


def refuse_hidden(word: Word) -> None:
    """Refuse a text that bash might evaluate later, such as in an index."""
    if word.hides:
        raise Unresolvable


def _goes_nowhere(sign: str, target: Word) -> bool:
    """Return whether nothing is written: to a descriptor that is open, or to nowhere."""
    if sign in (">&", "<&") and target.known and _DESCRIPTOR.fullmatch(target.text):
        return True
    return target.known and target.text == _NOWHERE
