"""Ids as models write them: `1`, `1.0`, `"1"`, `#1`, `task_01`, `task_id: 1` name the same task."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import BeforeValidator

_LONGEST: Final = 64  # characters; a longer text is not an id


def _reader(noun: str) -> Callable[[object], object]:
    """Return a function that finds the number in an id; other values pass, to be refused later."""
    name = rf"{noun}[\s_-]*(?:id)?[\s_:=#-]*"
    written = re.compile(
        rf"[\s#\"'`]*(?:{name})?[\"'`]*0*([0-9]+)(?:\.0+)?[\s\"'`]*", re.IGNORECASE
    )

    def read(value: object) -> object:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        short = isinstance(value, str) and len(value) <= _LONGEST
        found = written.fullmatch(str(value)) if short else None
        return found[1] if found else value

    return read


TaskId = Annotated[str, BeforeValidator(_reader("task"))]
JobId = Annotated[str, BeforeValidator(_reader("job"))]
