"""`teamctl help`: the topics, and the help of each command."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Final

import click

from teamctl.commands import COMMANDS, MEANT
from teamctl.render import output
from teamctl.render.layout import WIDEST, render_markdown
from teamd import __version__
from teamd.errors import TeamError, translate_os_errors

TOPICS: Final = Path(__file__).parents[1] / "topics"  # one Markdown file each
_GAP: Final = 3
_INDENT: Final = 4
_RECIPES: Final = "recipes"
_MOST_SHOWN: Final = 9  # matches, two lines each
_MOST_BESIDE: Final = 4  # matches beside a section


@dataclass(frozen=True, slots=True)
class Match:
    """A section of a topic that contains the words of a search.

    Attributes:
        line: the first line that contains them; empty if the heading does.
        text: the whole section.
        rank: lower is better.
    """

    topic: str
    heading: str
    line: str
    text: str
    rank: int

    def to_json(self) -> dict[str, Any]:
        """The match as `--json` shows it."""
        return {"topic": self.topic, "heading": self.heading, "line": self.line}


def _complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
    """Return the topics and commands that begin with the typed text."""
    commands = _group(context).list_commands(context)
    known = dict.fromkeys((*topics(), *commands))
    return [name for name in known if name.startswith(begun)]


@click.command()
@click.argument("words", nargs=-1, metavar="[TOPIC|WORD]...", shell_complete=_complete)
@click.option("--man", metavar="DIR", help="Write the manual pages of teamctl and teamd into DIR.")
@output.json_option
def command(words: tuple[str, ...], *, man: str | None, as_json: bool) -> None:
    """Explain a topic or a command, or search all topics; without a word, list the topics.

    For a WORD, it prints the section whose heading contains it, or the lines that do. If there are
    several words, all must match; after a TOPIC, only that topic is searched.
    """
    name = " ".join(words).lower()
    if man is not None:
        if words:
            raise click.UsageError("--man writes all pages; leave out the TOPIC")
        _write_pages(Path(man), as_json=as_json)
    elif not words:
        _list(as_json=as_json)
    elif name in topics():
        _show(name, read_topic(name), as_json=as_json, markdown=True)
    elif text := _help_of_command(click.get_current_context(), name.split()):
        _show(name, text, as_json=as_json, markdown=False)
    else:
        _search(name, as_json=as_json)


def _write_pages(folder: Path, *, as_json: bool) -> None:
    from teamd.__main__ import program as teamd  # noqa: PLC0415 -- the same
    from teamd.command_line.manual import pages  # noqa: PLC0415 -- the same

    written = []
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        programs = {"teamctl": _group(click.get_current_context()), "teamd": teamd}
        for program, group in programs.items():
            for name, text in pages(group, program, __version__):
                (folder / name).write_text(text, encoding="utf-8")
                written.append(str(folder / name))
    told = f"wrote {len(written)} pages; `man -l {folder / 'teamctl.1'}` shows the first"
    output.print_either(told, {"pages": written}, as_json=as_json)


def topics() -> list[str]:
    """Return the names of the topics, sorted."""
    return sorted(file.stem for file in TOPICS.glob("*.md"))


def read_topic(name: str) -> str:
    """Return the Markdown of a topic, by its name."""
    return (TOPICS / f"{name}.md").read_text(encoding="utf-8")


def title_of(name: str) -> str:
    """Return the title of a topic: its first line is `# Name: title`."""
    return read_topic(name).partition("\n")[0].partition(": ")[2]


def _list(*, as_json: bool) -> None:
    titles = {name: title_of(name) for name in topics()}
    listed = [{"name": name, "title": title} for name, title in titles.items()]
    width = max(map(len, titles)) + _GAP
    lines = [f"{name:{width}}{title}" for name, title in titles.items()]
    hint = (
        "`teamctl help TOPIC` explains one, `teamctl help WORD` searches them all; "
        "`teamctl --help` lists the commands."
    )
    output.print_either("\n".join([*lines, "", hint]), {"topics": listed}, as_json=as_json)


def _show(name: str, text: str, *, as_json: bool, markdown: bool) -> None:
    if as_json:
        output.print_json({"name": name, "text": text})
    elif markdown and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        width = min(get_terminal_size().columns, WIDEST)
        click.echo_via_pager(render_markdown(text, width))
    else:
        click.echo(text.rstrip("\n"))


def _group(context: click.Context) -> click.Group:
    group = context.find_root().command
    assert isinstance(group, click.Group)  # noqa: S101 -- this is one of its commands
    return group


def _help_of_command(context: click.Context, words: Sequence[str]) -> str:
    """Return the output of `teamctl WORDS --help`; empty for an unknown command."""
    found: click.Command = _group(context)
    own = context.find_root()
    for word in words:
        inner = found.get_command(own, word) if isinstance(found, click.Group) else None
        if inner is None:
            return ""
        found, own = inner, click.Context(inner, info_name=word, parent=own)
    return found.get_help(own)


def search(name: str) -> list[Match]:
    """Return the sections that contain all words of a text, the best first.

    If the first word is a topic and others follow, only that topic is searched.
    """
    first, *others = name.split()
    found = [match for topic in topics() for match in _search_topic(topic, [first, *others])]
    if others and first in topics():
        headings = [match for match in found if not match.line]
        found = [*headings, *_search_topic(first, others)]
    return sorted(found, key=lambda match: (match.rank, match.topic != _RECIPES))


def _search_topic(topic: str, words: Sequence[str]) -> Iterator[Match]:
    for text in re.split(r"^##? ", read_topic(topic), flags=re.MULTILINE)[1:]:
        heading, _, body = text.partition("\n")
        rank = _rank(heading, words)
        if rank is not None:
            yield Match(topic, heading, "", text, rank)
            continue
        rank, line = _find_line(body.splitlines(), words)
        if rank is not None:
            yield Match(topic, heading, line, text, rank)


def _find_line(lines: Iterable[str], words: Sequence[str]) -> tuple[int | None, str]:
    """Return the rank and the text of the best line; the words may also be in different lines."""
    ranked = [(rank, line) for line in lines if (rank := _rank(line, words)) is not None]
    if ranked:
        rank, line = min(ranked, key=lambda one: one[0])
        return 2 + rank, line.strip()
    rank = _rank(" ".join(lines), words)
    if rank is None:
        return None, ""
    line = next(line for line in lines if words[0] in line.lower())
    return 4 + rank, line.strip()


def _rank(text: str, words: Sequence[str]) -> int | None:
    """Return 0 if a text contains all words, 1 if words starting with them, otherwise `None`."""
    low, begun = text.lower(), [rf"(?<![a-z0-9]){re.escape(word)}" for word in words]
    if not all(re.search(word, low) for word in begun):
        return None
    return 0 if all(re.search(rf"{word}(?![a-z0-9])", low) for word in begun) else 1


def _search(name: str, *, as_json: bool) -> None:
    """Print the section whose heading contains the words, and the lines that contain them.

    Raises:
        TeamError: nothing contains them.
    """
    found, hints = search(name), list(_hints(name))
    if not found and not hints:
        known = get_close_matches(name, (*topics(), *COMMANDS), 1)
        then = (
            f"did you mean `teamctl help {known[0]}`?"
            if known
            else "`teamctl help` lists the topics"
        )
        raise TeamError(f"nothing about {name!r} in the topics and commands; {then}")
    best = found[0] if found and not found[0].line else None
    if as_json:
        matches = [match.to_json() for match in found]
        document = {"name": name, "text": best and best.text, "commands": hints, "matches": matches}
        output.print_json(document)
        return
    for hint in hints:
        click.echo(hint)
    if best:
        text = f"{best.topic}: {best.text}".removeprefix(f"{best.topic}: {best.topic.title()}: ")
        _show(name, f"# {text}", as_json=False, markdown=True)
        found = found[1:]
    if found and (best or hints):
        click.echo("\nAlso:")
    _print_matches(found, name.split(), _MOST_BESIDE if best else _MOST_SHOWN)


def _hints(name: str) -> Iterator[str]:
    """Yield the commands that a text means, or that their line in `teamctl --help` mentions."""
    if name in MEANT:
        yield MEANT[name]
    for command, line in COMMANDS.items():
        if command != "help" and _rank(line, name.split()) == 0:
            yield f"`teamctl {command}`: {line}"


def _cut(line: str, words: Sequence[str]) -> str:
    """Return a line cut so that it fits the terminal and shows the first word of the search."""
    line = line.strip("| ")
    if not sys.stdout.isatty():
        return line
    width = get_terminal_size().columns - _INDENT
    first = max(line.lower().find(words[0]) + len(words[0]) + 2 - width, 0)
    begun = f"…{line[first + 1 :]}" if first else line
    return begun if len(begun) <= width else f"{begun[: width - 1]}…"


def _print_matches(found: Sequence[Match], words: Sequence[str], most: int) -> None:
    for match in found[:most]:
        click.echo(f"teamctl help {match.topic}: {match.heading}")
        if match.line:
            click.echo(f"{' ' * _INDENT}{_cut(match.line, words)}")
    if len(found) > most:
        click.echo(f"and {len(found) - most} more; `teamctl help TOPIC WORD` searches one topic")
