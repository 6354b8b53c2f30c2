"""README and topics as data: their examples, their inline code and their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamctl.commands.help import TOPICS, topics

REPOSITORY: Final = Path(__file__).parent.parent
README: Final = REPOSITORY / "README.md"
NOT_RUN: Final = "not-run"
LONGEST_LINE: Final = 100

_FENCE: Final = re.compile(r"^```(?P<info>.*)\n(?P<text>(?:(?!```).*\n)*)```$", re.MULTILINE)
_INDENTED: Final = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
_INLINE: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK: Final = re.compile(r"\]\(([^)]+)\)")
_EXIT: Final = re.compile(r"#.*\bexits (\d+)")
_CONTINUED: Final = "\\\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command line of an example, and the exit status that a comment announces."""

    text: str
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One fenced block.

    Attributes:
        language: the first word behind the fence.
        marks: the words after it, such as `not-run`.
        line: the number of its first line in the page.
    """

    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        """File and line, for a failed assertion."""
        return f"{self.page.name}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether a test can run it here."""
        return NOT_RUN not in self.marks

    def mark(self, key: str) -> str | None:
        return next((m.partition("=")[2] for m in self.marks if m.startswith(f"{key}=")), None)

    def steps(self) -> Iterator[Step]:
        """Yield the command lines of a shell example."""
        for text in self.text.replace(_CONTINUED, "\0").splitlines():
            if text.strip():
                announced = _EXIT.search(text)
                status = int(announced[1]) if announced else 0
                yield Step(text=text.replace("\0", _CONTINUED), status=status)


def pages() -> list[Path]:
    return [README, *(TOPICS / f"{name}.md" for name in topics())]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def examples(page: Path, language: str | None = None) -> list[Example]:
    """Return the fenced blocks of a page, all or those of a language."""
    text = read(page)
    found = []
    for block in _FENCE.finditer(text):
        language_of, *marks = block["info"].split() or [""]
        line = text.count("\n", 0, block.start()) + 2
        found.append(
            Example(
                page=page, line=line, language=language_of, marks=tuple(marks), text=block["text"]
            )
        )
    return [one for one in found if language in (None, one.language)]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", read(page))


def indented(page: Path) -> list[str]:
    return _INDENTED.findall(prose(page))


def inline_code(text: str) -> list[str]:
    """Return the texts between backquotes, each on one line, with a table's bars unescaped."""
    return [" ".join(code.split()).replace("\\|", "|") for code in _INLINE.findall(text)]


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def table_calls(page: Path) -> list[str]:
    """Return the calls in the first column of a table, with the program's name in each.

    A row may name the program once, as `teamd start` and `stop`, and list subcommands, as
    `task add|show`.
    """
    calls = []
    for row in re.findall(r"^\| (`team.*?) \| ", prose(page), re.MULTILINE):
        first, *others = inline_code(row)
        program = first.partition(" ")[0]
        for call in (first, *(f"{program} {other}" for other in others)):
            start, _, last = call.rpartition(" ")
            calls += [f"{start} {word}" for word in last.split("|")]
    return calls
