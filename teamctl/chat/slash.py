"""The slash commands of the chat, and the completion of typed lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import click
from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from teamctl.arguments import answerable, members
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD

COMPACT: Final = "/compact"
HELP: Final = "/help"
QUIT: Final = "/quit"
MODEL: Final = "/model"
MAIL: Final = "@"  # begins a line to a teammate
_OPTIONS: Final = ("--always",)
# What people type, by habit from other programs.
_MEANT: Final = {
    **dict.fromkeys(("/clear", "/new", "/reset"), "leave, and `teamctl chat --fresh` begins anew"),
    "/cost": "/usage shows it",
    "/spawn": "ask the lead, or `teamctl spawn NAME ROLE PROMPT` in another terminal",
    "/task": "/tasks shows the board",
}
Run = Callable[[Sequence[str]], None]  # runs a `teamctl` command of this team


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command.

    Attributes:
        argv: turns its arguments into those of `teamctl`; `None` for commands of the chat itself.
        names: returns the completions of its first argument.
    """

    usage: str
    help: str
    argv: Callable[[str], list[str]] | None = None
    names: Callable[[TeamPaths], list[str]] = lambda _: []

    @property
    def word(self) -> str:
        """The command with its slash, without arguments."""
        return self.usage.partition(" ")[0]


def _call(name: str) -> Callable[[str], list[str]]:
    return lambda _: [name]


def _answer(name: str, option: str) -> Callable[[str], list[str]]:
    """Return an `argv` function for answers: after the id comes the reason, or `--always`."""

    def argv(rest: str) -> list[str]:
        request, _, words = rest.partition(" ")
        if words.strip() in _OPTIONS:
            return [name, request, words.strip()]
        said = [f"{option}={words.strip()}"] if words.strip() else []
        return [name, *([request] if request else []), *said]

    return argv


def _with_text(name: str) -> Callable[[str], list[str]]:
    """Return an `argv` function for a name and a text."""

    def argv(rest: str) -> list[str]:
        whom, _, text = rest.partition(" ")
        if text.strip() == "-":
            raise TeamError("the terminal is busy with the chat; write the text in place of the -")
        return [name, "--", *filter(None, (whom, text.strip()))]

    return argv


def _with_name(name: str, default: str = "") -> Callable[[str], list[str]]:
    return lambda rest: [name, *filter(None, (rest.partition(" ")[0] or default,))]


COMMANDS: Final = {
    one.word: one
    for one in (
        SlashCommand("/team", "show the members of the team and their states", _call("team")),
        SlashCommand("/inbox", "read your mail", _call("inbox")),
        SlashCommand("/tasks", "show the task board", _call("tasks")),
        SlashCommand("/requests", "list what waits for your answer", _call("requests")),
        SlashCommand(
            "/approve ID [WORDS]",
            "approve a request; with --always for good",
            _answer("approve", "--feedback"),
            answerable,
        ),
        SlashCommand(
            "/reject ID [WORDS]", "reject a request", _answer("reject", "--reason"), answerable
        ),
        SlashCommand(
            "/resume [NAME] [--usd N]",
            "let a paused teammate go on, the lead without a name",
            lambda rest: ["resume", *(rest.split() or [LEAD])],
            members,
        ),
        SlashCommand("/usage", "show tokens and cost", _call("usage")),
        SlashCommand(
            "/transcript [NAME]", "show a conversation", _with_name("transcript", LEAD), members
        ),
        SlashCommand("/send NAME TEXT", "send mail to a teammate", _with_text("send"), members),
        SlashCommand(f"{MAIL}NAME TEXT", "send mail to a teammate"),
        SlashCommand(
            "/interrupt [NAME] [TEXT]",
            "interrupt a turn, the lead's without a name",
            lambda rest: _with_text("interrupt")(rest or LEAD),
            members,
        ),
        SlashCommand(
            "/diff NAME", "show the changes in a working copy", _with_name("diff"), members
        ),
        SlashCommand("/queue", "show the merge queue", _call("queue")),
        SlashCommand("/model [MODEL]", "show or change the model of the lead"),
        SlashCommand(COMPACT, "have the lead summarize its conversation"),
        SlashCommand(HELP, "list these commands"),
        SlashCommand(QUIT, "leave; the team goes on (also Ctrl-D)"),
    )
}


def describe() -> str:
    width = max(len(one.usage) for one in COMMANDS.values())
    return "\n".join(f"{one.usage:{width}}  {one.help}" for one in COMMANDS.values())


def find_near(word: str) -> str | None:
    """Return the command closest to an unknown one."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for unknown commands

    begun = [name for name in COMMANDS if name.startswith(word)]
    return next(iter(begun or get_close_matches(word, COMMANDS, n=1)), None)


def complete(paths: TeamPaths, typed: str) -> list[str]:
    """Return the completions of a line's last word; none for a line to the lead.

    Args:
        paths: the team.
        typed: the line so far.
    """
    word, space, rest = typed.partition(" ")
    if word.startswith(MAIL) and not space:
        found = [f"{MAIL}{name}" for name in members(paths)]
        return [name for name in found if name.lower().startswith(word.lower())]
    if not word.startswith("/") or " " in rest:
        return []
    if not space:
        return [name for name in COMMANDS if name.startswith(word.lower())]
    command = COMMANDS.get(word.lower())
    names = [] if command is None else command.names(paths)
    return [name for name in names if name.lower().startswith(rest.lower())]


def argv_of_mail(line: str) -> list[str]:
    """Return the arguments of `teamctl` for the line `@NAME TEXT`."""
    return _with_text("send")(line[len(MAIL) :])


def obey(word: str, rest: str, run: Run) -> bool:
    """Run a command that the chat itself does not handle.

    Args:
        word: the command with its slash, in lower case.
        rest: its arguments.
        run: runs a `teamctl` command of this team.

    Returns:
        Whether the chat continues.
    """
    found = COMMANDS.get(word)
    if word == QUIT:
        return False
    if word in _MEANT:
        click.echo(f"no command {word!r}; {_MEANT[word]}", err=True)
    elif found is None:
        near = find_near(word)
        hint = f"did you mean {near}?" if near else f"{HELP} lists them"
        click.echo(f"no command {word!r}; {hint}", err=True)
    elif found.argv is None:
        click.echo(describe())
    else:
        run(found.argv(rest))
    return True


def _found(paths: TeamPaths, typed: str) -> list[str]:
    try:
        return complete(paths, typed)
    except TeamError:  # an error must not disturb typing
        return []


class SlashCompleter(Completer):
    """Completes commands, names and ids."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 -- prompt_toolkit's
    ) -> Iterator[Completion]:
        typed = document.text_before_cursor
        for word in _found(self._paths, typed):
            yield Completion(word, start_position=-len(typed.rpartition(" ")[2]))


class SlashSuggestion(AutoSuggest):
    """Suggests the first matching command; the right arrow accepts it."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths

    def get_suggestion(
        self,
        buffer: Buffer,  # noqa: ARG002 -- prompt_toolkit's
        document: Document,
    ) -> Suggestion | None:
        if len(document.text) < len("/t"):
            return None
        last = document.text.rpartition(" ")[2]
        found = _found(self._paths, document.text)
        return Suggestion(found[0][len(last) :]) if found else None
