"""Examples in the help of each command, and manual pages made of the same source."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

import click
import pytest

from teamctl.main import cli as teamctl
from teamd.__main__ import program
from teamd.command_line.manual import pages
from teamd.command_line.options import examples_of
from teamd.command_line.run import TeamOptions

PROGRAMS: Final = {"teamctl": teamctl, "teamd": program}
MACROS: Final = {".TH", ".SH", ".PP", ".TP", ".nf", ".fi"}
SECTIONS: Final = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"]
_CALL: Final = re.compile(r"`(team(?:ctl|d) [^`]+)`")
WIDEST: Final = 76  # so that an example fits into 80 columns, indented


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    for word in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), word)
        assert found is not None
        yield f"{name} {word}", found
        if isinstance(found, click.Group):
            yield from commands(found, f"{name} {word}")


ALL: Final = dict(pair for name, group in PROGRAMS.items() for pair in commands(group, name))


@pytest.mark.parametrize("name", ALL)
def test_the_help_of_each_command_ends_with_two_example_calls_of_it(name: str) -> None:
    command = ALL[name]
    first, second = examples_of(command)
    context = click.Context(command, info_name=name)
    assert command.get_help(context).splitlines()[-3:] == [
        "  Examples:", f"    {first}", f"    {second}",
    ]  # fmt: skip
    for example in (first, second):
        assert len(example) <= WIDEST, example
        called = re.sub(r" --team \w+", "", example).partition(" <")[0]
        calls = [part.strip() for part in called.split(" | ") if part.strip().startswith("team")]
        assert any(call.startswith(name) for call in calls), example


@pytest.mark.parametrize("name", ALL)
def test_each_example_is_parsed_without_an_error(name: str) -> None:
    """Examples are parsed by click and not run."""
    for example in examples_of(ALL[name]):
        for part in example.split(" | "):
            words = shlex.split(part.partition(" <")[0], comments=True)
            if words[0] not in PROGRAMS:
                continue
            command: click.Command = PROGRAMS[words[0]]
            rest = words[1:]
            while isinstance(command, click.Group):
                context = command.make_context(words[0], rest, obj=TeamOptions())
                rest = [*context._protected_args, *context.args]
                word, found, rest = command.resolve_command(context, rest)
                assert found is not None, word
                command = found
                if isinstance(command, click.Group) and not rest:
                    break
            else:
                command.make_context(name, rest, obj=TeamOptions())


def test_the_help_names_no_missing_option() -> None:
    """`chat --help` once named a `--wait`.

    In a call of another command an option is that command's.

    One test for all commands: building their help takes most of the time.
    """
    helps = {name: one.get_help(click.Context(one, info_name=name)) for name, one in ALL.items()}
    everywhere = {"--team"}  # also before the command: `teamctl --team NAME ...`
    for name, text in helps.items():
        line = " ".join(text.split())
        for call in _CALL.findall(line):
            known = [one for one in ALL if f"{call} ".startswith(f"{one} ")]
            of_it = options_of(max(known, key=len)) if known else set()
            assert options(call) <= of_it | everywhere, f"{name}: {call}"
        assert options(_CALL.sub("", line)) <= options_of(name) | everywhere, name


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def options_of(name: str) -> set[str]:
    named = ALL[name].get_params(click.Context(ALL[name], info_name=name))
    return {word for one in named for word in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_command_has_a_manual_page_with_all_of_its_help(program: str) -> None:
    found = dict(pages(PROGRAMS[program], program, "1.0"))
    names = [name.replace(" ", "-") for name in ALL if name.startswith(f"{program} ")]
    assert found.keys() == {f"{program}.1", *(f"{name}.1" for name in names)}
    for name, command in ALL.items():
        if not name.startswith(f"{program} "):
            continue
        text = found[f"{name.replace(' ', '-')}.1"]
        lines = text.splitlines()
        requests = {line.split(" ")[0] for line in lines if line.startswith((".", "'"))}
        assert requests <= MACROS
        assert [line[4:] for line in lines if line.startswith(".SH ")] == SECTIONS
        plain = text.replace(r"\-", "-").replace(r"\e", "\\")
        assert [one for one in examples_of(command) if one not in plain] == []
        options = [one for one in command.params if isinstance(one, click.Option)]
        shown = [one for one in options if not one.hidden]
        assert [one.opts[0] for one in shown if one.opts[0] not in plain] == []


def test_roff_control_characters_are_escaped() -> None:
    command = click.Command("x", help="First.\n\n.so /etc/passwd \\fB 'x -y `code`", epilog="")
    group = click.Group("p", commands={"x": command}, help="Do.")
    text = dict(pages(group, "p", "1.0"))["p-x.1"]
    assert "\n" + r"\&.so /etc/passwd \efB 'x \-y \fBcode\fR" + "\n" in text
