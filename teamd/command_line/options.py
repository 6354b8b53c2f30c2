"""Options, parameter types and command classes that `teamd` and `teamctl` share."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import click

from teamd import __version__
from teamd.command_line.run import TeamOptions

R = TypeVar("R")

LONGEST_SECONDS: Final = 86_400
_TEXTS: Final = frozenset({"prompt", "subject", "text"})
_EXAMPLES: Final = "\b\nExamples:"  # \b: click keeps the line breaks of this paragraph

version_option = click.version_option(
    __version__, message="%(prog)s %(version)s", help="Print the version."
)


def team_options(run: Callable[..., R]) -> Callable[..., R]:
    """Add the options that name a team, and pass the function the resulting `TeamOptions` first.

    The options may come before or after the command's name.
    """

    @click.option("--team", metavar="NAME", help="The team .teams/NAME/ of this project.")
    @click.option(
        "--team-dir",
        metavar="DIR",
        help="The team directory  [default: $TEAMD_DIR, else .team/ here or above].",
    )
    @click.option(
        "--config",
        metavar="FILE",
        help="The settings file  [default: the team's own team.toml, else the project's].",
    )
    @functools.wraps(run)
    def with_choice(
        *args: Any, team: str | None, team_dir: str | None, config: str | None, **values: Any
    ) -> R:
        choice = click.get_current_context().ensure_object(TeamOptions)
        choice.take(team=team, team_dir=team_dir, config=config)
        return run(choice, *args, **values)

    return with_choice


class Seconds(click.ParamType[float]):
    """A finite time limit in seconds; zero is refused unless `zero` allows it."""

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
    """click's type, but described as a whole number in error messages."""

    name = "whole number"


class FloatRange(click.FloatRange):
    """click's type, but described as a number in error messages."""

    name = "number"


class TextCommand(click.Command):
    """A command whose last argument is a text; an unquoted text is shown with quotes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of a call, or fail with a sentence."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if better := self._quoted(ctx, given):
                hint = f"put a text of more than one word in quotes: {better}"
                raise click.UsageError(f"{error.message}; {hint}", ctx) from error
            raise

    def _quoted(self, ctx: click.Context, given: list[str]) -> str:
        """Return the call with its text in quotes, or "" if quotes would not repair it."""
        with suppress(click.UsageError):
            found, extra, _ = self.make_parser(ctx).parse_args(list(given))
            names = [one.name or "" for one in self.params if isinstance(one, click.Argument)]
            if extra and names[-1:] and names[-1] in _TEXTS:
                words = [*(found[name] for name in names), *extra]
                options = iter(_without(given, words))
                text = shlex.quote(" ".join(words[len(names) - 1 :]))
                return " ".join([ctx.command_path, *words[: len(names) - 1], text, *options])
        return ""


NUMBER: Final = "NUMBER"  # in a table of meant commands: any number
ANY_WORD: Final = "WORD"  # the same: any other word


def find_meant(meant: Mapping[str, str], words: Sequence[str]) -> str:
    """Return the sentence about the command that some words mean, or an empty text.

    Args:
        meant: sentences by the first word, or by `NUMBER` or `ANY_WORD`; `{word}` in a sentence is
            the first word, `{words}` are all.
        words: at least one.
    """
    kind = NUMBER if words[0].removeprefix("#").isdecimal() else words[0]
    sentence = meant.get(kind) or meant.get(ANY_WORD, "")
    return sentence.format(word=shlex.quote(words[0]), words=shlex.join(words))


class SuggestingCommand(click.Command):
    """A command without arguments that answers a word with the command that was meant.

    Args:
        meant: see `find_meant`.
    """

    def __init__(self, *args: Any, meant: Mapping[str, str], **facts: Any) -> None:
        super().__init__(*args, **facts)
        self._meant = meant

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of a call, or fail with a sentence."""
        given = bool(args) and not args[0].startswith("-") and not ctx.resilient_parsing
        if given and (hint := find_meant(self._meant, args)):
            ctx.fail(f"{ctx.command_path!r} takes no {args[0]!r}; {hint}")
        return super().parse_args(ctx, args)


# These delete: who mistypes another command must not be led to them.
_DELETING: Final = frozenset({"delete", "discard", "forget", "prune", "remove", "rm"})


class SuggestingGroup(click.Group):
    """A group that answers an unknown command with the one that was meant, or with the list.

    Args:
        meant: see `find_meant`.
    """

    def __init__(self, *args: Any, meant: Mapping[str, str] | None = None, **facts: Any) -> None:
        super().__init__(*args, **facts)
        self._meant = meant or {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with a sentence."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing:
            hint = find_meant(self._meant, args) or self._hint(ctx, name, known)
            ctx.fail(f"no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: click.Context, name: str, known: list[str]) -> str:
        harmless = [one for one in known if one not in _DELETING]
        near = get_close_matches(name, harmless, n=1)
        return f"did you mean {near[0]!r}?" if near else self.describe_known(ctx)

    def describe_known(self, ctx: click.Context) -> str:
        """Return the hint that lists the commands."""
        return f"there are: {', '.join(self.list_commands(ctx))}"


def _without(given: list[str], words: list[str]) -> list[str]:
    """Return `given` without `words`, which occur in it in this order."""
    left, words = [], list(words)
    for word in given:
        if words and word == words[0]:
            del words[0]
        else:
            left.append(word)
    return left


def add_examples(command: click.Command, examples: Mapping[str, Sequence[str]], path: str) -> None:
    """Add examples to the help of a command and of its subcommands.

    Args:
        command: the command or group.
        examples: example calls, by the words that call a command, such as "task add".
        path: the words that call this one.
    """
    if found := examples.get(path):
        command.epilog = "\n".join((_EXAMPLES, *(f"  {one}" for one in found)))
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        add_examples(below, examples, f"{path} {name}".strip())


def examples_of(command: click.Command) -> list[str]:
    """Return the examples that `add_examples` added to a command."""
    lines = (command.epilog or "").removeprefix(_EXAMPLES).splitlines()
    return [line.strip() for line in lines if line.strip()]
