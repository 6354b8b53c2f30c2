"""Small commands within the chat, which begin with a slash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPACT: Final = "/compact"
HELP: Final = {
    "/team": "show the members of the team and their states",
    "/inbox": "read your mail",
    "/tasks": "show the task board",
    COMPACT: "have the lead summarize its conversation",
    "/help": "list these commands",
    "/quit": "leave; the team goes on (also Ctrl-D)",
}
_COMMANDS: Final = {"/team": ("team",), "/inbox": ("inbox",), "/tasks": ("tasks",)}


def command(line: str) -> str | None:
    """The command that a line begins with, in lower case; `None` where it is said to the lead."""
    return line.split(maxsplit=1)[0].lower() if line.startswith("/") else None


def obey(word: str, run: Callable[[Sequence[str]], None]) -> bool:
    """Do what a command says.

    Args:
        word: with its slash, in lower case.
        run: runs a `teamctl` command of this team.

    Returns:
        Whether the chat goes on.
    """
    if word == "/quit":
        return False
    if word in _COMMANDS:
        run(_COMMANDS[word])
    elif word == "/help":
        width = max(map(len, HELP))
        for name, what in HELP.items():
            click.echo(f"{name:{width}}  {what}")
    else:
        near = [name for name in HELP if name.startswith(word)]
        hint = f"did you mean {near[0]}?" if near else "/help lists them"
        click.echo(f"no command {word!r}; {hint}", err=True)
    return True
