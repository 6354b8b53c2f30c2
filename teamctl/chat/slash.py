"""The slash commands of the chat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from teamctl.mail.router import open_approvals
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, USER
from teamd.team.roster import Roster

COMPACT: Final = "/compact"
HELP: Final = "/help"
QUIT: Final = "/quit"


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
    """Return an `argv` function for answers; the words after the id are the reason."""

    def argv(rest: str) -> list[str]:
        request, _, words = rest.partition(" ")
        said = [f"{option}={words.strip()}"] if words.strip() else []
        return [name, *([request] if request else []), *said]

    return argv


def _transcript(rest: str) -> list[str]:
    return ["transcript", rest.partition(" ")[0] or LEAD]


def _answerable(paths: TeamPaths) -> list[str]:
    return [one.id for one in open_approvals(paths) if one.may_be_answered_by(USER)]


def _members(paths: TeamPaths) -> list[str]:
    return [member.name for member in Roster(paths).read().members]


COMMANDS: Final = {
    one.word: one
    for one in (
        SlashCommand("/team", "show the members of the team and their states", _call("team")),
        SlashCommand("/inbox", "read your mail", _call("inbox")),
        SlashCommand("/tasks", "show the task board", _call("tasks")),
        SlashCommand("/requests", "list what waits for your answer", _call("requests")),
        SlashCommand(
            "/approve ID [WORDS]",
            "approve a request",
            _answer("approve", "--feedback"),
            _answerable,
        ),
        SlashCommand(
            "/reject ID [WORDS]", "reject a request", _answer("reject", "--reason"), _answerable
        ),
        SlashCommand("/usage", "show tokens and cost", _call("usage")),
        SlashCommand("/transcript [NAME]", "show a conversation", _transcript, _members),
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
    if not word.startswith("/") or " " in rest:
        return []
    if not space:
        return [name for name in COMMANDS if name.startswith(word.lower())]
    found = COMMANDS.get(word.lower())
    names = [] if found is None else found.names(paths)
    return [name for name in names if name.lower().startswith(rest.lower())]
