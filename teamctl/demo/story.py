"""The demo's story: whom the lead spawns, and what their model says."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

from teamd.errors import TeamError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Part:
    """Somebody in it: what the lead spawns, and the turns of the model, as the script has them."""

    name: str
    role: str
    prompt: str
    turns: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Story:
    """All of it, in the order of the spawns."""

    parts: tuple[Part, ...]
    pace_seconds: float

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """Read the story that comes with the program, or another one.

        Raises:
            TeamError: it cannot be read.
        """
        source = files("teamctl.demo") / "story.toml" if file is None else file
        try:
            told = tomllib.loads(source.read_text(encoding="utf-8"))
            parts = [
                Part(one["name"], one["role"], one["prompt"], one["turn"])
                for one in told["teammate"]
            ]
            return cls(tuple(parts), float(told["pace_seconds"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TeamError(f"{source} holds no story for the demo: {error}") from error

    def script(self, *, paced: bool) -> str:
        """What `[model] script` plays, see teamd/models/scripted.py."""
        turns = {part.name: part.turns for part in self.parts}
        return json.dumps({"pace_seconds": self.pace_seconds if paced else 0, "turns": turns})
