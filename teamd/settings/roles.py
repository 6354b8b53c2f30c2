"""Role files: Markdown that describes a role, in the format of `.claude/agents/`.

`spawn alice reviewer` reads `reviewer.md`. Its front matter may set a `model`, an `effort`, the
`tools` that such a teammate may use and the `disallowedTools` that it lacks; the text after it
becomes a part of the system prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.errors import SettingsError
from teamd.model_server.facts import EFFORTS
from teamd.settings import front_matter
from teamd.settings.known_tools import BASIC_TOOLS, TOOLS, resolve_alias

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
INHERIT: Final = "inherit"
ALL_TOOLS: Final = frozenset({"*", "all"})
BASIC: Final = "basic"
# The short names in such files; each means the newest model of its kind that the SDK knows.
_MODELS: Final = {
    "haiku": "claude-haiku-5-5",
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The contents of a role file.

    Attributes:
        model: `None` for the model of the team.
        effort: the effort of its model; `None` for that of the team.
        tools: the tools of the workspace that it may use; `None` for all.
        dropped: tools of any kind that it lacks.
        basic: whether it has only the basic tools; `None` leaves that to `[model] tools`.
        instructions: a part of the system prompt.
    """

    model: str | None = None
    effort: str | None = None
    tools: frozenset[str] | None = None
    dropped: frozenset[str] = frozenset()
    basic: bool | None = None
    instructions: str = ""

    def dropped_tools(self, model_tools: str) -> frozenset[str]:
        """Return the tools that it lacks in a team with this `[model] tools`."""
        basic = model_tools == BASIC if self.basic is None else self.basic
        return self.dropped | (frozenset(TOOLS) - BASIC_TOOLS if basic else frozenset())


def folders(team: Path, workspace: Path) -> list[Path]:
    """Return the folders of role files: the team's folder comes before the workspace's."""
    return [team, workspace / ".claude" / "agents"]


def mistakes(folders: Iterable[Path]) -> list[SettingsError]:
    """Return the mistakes in all role files of these folders."""
    found = []
    for folder in folders:
        for path in sorted(folder.glob("*.md")):
            try:
                find(path.stem, [folder])
            except SettingsError as error:
                found.append(error)
    return found


def find(role: str, folders: Iterable[Path]) -> Role | None:
    """Return the role from the first folder that has its file; `None` without one.

    Raises:
        SettingsError: the file is invalid or cannot be read.
    """
    if not _FILE_NAME.fullmatch(role):
        return None
    for folder in folders:
        path = folder / f"{role}.md"
        if path.is_file():
            return _role(front_matter.read(path))
    return None


def _role(document: front_matter.Document) -> Role:
    model = document.text("model")
    tools = document.words("tools")
    effort = document.text("effort")
    if effort not in ("", INHERIT, *EFFORTS):
        mistake = f"effort must be {', '.join(EFFORTS)} or {INHERIT}, not {effort!r}"
        raise SettingsError(document.path, [mistake])
    whole_set = frozenset() if tools is None else {BASIC, *ALL_TOOLS}.intersection(tools)
    return Role(
        model=None if model in ("", INHERIT) else _MODELS.get(model, model),
        effort=None if effort in ("", INHERIT) else effort,
        tools=None if tools is None or whole_set else frozenset(_known(tools)),
        dropped=frozenset(_known(document.words("disallowedTools") or ())),
        basic=BASIC in whole_set if whole_set else None,
        instructions=document.body,
    )


def _known(tools: Iterable[str]) -> Iterable[str]:
    for tool in tools:
        plain = tool.partition("(")[0].strip()  # the permissions in `Bash(git *)` are ignored
        yield from resolve_alias(plain)  # an unknown tool grants nothing
