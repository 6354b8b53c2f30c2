"""`teamctl help`: the topics, and the help of each command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import Final

import click

from teamctl.render import output
from teamctl.render.layout import WIDEST, render_markdown
from teamd import __version__
from teamd.errors import TeamError, translate_os_errors

TOPICS: Final = Path(__file__).parents[1] / "topics"  # one Markdown file each
_GAP: Final = 3


def _complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
    """Return the topics and commands that begin with the typed text."""
    commands = _group(context).list_commands(context)
    known = dict.fromkeys((*topics(), *commands))
    return [name for name in known if name.startswith(begun)]


@click.command()
@click.argument("topic", required=False, shell_complete=_complete)
@click.option("--man", metavar="DIR", help="Write the manual pages of teamctl and teamd into DIR.")
@output.json_option
def command(topic: str | None, *, man: str | None, as_json: bool) -> None:
    """Explain TOPIC; without one, list the topics.

    With the name of a command as TOPIC, show the help of that command.
    """
    if man is not None:
        if topic is not None:
            raise click.UsageError("--man writes all pages: give no TOPIC with it")
        _write_pages(Path(man), as_json=as_json)
    elif topic is None:
        _list(as_json=as_json)
    elif topic in topics():
        _show(topic, read_topic(topic), as_json=as_json, markdown=True)
    else:
        _show(
            topic,
            _help_of_command(click.get_current_context(), topic),
            as_json=as_json,
            markdown=False,
        )


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
    hint = "`teamctl help TOPIC` explains one; `teamctl --help` lists the commands."
    output.print_either("\n".join([*lines, "", hint]), {"topics": listed}, as_json=as_json)


def _show(name: str, text: str, *, as_json: bool, markdown: bool) -> None:
    styled = markdown and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if styled and not as_json:
        width = min(get_terminal_size().columns, WIDEST)
        click.echo_via_pager(render_markdown(text, width))
    else:
        output.print_either(text.rstrip("\n"), {"name": name, "text": text}, as_json=as_json)


def _group(context: click.Context) -> click.Group:
    group = context.find_root().command
    assert isinstance(group, click.Group)  # noqa: S101 -- this is one of its commands
    return group


def _help_of_command(context: click.Context, name: str) -> str:
    """Return the output of `teamctl NAME --help`.

    Raises:
        TeamError: no command or topic has that name.
    """
    root = context.find_root()
    found = _group(context).get_command(root, name)
    if found is None:
        raise TeamError(f"no topic {name!r}; the topics are: {', '.join(topics())}")
    with click.Context(found, info_name=name, parent=root) as own:
        return found.get_help(own)
