"""Hints: the commands that a sentence tells its reader to type."""

from __future__ import annotations

import re
from typing import Final

from teamd.messages import LEAD

# Those that are about the project, not about a team, are left as they are.
_COMMAND: Final = re.compile(r"`(teamctl|teamd) (?=[a-z])(?!(?:create|delete|demo|init|teams)\b)")


def again(name: str, *options: str) -> str:
    """Return the command that starts a teammate again, in backquotes; for the lead that is `chat`.

    Args:
        name: the teammate's; empty for a subagent, which no command calls.
        options: of the command.
    """
    if not name:
        return "a smaller task"
    called = "teamctl chat" if name == LEAD else f"teamctl spawn {name} …"
    return f"`{' '.join([called, *options])}`"


def addressed(text: str, team: str | None) -> str:
    """Return the text with `--team` in each command between backquotes that has none yet.

    Args:
        text: a sentence of ours.
        team: the team's name; `None` for the one that commands mean by themselves.
    """
    if team is None:
        return text
    return _COMMAND.sub(lambda found: f"`{found[1]} --team {team} ", text)
