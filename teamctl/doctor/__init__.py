"""The findings of `teamctl doctor`, and its checks of the machine, the model and other hosts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The weight of a finding."""

    OK = "ok"
    NOTE = "note"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and the remedy."""

    level: Level
    what: str
    remedy: str = ""

    @classmethod
    def of(cls, level: Level, sentence: object) -> Finding:
        """Return the finding of a sentence whose second part is the remedy."""
        what, _, remedy = str(sentence).partition("; ")
        return cls(level, what, remedy)
