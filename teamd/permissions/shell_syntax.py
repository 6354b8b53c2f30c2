"""The simple commands of a piece of bash, however they are joined.

Loops, branches and functions are not interpreted: each command in them counts. Text that is not
understood with certainty becomes a command of which nothing is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from teamd.permissions.lexer import (
    METACHARACTERS,
    PROCESS_SUBSTITUTIONS,
    Draft,
    Lexer,
    Unresolvable,
    refuse_hidden,
)

LONGEST: Final = 100_000  # characters
_DEEPEST: Final = 30
# Bash uses some of them internally, and commands do not need them.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
# A command, or text that can be read as a command, follows these words.
_PASSED: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "do", "done", "while", "until", "!", "{", "}", "time"}
    | {"-p", "--", "esac"}  # the first two are options of `time`
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_NO_ARGUMENTS: Final = re.compile(r"\([ \t]*\)")
_DESCRIPTOR: Final = re.compile(r"[0-9]+(?=[<>])")
_END_OF_TEST: Final = re.compile(r"\]\](?=[\s;&|()<>]|$)")
_END_OF_CASE: Final = re.compile(r"esac(?=[\s;&|()<>]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """A program and its arguments.

    Attributes:
        words: `None` means any number of unknown words.
        plain: whether no variable is set for it and no file is written by `>`.
        texts: its here-documents and here-strings.
        opaque: whether it may run more than its words show.
        settings: the values of the variables that are set for it.
    """

    words: tuple[str | None, ...]
    plain: bool = True
    texts: tuple[str, ...] = ()
    opaque: bool = False
    settings: tuple[str, ...] = ()


UNRESOLVED: Final = SimpleCommand(words=(None,), plain=False, opaque=True)


def parse(text: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands of a text, and `UNRESOLVED` if there may be others."""
    if len(text) > LONGEST or _CONTROLS.search(text):
        return (UNRESOLVED,)
    found: list[Draft] = []
    unresolved: tuple[SimpleCommand, ...] = ()
    try:
        _Script(text, found).read()
    except (Unresolvable, RecursionError):
        unresolved = (UNRESOLVED,)
    commands = (
        SimpleCommand(
            words=tuple(one.words),
            plain=one.plain,
            texts=tuple(one.texts),
            settings=tuple(one.settings),
        )
        for one in found
    )
    return (*commands, *unresolved)


