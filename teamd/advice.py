"""Commands that a sentence names, as they reach the team that the sentence is about."""

from __future__ import annotations

import re
from typing import Final

# Those that are about the project, not about a team, are left as they are.
_COMMAND: Final = re.compile(r"`(teamctl|teamd) (?=[a-z])(?!(?:create|delete|demo|init|teams)\b)")


def addressed(text: str, team: str | None) -> str:
    """The text, with `--team` in each command between backticks that has none yet.

    Args:
        text: a sentence of ours.
        team: the team's name; `None` for the one that commands mean by themselves.
    """
    if team is None:
        return text
    return _COMMAND.sub(lambda found: f"`{found[1]} --team {team} ", text)
