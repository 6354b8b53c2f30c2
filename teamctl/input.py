"""What a person types, or pipes in."""

from __future__ import annotations

import sys
from typing import Final

STDIN: Final = "-"


def text_or_stdin(argument: str) -> str:
    """The argument itself, or all of standard input where it is `-`."""
    if argument != STDIN:
        return argument
    return sys.stdin.buffer.read().decode("utf-8", "replace")
