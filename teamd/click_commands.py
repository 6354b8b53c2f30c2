"""Declared commands as click has them: help, mistakes, completion, and every unusual call."""

from __future__ import annotations

import functools
import math
import shlex
from contextlib import suppress

import click

from teamd.cli import Choice
from teamd.commandline import TEAM_OPTIONS, Command, Group, Parameter, ValueType
from teamd.errors import WrongUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

_TEXTS: Final = frozenset({"prompt", "subject", "text"})
LONGEST_SECONDS: Final = 86_400
_EXAMPLES: Final = "\b\nExamples:"  # of which click leaves the lines as they are


class Seconds(click.ParamType[float]):
    """A time limit in seconds: finite, and zero only where that means `now`."""

    name = "seconds"

    def __init__(self, *, zero: bool) -> None:
        self._zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds, or fail with a sentence."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= LONGEST_SECONDS or (seconds == 0 and not self._zero):
            self.fail(f"{value!r} is no time; give up to {LONGEST_SECONDS} seconds", param, ctx)
        return seconds


class IntRange(click.IntRange):
    """A whole number, called so in what is said of one that is none."""

    name = "whole number"


class FloatRange(click.FloatRange):
    """The same of any number."""

    name = "number"


_OWN_TYPES: Final = {one.__name__: one for one in (Seconds, IntRange, FloatRange)}


class TextCommand(click.Command):
    """A command whose last argument is a text: one without quotes is shown with them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of a call, or fail with a sentence."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if better := self._quoted(ctx, given):
                hint = f"put a text of several words in quotes: {better}"
                raise click.UsageError(f"{error.message}; {hint}", ctx) from error
            raise

    def _quoted(self, ctx: click.Context, given: list[str]) -> str:
        """Return the call with its text in quotes; nothing where that is not what is wrong."""
        with suppress(click.UsageError):
            found, extra, _ = self.make_parser(ctx).parse_args(list(given))
            names = [one.name or "" for one in self.params if isinstance(one, click.Argument)]
            if extra and names[-1:] and names[-1] in _TEXTS:
                words = [*(found[name] for name in names), *extra]
                options = iter(_without(given, words))
                text = shlex.quote(" ".join(words[len(names) - 1 :]))
                return " ".join([ctx.command_path, *words[: len(names) - 1], text, *options])
        return ""


class TellingGroup(click.Group):
    """A group that tells a misspelt command what is near, or what there is."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with a sentence."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 -- only for an unknown name

            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else self.describe_known(ctx)
            ctx.fail(f"no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def describe_known(self, ctx: click.Context) -> str:
        """Say which commands there are."""
        return f"there are: {', '.join(self.list_commands(ctx))}"


def _without(given: list[str], words: list[str]) -> list[str]:
    """Return what is left of a list without these, which stand in it in this order."""
    left, words = [], list(words)
    for word in given:
        if words and word == words[0]:
            del words[0]
        else:
            left.append(word)
    return left


version_option = click.version_option(
    package_name="teamd", message="%(prog)s %(version)s", help="Print the version."
)


def to_click(declared: Command) -> click.Command:
    """Build click's command of one that is declared."""
    return click.command(cls=TextCommand)(_decorated(declared))


def program_to_click(declared: Group, cls: type[click.Group] = click.Group) -> click.Group:
    """Build click's group of a whole program, which tells its version, too."""
    return _group(declared, cls, version_option(_decorated(declared.itself)))


def group_to_click(declared: Group) -> click.Group:
    """Build click's group of one that is declared, with the commands below it."""
    return _group(declared, TellingGroup, _decorated(declared.itself))


def add_examples(command: click.Command, examples: Mapping[str, Sequence[str]], path: str) -> None:
    """Put examples below the help of a command, and of those below it.

    Args:
        command: whose help it is.
        examples: calls, by the words that call a command.
        path: those of this one.
    """
    if found := examples.get(path):
        command.epilog = "\n".join((_EXAMPLES, *(f"  {one}" for one in found)))
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        add_examples(below, examples, f"{path} {name}".strip())


def examples_of(command: click.Command) -> list[str]:
    """Return the examples that stand below the help of a command."""
    lines = (command.epilog or "").removeprefix(_EXAMPLES).splitlines()
    return [line.strip() for line in lines if line.strip()]


def _group(declared: Group, cls: type[click.Group], run: Callable[..., Any]) -> click.Group:
    made = click.group(cls=cls, **declared.settings)(run)
    for name, command in declared.commands.items():
        made.add_command(to_click(command), name)
    return made


def _decorated(declared: Command) -> Callable[..., Any]:
    run = _telling_usage(declared.run)
    if declared.for_team:
        run = _choosing(run)
    for one in declared.parameters:
        run = _decorator(one)(run)
    return run


def _decorator(one: Parameter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    settings = dict(one.settings)
    if isinstance(kind := settings.get("type"), ValueType):
        made = _OWN_TYPES.get(kind.name) or getattr(click, kind.name)
        settings["type"] = made(*kind.bounds, **kind.named)
    if one.option:
        return click.option(*one.names, **settings)
    return click.argument(*one.names, **settings)


def _choosing(run: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the `Choice` that the options make, before and behind the command's name."""

    @functools.wraps(run)
    def with_choice(*args: Any, **kwargs: Any) -> Any:
        choice = click.get_current_context().ensure_object(Choice)
        said = {one.name: kwargs.pop(one.name) for one in TEAM_OPTIONS}
        if not choice.take(said):
            raise click.UsageError("--team and --team-dir name a team each: take one of them")
        return run(choice, *args, **kwargs)

    return with_choice


def _telling_usage(run: Callable[..., Any]) -> Callable[..., Any]:
    """Tell a wrong usage in click's form, with the command's usage."""

    @functools.wraps(run)
    def telling(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except WrongUsage as error:
            raise click.UsageError(str(error)) from error

    return telling
