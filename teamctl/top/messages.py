"""What threads tell the screens of `top`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.overview.overview import Overview

if TYPE_CHECKING:
    from teamctl.top.lines import Row
    from teamctl.top.sources import Tab


@dataclass
class Looked(Message):
    """The watcher has looked; `seen` is `None` where the team could not be read."""

    paths: TeamPaths
    seen: Overview | None
    trouble: str
    teams: tuple[str, ...]


@dataclass
class Read(Message):
    """A tab was read."""

    source: Tab
    rows: Sequence[Row]


@dataclass
class Told(Message):
    """Something was done, or refused."""

    text: str


def explain(error: Exception) -> str:
    """Return the sentence about what went wrong in a thread."""
    if isinstance(error, TeamError):
        return error.for_person()
    return f"internal error ({type(error).__name__}: {error}); please report it"
