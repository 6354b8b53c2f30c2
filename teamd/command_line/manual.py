"""Manual pages of declared commands, made from the same source as their help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import click

from teamd.command_line.options import examples_of

_CODE: Final = re.compile(r"`([^`]+)`")


def pages(group: click.Group, program: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the pages of a program and its commands, and their text in roff.

    Args:
        group: the program.
        program: its name.
        version: the same for all.
    """
    context = click.Context(group, info_name=program)
    commands = list(_commands(context))
    names = [_page_name(one) for one in commands]
    for one in (context, *commands):
        see = names if one is context else [program]
        yield f"{_page_name(one)}.1", "\n".join(_page(one, version, see)) + "\n"


def _commands(context: click.Context) -> Iterator[click.Context]:
    """Yield the commands of a group, and those below them."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            found = click.Context(command, info_name=name, parent=context)
            yield found
            yield from _commands(found)


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, version: str, see: Sequence[str]) -> Iterator[str]:
    command, name = context.command, _page_name(context)
    yield f'.TH "{_escape(name.upper())}" "1" "" "teamd {_escape(version)}" "teamd"'
    yield ".SH NAME"
    yield _escape(f"{name} - {_first_line(command)}")
    yield ".SH SYNOPSIS"
    yield rf"\fB{_escape(context.command_path)}\fR {_escape(' '.join(_usage(context)))}"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.help or "")
    yield ".SH OPTIONS"
    for one in command.get_params(context):
        if isinstance(one, click.Option) and (record := one.get_help_record(context)):
            yield ".TP"
            yield rf"\fB{_escape(record[0])}\fR"
            yield _text(record[1])
    if examples := examples_of(command):
        yield ".SH EXAMPLES"
        yield from (".nf", *map(_escape, examples), ".fi")
    yield ".SH SEE ALSO"
    yield ", ".join(rf"\fB{_escape(other)}\fR(1)" for other in see)


def _usage(context: click.Context) -> list[str]:
    return context.command.collect_usage_pieces(context)


def _first_line(command: click.Command) -> str:
    first = " ".join((command.help or "").partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


def _paragraphs(text: str) -> Iterator[str]:
    for number, one in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield _text(one)


def _text(text: str) -> str:
    """Return a paragraph in roff, with code in bold."""
    return _CODE.sub(r"\\fB\1\\fR", _escape(" ".join(text.split())))


def _escape(text: str) -> str:
    r"""Return text that roff prints as it is: no `\`, no `-` that it may change, no request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped[:1] in (".", "'") else escaped