class _Script(Lexer):
    """Reads the commands of a piece of bash.

    Args:
        text: the whole piece.
        found: receives the simple commands.
        depth: how deeply it is nested in other pieces.
    """

    def __init__(self, text: str, found: list[Draft], depth: int = 0) -> None:
        super().__init__(text)
        self._found = found
        self._depth = depth

    def read(self) -> None:
        """Read the whole piece.

        Raises:
            Unresolvable: a part is not understood.
        """
        self._list("")
        self.await_nothing()

    def substitute(self) -> None:
        """Read the commands of a substitution, from after its `(` to after its `)`."""
        self.await_nothing()
        self._list(")")

    def substitute_text(self, text: str) -> None:
        """Read the commands of a substitution in backquotes."""
        _Script(text, self._found, self._depth + 1).read()

    def expand(self, text: str) -> None:
        """Read a here-document for the commands that it runs."""
        _Script(text, self._found, self._depth + 1).expansions()

    def _list(self, closer: str) -> str:
        """Read commands up to a closing sign, such as `)`; return the sign."""
        if self._depth >= _DEEPEST:
            raise Unresolvable
        self._depth += 1
        end = None
        while end is None:
            end = self._step(closer)
        self._depth -= 1
        return end

    def _step(self, closer: str) -> str | None:
        """Read one command, or one sign between commands; return the sign if it closes the list."""
        self.skip_blanks()
        sign = self.ahead()
        if not sign:
            return self._end_text(closer)
        if sign == "\n":
            self.end_line()
        elif sign == ")":
            return self._close(closer)
        elif self.ahead(2) in (";;", ";&"):
            return self._end_branch(closer)
        elif sign == "(":
            self._subshell()
        elif sign in ";|&" and self.ahead(2) != "&>":
            self.at += 1
        else:
            return self._command(closer)
        return None

    @staticmethod
    def _end_text(closer: str) -> str:
        if closer:
            raise Unresolvable
        return closer

    def _close(self, closer: str) -> str:
        if closer != ")":
            raise Unresolvable
        self.await_nothing()
        self.at += 1
        return closer

    def _end_branch(self, closer: str) -> str:
        """Read the sign that ends a branch of `case`."""
        if closer != "esac":
            raise Unresolvable
        while self.ahead() in (";", "&"):
            self.at += 1
        return ";;"

    def _subshell(self) -> None:
        if self.ahead(2) == "((":
            raise Unresolvable
        self.at += 1
        self._list(")")

    def _command(self, closer: str) -> str | None:
        """Read a simple command, or the reserved word that begins a compound one."""
        draft = Draft()
        while not self._at_end_of_command():
            if self.ahead() == "(":
                self._define(draft)
                return None
            if self._prefixed(draft):
                continue
            word = self.word()
            if not draft.begun and word.bare and word.known and self._reserved(word.text):
                return closer if word.text == closer == "esac" else None
            draft.words.append(word.text if word.known else None)
        self._found.append(draft)
        return None

    def _prefixed(self, draft: Draft) -> bool:
        """Read a redirection or an assignment before the command, if there is one."""
        if found := _DESCRIPTOR.match(self.text, self.at):
            self.at = found.end()
        if self.redirect(draft):
            return True
        if draft.words or not _ASSIGNMENT.match(self.text, self.at):
            return False
        draft.plain = False
        value = self.word()
        refuse_hidden(value)
        draft.settings.append(value.text)
        if self.ahead() == "(":  # an array
            raise Unresolvable
        return True

    def _at_end_of_command(self) -> bool:
        self.skip_blanks()
        sign = self.ahead()
        return not sign or sign in "\n;|)" or (sign == "&" and self.ahead(2) != "&>")

    def _define(self, draft: Draft) -> None:
        """Read `()` after the name of a function; its body is read like any other command."""
        found = _NO_ARGUMENTS.match(self.text, self.at)
        if found is None or len(draft.words) != 1:
            raise Unresolvable
        self.at = found.end()

    def _reserved(self, text: str) -> bool:
        """Read the rest of a compound command's head; return whether the word is reserved."""
        match text:
            case "for" | "select":
                self._loop_over()
            case "case":
                self._case()
            case "[[":
                self._test()
            case "function":
                self._function()
            case "coproc":
                raise Unresolvable
            case _:
                return text in _PASSED
        return True

    def _function(self) -> None:
        self.skip_blanks()
        self.word()
        self.skip_blanks()
        if found := _NO_ARGUMENTS.match(self.text, self.at):
            self.at = found.end()

    def _loop_over(self) -> None:
        self.skip_blanks()
        self.word()
        start = self.at
        self.skip_lines()
        if self.ahead() in METACHARACTERS or self.word().text != "in":
            self.at = start
            return
        self.skip_blanks()
        while self.ahead() not in ("", ";", "\n"):
            refuse_hidden(self.word())
            self.skip_blanks()

    def _case(self) -> None:
        self.skip_blanks()
        refuse_hidden(self.word())
        self.skip_lines()
        if self.word().text != "in":
            raise Unresolvable
        while not self._ends_case():
            self._patterns()
            if self._list("esac") == "esac":
                return

    def _ends_case(self) -> bool:
        self.skip_lines()
        found = _END_OF_CASE.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found is not None

    def _patterns(self) -> None:
        if self.ahead() == "(":
            self.at += 1
        sign = "|"
        while sign == "|":
            self.skip_blanks()
            self.word()
            self.skip_blanks()
            sign = self.ahead()
            self.at += 1
        if sign != ")":
            raise Unresolvable

    def _test(self) -> None:
        """Read a `[[ … ]]`."""
        while True:
            self.skip_lines(comments=False)
            if found := _END_OF_TEST.match(self.text, self.at):
                self.at = found.end()
                return
            sign = self.ahead()
            if sign in ("", "#", ";"):
                raise Unresolvable
            if sign in "()<>&|" and self.ahead(2) not in PROCESS_SUBSTITUTIONS:
                self.at += 1
            else:
                refuse_hidden(self.word())
